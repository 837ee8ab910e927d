"""What each figure of notebook 02 shows, in a sentence or two computed from its records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.sentences import (
    Finding,
    as_share,
    briefly,
    counted,
    estimate_in,
    faster,
    finding,
    known_of,
    listed,
    measure_of,
    network_name,
    require_rounds,
    sentence,
    settle_each,
    times,
    way_name,
)
from lockstep.analysis.statistics import (
    Conditions,
    Estimate,
    interval_of,
    is_difference,
    per_round,
    ratio_with_interval,
    select,
)
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import sessions_in, trace_table
from lockstep.analysis.verdicts import cores_given, sequential, table1
from lockstep.experiments.e02_threads_vs_processes.lock_drawings import FEWEST_COUNTS, measured_counts
from lockstep.experiments.e02_threads_vs_processes.tables import gil_table, input_table
from lockstep.experiments.e02_threads_vs_processes.tables import scaling as scaling_of

SPEED, MEMORY = "images_per_second", "peak_pss_bytes"


def _use_cases(records: pd.DataFrame) -> list[str]:
    """Those that were measured, the one with the large data set first."""
    found = records.loc[records["experiment"] == "table1", "use_case"].unique()
    return sorted((str(name) for name in found), reverse=True)


def _cell(records: pd.DataFrame, use_case: str, strategy: str) -> Conditions:
    return table1(records, use_case=use_case, device="cpu", strategy=strategy)


def _over(records: pd.DataFrame, use_case: str, above: str, under: str, measure: str = SPEED) -> Estimate:
    sides = [_cell(records, use_case, strategy) for strategy in (above, under)]
    ratio = ratio_with_interval(records, sides[0], sides[1], measure)
    require_rounds(ratio)
    return ratio


def _over_one_core(records: pd.DataFrame, use_case: str, strategy: str, measure: str = SPEED) -> Estimate:
    ratio = ratio_with_interval(records, _cell(records, use_case, strategy), sequential(records, use_case), measure)
    require_rounds(ratio)
    return ratio


@finding
def speedup(stored: Stored) -> str:
    """Processes and threads over one core, and against each other, for each use case."""
    return " ".join(settle_each(partial(_speedup, stored.records), _use_cases(stored.records)))


def _speedup(records: pd.DataFrame, use_case: str, over_one_core_too: bool = True) -> str:
    network, inside, one_core = network_name(use_case), "threads inside operators", "one core's speed"

    def gain(strategy: str, of: str) -> str:
        return times(_over_one_core(records, use_case, strategy), of)

    def processes() -> str:
        rows = select(records, _cell(records, use_case, "processes"))
        workers, batch = int(rows["workers"].max()), int(rows["global_batch_size"].max())
        train = f"{counted(workers, 'process')} {'trains' if workers == 1 else 'train'} {network}"
        return f"{train} ({batch} images per step) {gain('processes', 'as fast as one core')}"

    def over(above: str, under: str, *names: str) -> str:
        return faster(_over(records, use_case, above, under), aa_noise(records), *names)

    asked = {
        "processes beside threads": lambda: over("processes", "threads", "processes", "replica threads"),
        f"{inside} beside processes": lambda: over("intra_op", "processes", inside, "processes"),
        f"processes beside one core ({network})": processes,
    }
    if over_one_core_too:
        asked[inside] = lambda: f"one process with {inside} reaches {gain('intra_op', one_core)}"
    told = known_of(asked)
    return f"Training {network}: {told[:1].lower()}{told[1:]}"


@finding
def answer(stored: Stored) -> str:
    """Most comparisons of `speedup`, and those of processes with threads in memory, and with DDP."""
    records, use_cases = stored.records, _use_cases(stored.records)

    def in_memory(use_case: str) -> str:
        return f"to train {network_name(use_case)}, {_memory_compared(records, use_case)}"

    def over_ddp(use_case: str) -> str:
        ratio = _over(records, use_case, "processes", "ddp")
        compared = faster(ratio, aa_noise(records), "processes that share memory", "those of PyTorch's DDP")
        return f"training {network_name(use_case)}, {compared}"

    asked = {f"memory for {network_name(use_case)}": partial(in_memory, use_case) for use_case in use_cases}
    with_ddp = select(records, {"experiment": "table1", "strategy": "ddp", "device": "cpu"})["use_case"].unique()
    asked |= {f"DDP for {network_name(use_case)}": partial(over_ddp, use_case) for use_case in with_ddp}
    told = settle_each(partial(_speedup, records, over_one_core_too=False), use_cases)
    return " ".join([*told, *settle_each(lambda _: known_of(asked), ["Memory and DDP"])])


@finding
def interpreter(stored: Stored) -> str:
    """Processes against threads where one budget of cores is split over the most workers, at few images per step and
    at many."""
    table = gil_table(stored.records)
    known = table[table["processes_over_threads"].notna() & (table["workers"] > 1)] if len(table) else table
    if known.empty:
        return "No cell with several workers was measured with both threads and processes."
    most = known[known["workers"] == known["workers"].max()].sort_values("global_batch_size")
    noise = aa_noise(stored.records)
    workers = counted(int(most["workers"].iloc[0]), "worker")

    def say(split: str) -> str:
        row = rows[split]
        ratio = Estimate(row["processes_over_threads"], row["low"], row["high"], int(row["rounds"]))
        cost = ", so sharing one interpreter costs at most that" if ratio.low > 1 else ""
        compared = faster(ratio, noise, "processes", "threads", sessions_in(row, "processes_over_threads"))
        return f"with {split}, {compared}{cost}"

    rows = {f"{row['global_batch_size']} images per step on {workers}": row for row in most.to_dict("records")}
    return known_of({split: partial(say, split) for split in rows})


@finding
def scaling(stored: Stored) -> str:
    """The highest speedup where one budget of cores is split over more and more workers; or that there is no curve."""
    table = scaling_of(stored)
    known = table[table["speedup"].notna()] if len(table) else table
    counts = measured_counts(table)
    if len(counts) < FEWEST_COUNTS:
        which = f"with {listed(map(str, counts))} workers" if counts else "with no number of workers"
        more = "`lockstep run 02 -p scaling_workers=[1,2,4]` does so where there are as many cores"
        return sentence(f"one budget of cores was measured {which}, which makes no curve; {more}")
    best = known.loc[known["speedup"].idxmax()]
    ratio, workers = estimate_in(best.to_dict(), "speedup"), counted(int(best["workers"]), "worker")
    which = f"{workers} with {way_name(best['strategy'])}"
    return sentence(f"the highest speedup is that of {which}, {times(ratio, 'as fast')}")


@finding
def memory(stored: Stored) -> str:
    """Peak memory of processes and of threads over one core's, and against each other."""
    return " ".join(settle_each(partial(_memory, stored.records), _use_cases(stored.records)))


def _memory(records: pd.DataFrame, use_case: str) -> str:
    network = network_name(use_case)

    def need(name: str) -> str:
        return f"{name} need {times(_over_one_core(records, use_case, name, MEMORY), 'the memory of one core')}"

    asked = {f"{name} beside one core": partial(need, name) for name in ("processes", "threads")}
    told = briefly(known_of({**asked, "processes beside threads": partial(_memory_compared, records, use_case)}))
    return f"To train {network}: {told[:1].lower()}{told[1:]}"


def _memory_compared(records: pd.DataFrame, use_case: str) -> str:
    ratio, noise = _over(records, use_case, "processes", "threads", MEMORY), aa_noise(records, MEMORY)
    if is_difference(ratio, noise):
        return f"processes need {'more' if ratio.value > 1 else 'less'} memory than threads ({times(ratio, 'as much')})"
    within = not ratio.low <= 1 <= ratio.high and math.isfinite(noise)
    told = f"the memory of processes and of threads cannot be told apart ({times(ratio, 'as much')}"
    return told + (f"; two equal runs differ by up to {math.expm1(noise):.1%})" if within else ")")


@finding
def phases(stored: Stored) -> str:
    """The shares of a step of processes that compute, and that exchange and update."""
    return " ".join(settle_each(partial(_phases, stored.records), _use_cases(stored.records)))


def _phases(records: pd.DataFrame, use_case: str) -> str:
    cell = _cell(records, use_case, "processes")
    step = per_round(records, cell, "step_seconds")

    def share(*names: str) -> str:
        spent = sum(per_round(records, cell, f"{name}_seconds") for name in names)
        ratio = interval_of((100 * spent / step).dropna())
        require_rounds(ratio)
        return briefly(measure_of(ratio, "%"))

    of_step = f"of a step of {network_name(use_case)}"
    return sentence(
        f"with a process per core, computing takes {share('compute')} {of_step}, exchange and update together "
        f"{share('exchange', 'update')}"
    )


@finding
def jpeg_input(stored: Stored) -> str:
    """JPEG photos over tensors in memory, with a core to spare and without."""
    table = input_table(stored.records)
    known = table[table["ratio"].notna()].to_dict("records") if len(table) else []

    def say(where: str) -> str:
        row = rows[where]
        ratio = Estimate(row["ratio"], row["low"], row["high"], int(row["rounds"]))
        require_rounds(ratio)
        costs = "no cost of JPEG photos can be told"
        if not ratio.low <= 1 <= ratio.high:
            costs = f"training from JPEG photos is {'slower' if ratio.value < 1 else 'faster'} than without decoding"
        many = times(ratio, "as many images per second") + sessions_in(row, "ratio")
        return f"with {where}, {costs}: {many}"

    words = {True: "a core free for decoding", False: "no core free for decoding"}
    rows = {words[row["cores_per_worker"] > row["threads_per_worker"]]: row for row in known}
    if not rows:
        return "No cell was measured both with JPEG photos and with tensors in memory."
    return known_of({where: partial(say, where) for where in rows})


@finding
def exchange(stored: Stored) -> str:
    """Seconds of the exchange alone: gloo's all-reduce over shared memory."""
    shared = {"experiment": "exchange", "use_case": "SimpleBig", "precision": "float32"}
    ours, gloo = (shared | {"strategy": name} for name in ("processes", "processes_allreduce"))
    ratio = ratio_with_interval(stored.records, gloo, ours, "step_seconds")
    require_rounds(ratio)
    seconds = interval_of(1e3 * per_round(stored.records, ours, "step_seconds"))
    compared = f"gloo's all-reduce takes {times(ratio, 'as long')}"
    if ratio.low <= 1 <= ratio.high:
        compared = f"gloo's all-reduce cannot be told apart from that ({times(ratio, 'as long')})"
    alone = f"summing AlexNet's gradients and updating its parameters takes {briefly(measure_of(seconds, 'ms'))}"
    return sentence(f"{alone} in shared memory; {compared}")


@finding
def resources(stored: Stored) -> str:
    """Mean CPU use and number of threads of the traced cells, processes beside threads."""
    traced = stored.table("resources")
    table = trace_table(traced[traced["experiment"] == "table1"]) if len(traced) else traced
    sampled = {
        f"{strategy} that train {network_name(str(use_case))}": (str(use_case), str(strategy), own)
        for (use_case, strategy), own in (table.groupby(["use_case", "strategy"], sort=False) if len(table) else ())
        if strategy in ("processes", "threads")
    }

    def say(who: str) -> str:
        use_case, strategy, own = sampled[who]
        cores = cores_given(select(stored.records, _cell(stored.records, use_case, strategy)))
        busy = interval_of((own["cpu_percent_mean"] / cores).dropna())
        require_rounds(busy)
        count = interval_of(own["threads_mean"].dropna())
        kept = f"{counted(cores, 'core')} {measure_of(as_share(busy), '%')} busy"
        threads = measure_of(count, "threads") if count.low < count.high else f"{count.value:g} threads"
        return f"{who} have {threads} and keep {kept}"

    if not sampled:
        return "No resources were sampled in these records."
    return known_of({who: partial(say, who) for who in sampled})


FINDINGS: Mapping[str, Finding] = {
    "speedup": speedup,
    "phases": phases,
    "interpreter": interpreter,
    "scaling": scaling,
    "memory": memory,
    "input": jpeg_input,
    "exchange": exchange,
    "resources": resources,
}

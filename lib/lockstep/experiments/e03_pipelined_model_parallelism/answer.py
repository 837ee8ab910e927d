"""The answer to notebook 03's title, and what its speedups show: a pipeline beside one core, and beside other ways."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.sentences import (
    counted,
    finding,
    in_words,
    listed,
    network_name,
    noise_unknown,
    pays,
    require_rounds,
    sentence,
    settle_each,
    times,
    way_name,
)
from lockstep.analysis.statistics import is_difference, ratio_with_interval, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import ratio_columns
from lockstep.analysis.verdicts import NotNow, cores_given
from lockstep.experiments.e03_pipelined_model_parallelism.grid import TWO_CORES
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import largest_table
from lockstep.experiments.e03_pipelined_model_parallelism.verdicts import (
    PIPELINED,
    Pipelined,
    over_rival,
    schedules,
    speedup_cell,
)
from lockstep.predict.pipeline_speedups import NAIVE, pipeline_speedup_table

SPEED = "images_per_second"
USUAL = "1f1b"
"""The schedule that `lockstep.train` takes where none is named."""
NOTHING_RAN = "no pipeline was measured on these cores"


def _use_cases(records: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Those of which a pipeline ran on the CPU, AlexNet's first, and those of which none did."""
    own = records[records["experiment"] == "speedup"]
    ran = own[(own["device"] == "cpu") & (own["status"] == "ok") & own["strategy"].isin(PIPELINED)]
    names = sorted((str(name) for name in own["use_case"].unique()), reverse=True)
    known = set(ran["use_case"])
    return [name for name in names if name in known], [name for name in names if name not in known]


def _pipelined(ours: Pipelined) -> str:
    count = len(ours.sides) - 1
    by = way_name(str(ours.cell["strategy"])) if count == 1 else f"the fastest of {counted(count, 'schedule')}"
    return f"pipelined ({by})"


def _cores(records: pd.DataFrame, ours: Pipelined) -> str:
    return counted(cores_given(select(records, ours.cell)), "core")


def _rival(records: pd.DataFrame, use_case: str, name: str) -> str:
    """What a sentence calls another way to use the same cores."""
    rows = select(records, speedup_cell(records, use_case, strategy=name))
    if name == "processes":
        return f"{counted(int(rows['workers'].max()), 'data parallel process')}"
    cores = cores_given(rows)
    return f"one process that uses {'both cores' if cores == 2 else counted(cores, 'core')}"


def _over_one_core(records: pd.DataFrame, noise: float, use_case: str) -> str:
    """The fastest pipeline over one core. Raises NotNow for too few rounds."""
    alone = speedup_cell(records, use_case, strategy="sequential")
    ours = Pipelined.over(records, schedules(records, use_case), alone)
    require_rounds(ours.ratio)
    whole = f"{network_name(use_case)}, {_pipelined(ours)} over {_cores(records, ours)}, trains"
    judged = {1: "", -1: ", which is no gain", 0: ", which leaves open whether that gains anything"}
    return f"{whole} {times(ours.ratio, 'as fast as on one core')}{judged[pays(ours.ratio, noise)]}"


def _same_cores(records: pd.DataFrame, noise: float, use_case: str) -> str:
    """The fastest pipeline over the same cores spent otherwise, and whether cutting pays. Raises NotNow for too few
    rounds beside every other way."""
    found: dict[str, Pipelined] = {}
    for rival in TWO_CORES:
        try:
            ours = over_rival(records, use_case, rival)
            require_rounds(ours.ratio)
        except (NotNow, AnalysisError):
            continue
        found[rival] = ours
    if not found:
        raise NotNow("", f"no other way to use these cores stands beside it in {counted(MIN_ROUNDS, 'round')}")
    wanted = {"experiment": "speedup", "use_case": use_case, "device": "cpu", "strategy": list(TWO_CORES)}
    rivals = set(select(records, wanted)["strategy"])
    sides = {pays(ours.ratio, noise) for ours in found.values()}
    first = next(iter(found.values()))
    where = f"for {network_name(use_case)} on {_cores(records, first)}"
    judged = f"whether cutting pays {where} is not decided"
    if -1 in sides:
        judged = f"cutting does not pay {where}"
    elif sides == {1} and set(found) == rivals:
        judged = f"cutting pays {where}"
    compared = listed(
        times(ours.ratio, f"as fast as {_rival(records, use_case, name)}") for name, ours in found.items()
    )
    return f"{judged}: {_pipelined(first)}, it trains {compared}"


def _naive(records: pd.DataFrame, noise: float, use_case: str) -> str:
    naive, alone = (speedup_cell(records, use_case, strategy=name) for name in (NAIVE["strategy"], "sequential"))
    ratio = ratio_with_interval(records, naive, alone, SPEED)
    require_rounds(ratio)
    unsure = "" if is_difference(ratio, noise) else ", so neither can be called faster"
    whole = f"{network_name(use_case)}, cut without micro-batches, trains"
    return f"{whole} {times(ratio, 'as fast as on one core')}{unsure}"


def _speedup(records: pd.DataFrame, noise: float, use_case: str) -> list[str]:
    network = network_name(use_case)
    asked: dict[str, Callable[[pd.DataFrame, float, str], str]] = {
        f"{network} pipelined beside the same cores spent otherwise": _same_cores,
        f"{network} pipelined beside one core": _over_one_core,
        f"{network} cut without micro-batches": _naive,
    }
    return settle_each(lambda name: sentence(asked[name](records, noise, use_case)), asked)


@finding
def speedup(stored: Stored) -> str:
    """A pipeline over the same cores spent otherwise, as the answer has it, over one core, and the cut alone, for each
    use case."""
    records, noise = stored.records, aa_noise(stored.records)
    ran, rest = _use_cases(records)
    if not ran:
        raise NotNow("", NOTHING_RAN)
    told = [each for use_case in ran for each in _speedup(records, noise, use_case)]
    if rest:
        told.append(sentence(f"{NOTHING_RAN} with {listed(map(network_name, rest))}"))
    return " ".join([*told, *noise_unknown(noise)])


def room(stored: Stored) -> list[str]:
    """How many times as large a model fits into devices of one size, by the number of ranks."""
    table = largest_table(stored.table("stages"))
    if table.empty:
        return []
    most = table.loc[table.groupby("pipeline_ranks")["times"].idxmax()]
    first, *more = most.to_dict("records")
    over = f"cut over {counted(int(first['pipeline_ranks']), 'rank')} ({way_name(first['strategy'])})"
    told = f"{over}, a model can be {_room_of(first, named=True)} as large as one device holds"
    told += "".join(
        f", and over {in_words(int(row['pipeline_ranks']))} ({way_name(row['strategy'])}), {_room_of(row)}"
        for row in more
    )
    two = table[(table["pipeline_ranks"] == 2) & (table["activations"] == "kept")]
    usual = two[two["strategy"] == USUAL]
    if len(usual) and two["times"].max() > usual["times"].max():
        plain = usual.loc[usual["times"].idxmax()]
        told += f"; with plain {way_name(USUAL)} on two ranks, {_room_of(plain)}"
        told += ", so perhaps not larger at all" if plain["at_least"] < 1 < plain["times"] else ""
    return [sentence(told)]


def _room_of(row: Mapping[Hashable, Any] | pd.Series, named: bool = False) -> str:
    """By the fullest rank's measured peak, where it held more than was counted, and by counted bytes: 1.14 to 1.48
    times; `named`: which is which. What one device holds for a moment is counted in neither, so that more may fit."""
    by_bytes = f"{row['times']:.3g} times{' (counted bytes)' if named else ''}"
    if row["at_least"] >= row["times"]:
        return by_bytes
    return f"{row['at_least']:.3g} {'times (measured peaks) ' if named else ''}to {by_bytes}"


def with_rivals(records: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """A table of speedups over one core, and what the answer quotes as use cases of their own: the pipeline over each
    other way to use as many cores, from rounds in which both stood back to back."""
    own = table[table["strategy"].isin(TWO_CORES) & (table["device"] == "cpu")] if len(table) else table
    rows = []
    for row in own.to_dict("records"):
        use_case = str(row["use_case"])
        try:
            ratio = over_rival(records, use_case, str(row["strategy"])).ratio
        except (NotNow, AnalysisError):
            continue
        name = f"{use_case}: {network_name(use_case)} pipelined, over the same cores spent otherwise"
        rows.append(row | {"use_case": name} | ratio_columns(ratio) | {"rounds": ratio.rounds})
    if not rows:
        return table
    over = "one core; where a panel says so, over the row's way\n"
    return pd.concat([table, pd.DataFrame(rows)], ignore_index=True).assign(base=over)


@finding
def answer(stored: Stored) -> str:
    """Whether a pipeline beats the same cores spent otherwise, or else one core; what room it gives; what is open."""
    records, noise = stored.records, aa_noise(stored.records)
    ran, rest = _use_cases(records)
    told, lacking = [], []
    for use_case in ran:
        open_beside = []
        for say, beside in ((_same_cores, "the same cores spent otherwise"), (_over_one_core, "one core")):
            try:
                told.append(sentence(say(records, noise, use_case)))
                break  # who knows what the same cores give otherwise need not compare with one
            except (NotNow, AnalysisError):
                open_beside.append(f"with {beside}")
        if open_beside:
            lacking.append(f"how a pipeline of {network_name(use_case)} compares {' and '.join(open_beside)}")
    if not told:
        raise NotNow("", f"too few rounds of {listed(lacking)}" if lacking else NOTHING_RAN)
    table = pipeline_speedup_table(stored.records, "schedules", NAIVE)
    if table.empty or table.loc[table["strategy"].isin(PIPELINED), "low"].isna().all():
        lacking.append("which schedule is fastest")
    lacking += [f"what cutting does to {network_name(name)}" for name in rest]
    unknown = [sentence(f"not known yet: {listed(lacking)}")] if lacking else []
    return " ".join([*told, *room(stored), *unknown])

"""What each figure of notebook 06 shows, computed from its records, and the answer to its title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.sentences import (
    Finding,
    as_share,
    counted,
    estimate_in,
    finding,
    interval_text,
    listed,
    measure_of,
    network_name,
    noise_unknown,
    require_rounds,
    sentence,
    times,
    way_name,
)
from lockstep.analysis.statistics import interval_of
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import sessions_in, start_table, trace_table
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e06_spark_distribution.drawings import STARTED
from lockstep.experiments.e06_spark_distribution.tables import (
    data_table,
    parts_by_round,
    shown_traces,
    variant_table,
    with_most_workers,
)
from lockstep.experiments.e06_spark_distribution.without_training import PAPER_STYLE, SPEEDUP

NODE = "mpi_shared_memory"
"""What uses the cores of one node without Spark; the verdicts choose it, too."""
BARRIER = "spark_shared_memory"
"""The same training on the same cores, started by Spark."""


def _measured(stored: Stored) -> pd.DataFrame:
    """Rows of the speedups with a number, without the base and the second of A/A pairs. Raises NotNow without any."""
    table = variant_table(stored.records)
    if len(table):
        kept = (table["device"] == "cpu") & (table["variant"] == "a") & (table["strategy"] != "sequential")
        table = table[kept & table["speedup"].notna()]
    if table.empty:
        raise NotNow("", "no training was measured beside one core")
    return table


def _gain(row: Mapping[str, Any]) -> str:
    gain, workers = estimate_in(row, "speedup"), counted(int(row["workers"]), "worker")
    told = f"{interval_text(gain)}{sessions_in(row, 'speedup')}"
    return f"{gain.value:.3g} with {way_name(row['strategy'])}, {workers} {told}"


@finding
def speedup(stored: Stored) -> str:
    """Which ways are faster than one core; then everything over one core, first what has an interval."""
    parts, verdicts = [], []
    for use_case, rows in _measured(stored).groupby("use_case", sort=False):
        known, thin = rows[rows["low"].notna()], rows[rows["low"].isna()]
        if len(known):
            verdicts.append(f"{network_name(str(use_case))} trains {_beside_one(_with_most_workers(known))}")
            gains = "; ".join(_gain(row) for row in known.to_dict("records"))
            network = network_name(str(use_case))
            parts.append(sentence(f"multiples of one core's speed for {network}: {gains}"))
        if len(thin):
            names = listed(
                f"{way_name(row['strategy'])} with {counted(int(row['workers']), 'worker')} ({row['speedup']:.3g})"
                for row in thin.to_dict("records")
            )
            parts.append(f"Too few rounds for an interval ({network_name(str(use_case))}): {names}.")
    return " ".join([*([sentence("; ".join(verdicts))] if verdicts else []), *parts])


def _beside_one(rows: pd.DataFrame) -> str:
    """Faster than on one core by MPI, more slowly than on one core by SparkNet, as the intervals have it."""
    found = {"more slowly than on one core": rows["high"] < 1, "faster than on one core": rows["low"] > 1}
    found["at a speed that cannot be told from one core's"] = (rows["low"] <= 1) & (rows["high"] >= 1)
    named = ((how, listed(map(way_name, rows.loc[own, "strategy"]))) for how, own in found.items())
    return ", ".join(f"{how} by {names}" for how, names in named if names)


def _with_most_workers(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["workers"] == rows.groupby("strategy")["workers"].transform("max")]


@finding
def parts(stored: Stored) -> str:
    """The share of a step that goes into exchanging parameters or gradients, of SparkNet and beside it."""
    told: dict[str, list[str]] = {}
    for cell, rows in with_most_workers(cells(stored.records, SPEEDUP)):
        found, own = _exchanging(stored, cell, rows), told.setdefault(cell["use_case"], [])
        if found is not None and cell["strategy"] in (PAPER_STYLE, NODE):
            of_what = "one" if own else f"a step of {network_name(cell['use_case'])}"
            own.append(f"{measure_of(found, '%')} of {of_what} by {way_name(cell['strategy'])}")
            if cell["strategy"] == PAPER_STYLE:
                step = interval_of(_in_sessions(stored, parts_by_round(cell, rows, None)["step_seconds"]))
                own[-1] += f", which lasts {measure_of(step, 's')}"
    texts = [sentence(f"the exchange takes {'; '.join(own)}") for own in told.values() if own]
    return " ".join(texts) or "No step was measured."


def _exchanging(stored: Stored, cell: dict[str, Any], rows: pd.DataFrame) -> Estimate | None:
    """The share of a step (%) spent neither reading nor computing nor updating; None where none was measured."""
    shares = 100 * _in_sessions(stored, parts_by_round(cell, rows, stored.tables.get("spark"))["agreeing"])
    return as_share(interval_of(shares)) if len(shares) and (shares > 0).all() else None


def _in_sessions(stored: Stored, values: pd.Series) -> pd.Series:
    """Values by round, without those that are missing, indexed by session, too."""
    return stored.by_round(values.rename_axis("round").reset_index(), values)


@finding
def data(stored: Stored) -> str:
    """Images per second with the most images over those with the fewest, judged as the claim about it is."""
    table = data_table(stored.records)
    known = table[table["times_smallest"].notna()] if len(table) else table
    told: dict[str, list[str]] = {}
    thin = []
    for strategy, rows in known.groupby("strategy", sort=False) if len(known) else ():
        if rows["images"].nunique() < 2:
            continue
        row = rows.loc[rows["images"].idxmax()].to_dict()
        ratio = estimate_in(row, "times_smallest", "times_smallest_low", "times_smallest_high")
        name, sizes = way_name(str(strategy)), f"with {row['images']:.0f} images instead of {rows['images'].min():.0f}"
        if ratio.open:
            thin.append(f"{name} ({ratio.value:.3g} times as fast in {counted(ratio.rounds, 'round')})")
            continue
        judged = "is faster" if ratio.value > 1 else "is slower"
        judged = judged if row["difference"] else "cannot be told to be faster or slower"
        gain = f"{times(ratio, 'as fast')}{sessions_in(row, 'times_smallest')}"
        told.setdefault(sizes, []).append(f"{name} {judged}, {gain}")
    texts = [f"{sizes}, {'; '.join(own)}" for sizes, own in told.items()]
    if thin:
        texts.append(f"whether more data make training slower is not known yet for {listed(thin)}")
    unknown = noise_unknown(aa_noise(stored.records), "nothing is called faster or slower") if told else []
    return " ".join([*map(sentence, texts), *unknown]) or "No two sizes of the data set were measured."


@finding
def start(stored: Stored) -> str:
    """How long each kind of team took to start, by its largest number of ranks: the longest first."""
    table = start_table(stored.records)
    if table.empty:
        return "No start was recorded."
    told = []
    most = table.loc[table.groupby("launcher", sort=False)["ranks"].idxmax()]
    for row in most.sort_values("median", ascending=False, kind="stable").to_dict("records"):
        count = counted(int(row["count"]), "start")
        slowest = f", at most {row['max']:.1f} s" if row["count"] > 1 else ""
        told.append(f"{STARTED.get(row['launcher'], row['launcher'])}, {row['median']:.1f} s ({count}{slowest})")
    others = f" The others: {'; '.join(told[1:])}." if len(told) > 1 else ""
    return f"Slowest to start, by the median: {told[0]}.{others}"


@finding
def resources(stored: Stored) -> str:
    """Mean CPU use and peak memory of SparkNet's processes together."""
    table = trace_table(shown_traces(stored.table("resources")))
    if table.empty:
        return "No resources of SparkNet were sampled."
    told = []
    for use_case, own in table.groupby("use_case", sort=False):
        busy, memory = (interval_of(own[name].dropna()) for name in ("cpu_percent_mean", "pss_bytes_peak"))
        told.append(sentence(
            f"while SparkNet trains {network_name(str(use_case))}, its processes use "
            f"{measure_of(busy, '% of one core')} and at most {measure_of(memory.times(2**-30), 'GiB')}, over "
            f"{counted(busy.rounds, 'trace')}"
        ))  # fmt: skip
    return " ".join(told)


@finding
def answer(stored: Stored) -> str:
    """SparkNet, barrier mode and one node beside one core, where they have intervals; where SparkNet's step goes; what
    is open."""
    table = _measured(stored)
    known = table[table["low"].notna() & table["strategy"].isin((PAPER_STYLE, BARRIER, NODE))]
    if known.empty:
        require_rounds(estimate_in(table.iloc[0].to_dict(), "speedup"))
        raise NotNow("", f"neither {way_name(PAPER_STYLE)} nor {way_name(NODE)} was measured often enough")
    told = [_beside_one_core(str(use_case), rows) for use_case, rows in known.groupby("use_case", sort=False)]
    return " ".join([*told, *_where_time_goes(stored), *_open(stored, table)])


def _beside_one_core(use_case: str, known: pd.DataFrame) -> str:
    """The speeds of SparkNet, barrier mode and one node with the most workers as multiples of one core's. Whether one
    is slower is the interval's to say, and the claim's, which is judged together with all others."""
    gains: list[str] = []
    for row in _with_most_workers(known).sort_values("strategy", ascending=False).to_dict("records"):
        gain, workers = estimate_in(row, "speedup"), counted(int(row["workers"]), "worker")
        told = f"{gain.value:.3g} times{'' if gains else ' as fast as one core'} {interval_text(gain)}"
        who = f"{way_name(row['strategy'])} on {workers}"
        verb = ", " if gains else f" trains {network_name(use_case)} "
        gains.append(f"{who}{verb}{told}{sessions_in(row, 'speedup')}")
    batches = known["global_batch_size"] / known["workers"]
    images = f"with {counted(int(batches.iloc[0]), 'image')} per worker, " if batches.nunique() == 1 else ""
    return sentence(f"{images}{'; '.join(gains)}")


def _where_time_goes(stored: Stored) -> list[str]:
    """What the exchange takes of SparkNet's step, of each network."""
    told: list[str] = []
    for cell, rows in with_most_workers(cells(stored.records, SPEEDUP)):
        found = _exchanging(stored, cell, rows) if cell["strategy"] == PAPER_STYLE else None
        if found is not None:
            share = f"{measure_of(found, '%')} of a step of {network_name(cell['use_case'])}"
            told.append(share if told else f"exchanging, scheduling and waiting included, takes SparkNet {share}")
    return [sentence(listed(told))] if told else []


def _open(stored: Stored, table: pd.DataFrame) -> list[str]:
    """What of the title these records leave open."""
    thin = table[table["low"].isna()]
    names = [
        f"{network_name(row['use_case'])} by {way_name(row['strategy'])}, {counted(int(row['workers']), 'worker')} "
        f"({row['speedup']:.3g} times)"
        for row in thin.to_dict("records")
    ]
    sizes = data_table(stored.records)
    if sizes.empty or sizes["times_smallest_low"].isna().all():
        names.append("more data")
    return [sentence(f"too few rounds yet for {'; '.join(names)}")] if names else []


FINDINGS: Mapping[str, Finding] = {
    "speedup": speedup,
    "parts": parts,
    "data": data,
    "start": start,
    "resources": resources,
}

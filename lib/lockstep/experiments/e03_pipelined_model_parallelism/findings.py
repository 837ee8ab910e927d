"""What each figure of notebook 03 shows, in a sentence or two computed from its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.figures.predictions import cell_name
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.sentences import (
    Finding,
    counted,
    estimate_in,
    finding,
    interval_text,
    listed,
    measure_of,
    noise_unknown,
    predicted_steps,
    resources_used,
    sentence,
    times,
    way_name,
)
from lockstep.analysis.statistics import is_difference
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import sessions_in, trace_table
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e03_pipelined_model_parallelism.answer import room, speedup
from lockstep.experiments.e03_pipelined_model_parallelism.drawings import PASSES
from lockstep.experiments.e03_pipelined_model_parallelism.forecasts import partitions_of, predictions_of
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import (
    rank_memory_table,
    shown_cells,
    table_cells,
)
from lockstep.experiments.e03_pipelined_model_parallelism.verdicts import PIPELINED
from lockstep.predict.layer_costs import WITHIN
from lockstep.predict.pipeline_speedups import NAIVE, pipeline_speedup_table
from lockstep.records import CONTENDED


@finding
def schedules(stored: Stored) -> str:
    """The slowest and the fastest schedule over naive model parallelism, how many differ from it, and how long ranks
    wait."""
    table = pipeline_speedup_table(stored.records, "schedules", NAIVE)
    own = table[table["variant"] == "a"] if len(table) else table
    rows = own[own["strategy"].isin(PIPELINED) & own["speedup"].notna()] if len(own) else own
    if rows.empty:
        raise NotNow("", "no schedule was measured beside naive model parallelism")
    ends = [rows.loc[place].to_dict() for place in (rows["speedup"].idxmin(), rows["speedup"].idxmax())]
    reach = " to ".join(
        f"{row['speedup']:.3g} times with {_named(row)} {interval_text(estimate_in(row, 'speedup'))}"
        f"{sessions_in(row, 'speedup')}"
        for row in ends
    )
    noise = aa_noise(stored.records)
    gains = [(_named(row), estimate_in(row, "speedup")) for row in rows.to_dict("records")]
    differ = [(name, gain.value > 1) for name, gain in gains if is_difference(gain, noise)]
    fast, slow = ([name for name, faster in differ if faster == side] for side in (True, False))
    told = [
        sentence(f"relative to naive model parallelism, speeds reach from {reach}"),
        f"Of {len(gains)} settings, {shown_to_be(fast)} faster than naive, and {shown_to_be(slow)} slower.",
    ]
    disturbed = int(rows["reason"].astype(str).str.contains(CONTENDED).sum())
    if disturbed:
        told.append(f"Other programs used the machine in rounds of {disturbed} of them.")
    return " ".join([*told, *noise_unknown(noise), *_waiting(own, rows)])


def shown_to_be(names: list[str]) -> str:
    """Who, where it is one, else how many."""
    if len(names) == 1:
        return f"{names[0]} is shown to be"
    return f"{len(names) or 'none'} are shown to be"


def _named(row: Mapping[str, Any]) -> str:
    return f"{way_name(row['strategy'])} in {counted(int(row['micro_batches']), 'micro-batch')}"


def _waiting(own: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """The share of naive training in which ranks wait, and the least of any schedule."""
    naive, known = own[own["strategy"] == NAIVE["strategy"]], rows[rows["bubble"].notna()]
    if naive["bubble"].isna().all() or known.empty:
        return []
    least = known.loc[known["bubble"].idxmin()].to_dict()
    waits = [
        measure_of(estimate_in(row, "bubble", "bubble_low", "bubble_high").times(100), "%")
        for row in (naive.iloc[0].to_dict(), least)
    ]
    return [sentence(f"ranks wait for {waits[0]} of a naive step, and for {waits[1]} with {_named(least)}, the least")]


@finding
def diagram(stored: Stored) -> str:
    """The share of the drawn steps in which ranks compute."""
    shown = shown_cells(stored.table("actions"))
    if shown.empty:
        raise NotNow("", "no actions of a pipeline are stored")
    told = []
    for cell, own in table_cells(shown):
        whole = own["rank"].nunique() * float((own["start_seconds"] + own["seconds"]).max())
        busy = own.loc[own["action"].isin(PASSES), "seconds"].sum() / whole
        told.append(f"{100 * busy:.0f} % with {way_name(str(cell['strategy']))}")
    return sentence(f"in the one step drawn of each schedule, the ranks compute for this share of it: {listed(told)}")


@finding
def predicted(stored: Stored) -> str:
    """How many steps their stages' times predict, and the worst prediction."""
    table = predictions_of(stored)
    return predicted_steps(table, [cell_name(row) for row in table.to_dict("records")], WITHIN)


@finding
def memory(stored: Stored) -> str:
    """Peaks over what was computed, how uneven the ranks are, and how much larger a model fits."""
    table = rank_memory_table(stored.table("stages"))
    known = table[table["ratio"].notna()] if len(table) else table
    if known.empty:
        raise NotNow("", "no peak memory of a rank was counted")
    worst = known.loc[known["ratio"].idxmax()].to_dict()
    over = int((known["ratio"] > 1).sum())
    peaks = (
        f"at their peak, {over} of {len(known)} ranks hold more than parameters and activations in flight, at most "
        f"{times(estimate_in(worst, 'ratio'), 'as much')}, for {cell_name(worst)}, rank {worst['rank']}; counting what "
        f"a backward pass takes for a moment, too, the most is {known['of_all'].max():.3g} times"
    )
    two = known.loc[known["pipeline_ranks"] == 2, "share"]
    uneven = [sentence(f"of two ranks, one holds up to {100 * two.max():.0f} % of the parameters")] if len(two) else []
    return " ".join([sentence(peaks), *uneven, *room(stored)])


@finding
def partition(stored: Stored) -> str:
    """How even each rule's cut is by the times of layers, and how long its steps took."""
    table = partitions_of(stored)
    ran = table[table["step_seconds"].notna()] if len(table) else table
    if ran.empty:
        raise NotNow("", "no partition was measured")
    told, kept = [], ran["activations"] == "kept"
    even = ran[kept & ran["slowest_over_best"].notna()].to_dict("records")
    if even:
        cuts = listed(f"{row['slowest_over_best']:.3g} with {_rule(row)}" for row in even)
        told.append(f"By layers timed one by one, the slowest stage over that of the best of all cuts is {cuts}.")
    others = ran[~(kept & (ran["partition"] == "balanced")) & ran["ratio"].notna()].to_dict("records")
    steps = [
        f"{times(estimate_in(row, 'ratio'), 'as long')}{sessions_in(row, 'ratio')} with {_rule(row)}" for row in others
    ]
    if not steps:
        return " ".join([*told, "No step was measured beside that of the balanced cut."])
    return " ".join([*told, sentence(f"compared with the balanced cut, a step takes {listed(steps)}")])


def _rule(row: Mapping[str, Any]) -> str:
    if row["activations"] == "recomputed":
        return "activations recomputed"
    return "a balanced cut" if row["partition"] == "balanced" else str(row["partition"]).replace("_", " ")


@finding
def resources(stored: Stored) -> str:
    """CPU, memory and threads of the ranks of the traced pipelines."""
    traced = stored.table("resources")
    return resources_used(trace_table(traced[traced["experiment"] == "speedup"]) if len(traced) else traced)


FINDINGS: Mapping[str, Finding] = {
    "speedup": speedup,
    "schedules": schedules,
    "diagram": diagram,
    "predicted": predicted,
    "memory": memory,
    "partition": partition,
    "resources": resources,
}

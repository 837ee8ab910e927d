"""Which cells of a grid are compared, and what a results folder already knows about each comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lockstep.analysis.cells import CELL, SAME_RUN
from lockstep.analysis.statistics import BASELINE
from lockstep.engine.job import LEARNING, Job
from lockstep.engine.training.scores import DIVERGED
from lockstep.measure.planning import Comparison, Progress, log_ratio
from lockstep.records import CONTENDED, RunFolder, read_records, read_traced_table

SEEDS = 20
"""With how many seeds a cell is trained that learns, where seconds are enough for one."""


def pairs_of(
    jobs: Sequence[Job], more: Iterable[tuple[Job, Job]] = (), headlines: Iterable[Job] = ()
) -> list[Comparison]:
    """Every cell beside the sequential one of its experiment (with the same use case, device, precision, environment
    and input), and the pairs of `more`; a cell that is in neither is measured alone, and one that learns by itself,
    seed after seed.

    A comparison is a headline if its first cell is one of `headlines`. Raises ValueError for a cell of `more` or of
    `headlines` that is not in the grid.
    """
    places = {job: place for place, job in enumerate(jobs)}
    wanted = {place_of(job, places) for job in headlines}
    pairs = [(place_of(above, places), place_of(under, places)) for above, under in more]
    bases = {_run_of(job): place for place, job in enumerate(jobs) if _fits(job, BASELINE)}
    for place, job in enumerate(jobs):
        base = bases.get(_run_of(job))
        if (
            job.experiment not in LEARNING
            and base is not None
            and base != place
            and not {(place, base), (base, place)} & {*pairs}
        ):
            pairs.append((place, base))
    paired = {place for pair in pairs for place in pair}
    alone = [
        Comparison((place,), place in wanted, SEEDS if job.experiment in LEARNING else 0)
        for place, job in enumerate(jobs)
        if place not in paired
    ]
    return [*(Comparison(pair, pair[0] in wanted) for pair in pairs), *alone]


def place_of(job: Job, places: Mapping[Job, int]) -> int:
    if job not in places:
        raise ValueError(f"the grid has no cell {job.experiment} {job.label}, which a comparison names")
    return places[job]


def _run_of(job: Job) -> tuple[Any, ...]:
    return tuple(getattr(job, name) for name in SAME_RUN)


def _fits(job: Job, conditions: Mapping[str, Any]) -> bool:
    return all(getattr(job, name) == value for name, value in conditions.items())


def states_of(comparisons: Sequence[Comparison], jobs: Sequence[Job], run: RunFolder) -> list[Progress]:
    """Each comparison with what is stored of it: the rounds of this session that nobody disturbed, and their time."""
    states = [Progress(comparison) for comparison in comparisons]
    if not run.rounds_done:
        return states
    records = read_records(run.path)
    # What is learnt does not depend on the machine, so its seeds go on from session to session.
    learns = records["experiment"].isin(LEARNING)
    done = (records["status"] == "ok") | (learns & records["reason"].str.startswith(DIVERGED))
    records = records[done & (learns | (records["session"] == run.number))]
    cell_of = _places(records, jobs)
    resources = read_traced_table(run.path, "resources")
    traced = set() if resources is None else set(resources["round"])
    by_cells = {(frozenset(state.comparison.cells), state.comparison.trace): state for state in states}
    for number, rows in records.assign(cell=cell_of).groupby("round"):
        state = by_cells.get((frozenset(rows["cell"]), number in traced))
        if state is None:
            continue
        state.seconds.append(float(rows["measuring_seconds"].sum()))
        learnt = rows["experiment"].isin(LEARNING).all()
        if learnt or not rows["reason"].str.contains(CONTENDED).any():
            ordered = rows.set_index("cell").loc[list(state.comparison.cells)]
            state.logs.append(log_ratio(ordered.to_dict("records")))
    return states


def _places(records: pd.DataFrame, jobs: Sequence[Job]) -> list[int]:
    """For each row the place of its cell in the grid; -1 for one that this grid does not have."""
    known = {tuple(getattr(job, name) for name in CELL): place for place, job in enumerate(jobs)}
    return [known.get(tuple(row), -1) for row in records[CELL].itertuples(index=False, name=None)]

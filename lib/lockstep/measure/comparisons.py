"""Which cells of a grid are compared, and what a results folder already knows about each comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lockstep.analysis.cells import SAME_RUN
from lockstep.analysis.statistics import BASELINE
from lockstep.engine.job import Job
from lockstep.engine.training.scores import DIVERGED
from lockstep.measure.history import History
from lockstep.measure.planning import Comparison, Progress, log_ratio
from lockstep.records import TRACE, repeated_by_seed
from lockstep.records.reading import contended

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
            not job.repeated_by_seed
            and base is not None
            and base != place
            and not {(place, base), (base, place)} & {*pairs}
        ):
            pairs.append((place, base))
    paired = {place for pair in pairs for place in pair}
    alone = [
        Comparison((place,), place in wanted, SEEDS if job.repeated_by_seed else 0)
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


def states_of(comparisons: Sequence[Comparison], history: History) -> list[Progress]:
    """Each comparison with what is stored of it: the rounds that nobody disturbed, and their time. A ratio of two
    cells, or a trace, counts on whichever machine it was measured, as it does in the answers; the absolute speed of a
    cell that stands alone on this one only. Other software measures anew.

    A round counts for every comparison whose cells it holds, be it a pair's own or one of the whole grid.
    """
    states = [
        Progress(comparison, learns=history.learns(comparison.cells[0]), again=history.same(comparison.cells))
        for comparison in comparisons
    ]
    rows = history.rows
    learns = repeated_by_seed(rows)
    done = (rows["status"] == "ok") | (learns & rows["reason"].str.startswith(DIVERGED))
    for _, found in rows[done].groupby("round"):
        whose = found["cell"].tolist()
        there, trace = set(whose), (found["source"] == TRACE).all()
        session = found["session"].iloc[0]
        # What is learnt does not depend on the machine, so its seeds go on from session to session.
        learnt_or_here = repeated_by_seed(found).all() or session in history.sessions
        for state in states:
            own = state.comparison
            counts = learnt_or_here or ((trace or len(own.cells) > 1) and session in history.same_software)
            if counts and own.trace == trace and there.issuperset(own.cells):
                _count(state, found.iloc[[whose.index(place) for place in own.cells]], found)
    for state in states:
        if state.comparison.rounds and (seeds := history.seeds_learnt(state.comparison.cells[0])):
            # A seed counts once, however often it was learnt.
            state.logs, state.sessions = state.logs[:seeds], state.sessions[:seeds]
    return states


def _count(state: Progress, own: pd.DataFrame, whole: pd.DataFrame) -> None:
    """Add a stored round: `own` are its rows of the comparison, in the order of its cells, `whole` all of its rows."""
    # In a round of the whole grid each cell was visited once.
    visits = 1.0 if len(own) == len(whole) else len(state.comparison.visits) / len(own)
    state.seconds.append(visits * float(own["measuring_seconds"].sum()))
    if repeated_by_seed(own).all() or not contended(whole).any():
        state.logs.append(log_ratio(own.to_dict("records")))
        state.sessions.append(int(own["session"].iloc[0]))

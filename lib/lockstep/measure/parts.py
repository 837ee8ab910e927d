"""A part of a grid that is measured by itself, and what is compared in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lockstep.analysis.anytime import MIN_ROUNDS
from lockstep.engine.job import Job, JobError
from lockstep.measure.planning import Compare, Comparison


def chosen_cells(jobs: Sequence[Job], only: Collection[str]) -> list[Job]:
    """The cells whose experiment, use case, strategy and device are among the names given of that kind, the first that
    has a name; a kind without one does not matter. Raises JobError for names that no cell has, or none together."""
    left, found, there = {*map(str, only)}, list(jobs), []
    for kind in ("experiment", "use_case", "strategy", "device"):
        names = {str(getattr(job, kind)) for job in jobs}
        there.append(f"{kind}: {', '.join(sorted(names))}")
        asked, left = names & left, left - names
        found = [job for job in found if not asked or getattr(job, kind) in asked]
    if left or (only and not found):
        lacking = " with ".join(map(repr, sorted(left or map(str, only))))
        raise JobError(f"only={list(only)}: the grid has no cell of {lacking}; there are {'; '.join(there)}")
    return found


def comparisons_of(jobs: Sequence[Job], only: Collection[str], compare: Compare) -> list[Comparison]:
    """The grid's comparisons between chosen cells, by their places among these; alone a cell whose rival is not one."""
    if not only:
        return list(compare(jobs))
    places = {job: place for place, job in enumerate(chosen_cells(jobs, only))}
    pairs = [(each, tuple(places[jobs[at]] for at in each.cells if jobs[at] in places)) for each in compare(jobs)]
    found = [replace(each, cells=own) for each, own in pairs if own and (each.once or len(own) == len(each.cells))]
    alone = {*places.values()}.difference(*(each.cells for each in found))
    return [*found, *(Comparison((place,), rounds=MIN_ROUNDS) for place in sorted(alone))]

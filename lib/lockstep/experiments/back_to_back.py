"""Which cells of a grid stand back to back, where a notebook names them by experiment and strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lockstep.engine.job import Job
from lockstep.measure.comparisons import SEEDS
from lockstep.measure.planning import Comparison

Pair = tuple[str, str, str]
"""Experiment, one strategy (empty: every other) and the one beside it."""

ALONE = "sequential"
_SAME = ("experiment", "use_case", "device", "precision", "message_bytes")
_SAME_WHERE = ("workers", "link_bits_per_second", "global_batch_size", "images")


def back_to_back(
    jobs: Sequence[Job], pairs: Iterable[Pair], growing: Mapping[str, str], is_headline: Callable[[Job], bool],
    seeds: int = SEEDS,
) -> list[Comparison]:  # fmt: skip
    """The cells of `pairs` beside each other, on equal workers and batches unless the other one is sequential; those
    of experiments in `growing` (experiment -> what grows) beside the least of their strategy; both halves of each A/A
    pair; and what is left alone, cells that learn or are simulated with so many seeds."""
    found = dict.fromkeys([*_named(jobs, pairs), *_growing(jobs, growing), *_again(jobs)])
    paired = {place for pair in found for place in pair}
    alone = [
        Comparison((place,), rounds=seeds if job.repeated_by_seed else 0)
        for place, job in enumerate(jobs)
        if place not in paired
    ]
    return [*(Comparison(pair, headline=is_headline(jobs[pair[0]])) for pair in found), *alone]


def _named(jobs: Sequence[Job], pairs: Iterable[Pair]) -> Iterable[tuple[int, int]]:
    for experiment, above, under in pairs:
        for place, job in enumerate(jobs):
            fits = job.experiment == experiment and job.strategy != under and above in ("", job.strategy)
            if fits and job.variant == "a" and (other := _like(jobs, job, under)) is not None:
                yield place, other


def _like(jobs: Sequence[Job], job: Job, strategy: str) -> int | None:
    """The place of the first cell of `strategy` that is like `job` but for how it trains."""
    same = _SAME if strategy == ALONE else _SAME + _SAME_WHERE
    for place, other in enumerate(jobs):
        if other.strategy == strategy and all(getattr(other, name) == getattr(job, name) for name in same):
            return place
    return None


def _growing(jobs: Sequence[Job], growing: Mapping[str, str]) -> Iterable[tuple[int, int]]:
    for place, job in enumerate(jobs):
        if grows := growing.get(job.experiment):
            same = [other for other in jobs if _of_one_kind(other, job)]
            least = min(same, key=lambda other: getattr(other, grows))
            if least != job:
                yield place, jobs.index(least)


def _of_one_kind(one: Job, other: Job) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("experiment", "use_case", "strategy"))


def _again(jobs: Sequence[Job]) -> Iterable[tuple[int, int]]:
    for place, job in enumerate(jobs):
        if job.variant == "b":
            yield place, jobs.index(job.with_(variant="a"))

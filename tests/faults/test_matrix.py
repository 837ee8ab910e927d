"""Any rank that fails, however it ends and wherever the others wait: all end in time, and the message names it.

What a failure does depends on three things: who has started the ranks, how the rank ends, and where the others wait for
it. Bugs come from two of them together, so every pair is tried, and not every triple: each launcher with each way to
end, each launcher with each place to wait, and each place with each kind of end that can be told apart from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from failing import KINDS, REASONS, SEEN, WAITING, failure_of

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers", "no_files")]

Case = tuple[str, str, str]  # launcher, how it ends, where the others wait
LAUNCHERS = ("threads", "processes", "mpiexec", "engines", "host_threads")
SEVERAL = ("threads", "host_threads")  # ranks in one process, which ends with all of them


def possible() -> list[Case]:
    """SystemExit is tried where Python's own frames are above it, and not in the midst of torch's backward pass."""
    return [
        (launcher, how, name)
        for launcher in LAUNCHERS
        for how in REASONS
        for name, waiting in WAITING.items()
        if launcher in waiting.launchers and not (how == "exit" and waiting.case is not None)
    ]


def pairs(case: Case) -> set[tuple[str, str]]:
    launcher, how, waiting = case
    return {(launcher, how), (launcher, waiting), (waiting, KINDS[how])}


def all_pairs(cases: Iterable[Case]) -> list[Case]:
    """Few of `cases` with all the pairs that any of them has: always the first one with the most new pairs."""
    cases = list(cases)
    missing = set().union(*map(pairs, cases))
    chosen: list[Case] = []
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))  # of equals the first
        chosen.append(best)
        missing -= pairs(best)
    return chosen


CASES = sorted(all_pairs(possible()))


@pytest.mark.parametrize(("launcher", "how", "waiting"), CASES, ids=["-".join(case) for case in CASES])
def test_all_end_in_time_and_the_rank_that_failed_is_named(launcher: str, how: str, waiting: str) -> None:
    place = WAITING[waiting]
    failure = failure_of(launcher, how, place)
    assert REASONS[how] in str(failure)
    assert "misbehave" in failure.traceback or how not in SEEN
    if launcher in SEVERAL and KINDS[how] != "raises":  # of a process one knows who was in it, and where
        assert failure.rank == 0
        assert f"rank 1: step {3 if place.call else 0}, phase {place.phase}" in failure.where
    else:
        assert failure.rank == 1
        assert failure.where.endswith(f"phase {place.phase}")
    if how == "raise":
        assert "a tyre burst" in failure.traceback


def test_every_pair_is_tried() -> None:
    tried = set(CASES)
    for launcher, how in itertools.product(LAUNCHERS, REASONS):
        assert any(case[:2] == (launcher, how) for case in tried), (launcher, how)
    for name, waiting in WAITING.items():
        for launcher in waiting.launchers:
            assert any((case[0], case[2]) == (launcher, name) for case in tried), (launcher, name)
        for kind in set(KINDS.values()):
            assert any(case[2] == name and KINDS[case[1]] == kind for case in tried), (name, kind)
    assert tried <= set(possible())


def test_the_pairs_are_few() -> None:
    """Else the whole product would do."""
    assert len(CASES) < len(possible()) / 3

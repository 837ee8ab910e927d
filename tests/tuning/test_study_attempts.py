"""Attempts at a trial: which trial they belong to, and which of them nobody trains any more."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.tuning.attempts import _is_dead, _start_of, latest, numbers_of, this_owner

LONG_AGO = datetime.now() - timedelta(days=365)


def attempt(number: int, first: int | None = None) -> Any:
    return SimpleNamespace(number=number, system_attrs={} if first is None else {"failed_trial": first})


def test_a_trial_keeps_its_number_whatever_is_tried_again() -> None:
    """Attempts 1, 3 and 4 are of trial 1."""
    trials = [attempt(0), attempt(1), attempt(2), attempt(3, 1), attempt(4, 1), attempt(5)]
    assert numbers_of(trials) == {0: 0, 1: 1, 2: 2, 3: 1, 4: 1, 5: 3}
    assert {number: each.number for number, each in latest(trials).items()} == {0: 0, 1: 4, 2: 2, 3: 5}


def running(owner: list[Any] | None) -> Any:
    attributes = {} if owner is None else {"owner": [*owner, 0]}
    return SimpleNamespace(_trial_id=7, user_attrs=attributes, datetime_start=LONG_AGO)


def test_a_clock_that_jumps_takes_no_trial_from_a_living_controller() -> None:
    """All heartbeats look stale after a jump. Of this host the system is asked instead, by pid and start in ticks."""
    host, parent = this_owner()[0], os.getppid()
    alive = running([host, parent, _start_of(parent)])
    assert not _is_dead(alive, {7}, one_host=True)
    assert not _is_dead(alive, {7}, one_host=False)


@pytest.mark.parametrize(
    ("owner", "stale", "one_host", "dead"),
    [
        ([this_owner()[0], os.getppid(), "12"], set(), True, True),  # another process has that number now
        (this_owner(), set(), True, True),  # ours, and none of our engines has it
        (None, set(), True, True),  # killed before it could say whose it is
        (None, set(), False, True),
        (["another-host", 1, "1"], set(), False, False),
        (["another-host", 1, "1"], {7}, False, True),
    ],
)
def test_attempts_that_nobody_trains(owner: list[Any] | None, stale: set[int], one_host: bool, dead: bool) -> None:
    assert _is_dead(running(owner), stale, one_host=one_host) == dead

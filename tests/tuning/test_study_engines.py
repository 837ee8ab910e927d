"""Studies on real engines and ranks of MPI; trials that several workers train."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.tuning import slots
from lockstep.tuning.study import run_study
from studies import plan_of, rates, site_of, untimed, work_here

pytestmark = pytest.mark.serial


def test_an_engine_that_is_killed_between_two_trials(
    tmp_path: Path, no_leftovers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines, of which one is killed as its first trial has ended: the study goes on, and all trials end."""
    killed: list[int] = []
    plan = plan_of(settings=rates(0.01, 0.02, 0.03, 0.04), launcher="engines", engines=2, epochs=1)
    took, lock = slots.Slot._start, threading.Lock()

    def start(self: Any) -> None:
        with lock:
            if self.number == 0 and self._team.workers and not killed:
                killed.append(self._team.workers[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)
        took(self)

    monkeypatch.setattr(slots.Slot, "_start", start)
    found = run_study(plan, tmp_path / "study.db", site_of())
    assert killed
    assert found.trials["state"].tolist() == ["complete"] * 4
    assert found.trials["retries"].sum() <= 1


def test_a_trial_of_two_workers_reaches_what_one_reaches(
    tmp_path: Path, no_leftovers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data parallel, as ranks of MPI; the pruner is asked on the first one, and all of them stop."""
    plan = plan_of(settings=rates(0.01), epochs=2)
    two = run_study(plan.lasting(launcher="mpiexec", workers_per_trial=2), tmp_path / "two.db", site_of())
    work_here(monkeypatch)
    one = run_study(plan, tmp_path / "one.db", site_of())
    assert two.trials["state"].tolist() == ["complete"]
    for got, expected in zip(untimed(two)["curves"], untimed(one)["curves"], strict=True):
        assert got["validation_loss"] == pytest.approx(expected["validation_loss"], abs=1e-5)

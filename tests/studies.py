"""Small studies, and engines that run in the test's own process: most tests ask nothing of real ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

import tiny
from lockstep.engine.data.sources import Arrays, Ids, Images
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch.failures import WorkerFailed
from lockstep.engine.training.loop import Site
from lockstep.tuning import slots, study
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.space import Space

RATE = {"learning_rate": {"kind": "float", "range": [0.001, 0.1], "log": True}}
DIVERGES = 1e30
"""A learning rate with which the loss is NaN in the second step."""
WIDE = {"learning_rate": {"kind": "float", "range": [0.001, 2 * DIVERGES], "log": True}}
TIMES = ["seconds", "storage_seconds"]


class EngineDied(BaseException):
    """Raised in a trial: its engine is gone, and the test's process is not."""


class HereTeam:
    """A team of one rank, which is the thread that calls."""

    def __init__(self) -> None:
        self.workers: list[Any] = []

    def start(self) -> None:
        """Nothing has to start."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        try:
            return [function(ThreadGroup.of(1)[0], *arguments)]
        except EngineDied as error:
            raise WorkerFailed(0, "step 3, compute", "was killed by SIGKILL", "") from error
        except Exception as error:
            raise WorkerFailed(0, "step 3, compute", f"raised {type(error).__name__}: {error}", "") from error


class Here:
    """The launcher of such teams."""

    @classmethod
    def of(cls, job: Job) -> Here:
        return cls()

    def __enter__(self) -> HereTeam:
        return HereTeam()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing has to end."""


def work_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on engines are threads of this process, and a study looks at its storage more often."""
    monkeypatch.setattr(slots, "LAUNCHERS", {"processes": Here})
    monkeypatch.setattr(slots, "pin", lambda cores: None)  # these threads compute for other tests too
    monkeypatch.setattr(study, "LOOK_SECONDS", 0.02)


def plan_of(**changes: Any) -> StudyPlan:
    """Four trials of three epochs, one at a time: five steps each on 24 images."""
    values: dict[str, Any] = {
        "name": "rates", "space": Space.of(WIDE if "settings" in changes else RATE, None),
        "base": Job(use_case="own", strategy="own", global_batch_size=8), "trials": 4,
        "epochs": 3, "engines": 1, "launcher": "processes", "sampler": "tpe",
    }  # fmt: skip
    return StudyPlan(**(values | changes))


def rates(*values: float) -> tuple[dict[str, float], ...]:
    """A fixed list of settings."""
    return tuple({"learning_rate": value} for value in values)


def site_of(train: Arrays | None = None) -> Site:
    """A network with dropout that can't be opened for a test: it has no test images."""
    return Site(use_case=tiny.case(train=train or tiny.arrays(), test=None))


class KillsOnce(Arrays):
    """Kills the process that loads images of `epoch` in a training with `seed`, once: the file `done` remembers."""

    def __init__(self, done: Path, epoch: int, seed: int) -> None:
        whole = tiny.arrays()
        super().__init__(whole.images, whole.labels)
        self.done, self.epoch, self.seed = done, epoch, seed

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        if (epoch, seed) == (self.epoch, self.seed) and not self.done.exists():
            self.done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(ids, epoch, seed, out)


def untimed(found: study.Finished) -> dict[str, list[Any]]:
    """All that two runs of one study must have alike."""
    frames = {"trials": found.trials, "curves": found.curves, "decisions": found.decisions}
    plain = {name: frame.drop(columns=[each for each in TIMES if each in frame]) for name, frame in frames.items()}
    return {name: frame.replace({np.nan: None}).to_dict("records") for name, frame in plain.items()}


def left_behind(folder: Path) -> list[str]:
    """What stands in a study's folder besides its storage."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".db")

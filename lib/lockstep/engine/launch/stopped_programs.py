"""Programs that hold a team together, such as a JVM or a controller: which of them was stopped?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psutil

LOOK_SECONDS = 5.0  # between looks at all processes below a supervisor, which take some milliseconds each
_PROGRAMS = {
    "ipyparallel.controller": "ipcontroller",
    "deploy.master.Master": "Spark's master",
    "deploy.worker.Worker": "Spark's worker",
    "deploy.SparkSubmit": "Spark's driver",
    "CoarseGrainedExecutorBackend": "an executor of Spark",
}
"""What runs inside Python or Java, by the end of a word of its command."""


class StoppedPrograms:
    """Looks now and then for a stopped process among those that hold a team together, such as a JVM or a controller.

    Stopped ranks are found sooner, by name, because they report their progress (`failure_detector.ProgressMonitor`).
    """

    def __init__(self) -> None:
        self._next_look = 0.0
        self._stopped: frozenset[int] = frozenset()

    def look(self, roots: Iterable[int]) -> str:
        """The name of one below `roots` that was stopped at this look and at the last; empty if there is none, or if
        the last look was a moment ago."""
        if time.monotonic() < self._next_look:
            return ""
        found: dict[int, psutil.Process] = {}
        for root in roots:
            with contextlib.suppress(psutil.Error):
                parent = psutil.Process(root)
                found |= {each.pid: each for each in (parent, *parent.children(recursive=True)) if is_stopped(each.pid)}
        again = [_program(each) for pid, each in found.items() if pid in self._stopped]
        self._next_look, self._stopped = time.monotonic() + LOOK_SECONDS, frozenset(found)
        return again[0] if again else ""


def _program(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        told = (name for end, name in _PROGRAMS.items() if any(word.endswith(end) for word in words))
        return next(told, process.name())
    return "a process"


def is_stopped(pid: int) -> bool:
    """Whether this process exists and is stopped."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False

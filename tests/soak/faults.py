"""What is done to a process, and when: drawn by the seed of the soak and the number of the run."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil

KINDS = ("kill", "stop", "continue", "terminate", "interrupt")
"""SIGKILL; SIGSTOP; SIGSTOP and, a moment later, SIGCONT; SIGTERM; SIGINT."""
_PAUSE_SECONDS = (0.2, 3.0)
_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGSTOP,
    "terminate": signal.SIGTERM,
    "interrupt": signal.SIGINT,
}
Process = TypeVar("Process")


@dataclass(frozen=True)
class Fault:
    """One fault: so many seconds after the run's start, or after the last fault was dealt with."""

    seconds: float
    kind: str
    role: float  # 0 to below 1: which of the roles that are there by then
    process: float  # the same for the processes of that role
    pause_seconds: float

    def victim(self, there: Mapping[str, Sequence[Process]]) -> tuple[str, Process]:
        """A role and one of its processes: every role is as likely as any other."""
        role = list(there)[int(self.role * len(there))]
        return role, there[role][int(self.process * len(there[role]))]

    def hit(self, process: psutil.Process) -> None:
        """Do it. psutil.NoSuchProcess: it had ended by itself."""
        process.send_signal(_SIGNALS[self.kind])
        if self.kind == "continue":
            time.sleep(self.pause_seconds)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def draw(seed: int, run: int, count: int, length_seconds: float) -> list[Fault]:
    """The faults of a run: the first at any time of its undisturbed length, each other one some time after the last."""
    dice = random.Random(f"{seed}/{run}")
    found = []
    for number in range(count):
        seconds = dice.uniform(0.0, length_seconds if number == 0 else 0.3 * length_seconds)
        kind = dice.choice(KINDS)
        found.append(Fault(seconds, kind, dice.random(), dice.random(), dice.uniform(*_PAUSE_SECONDS)))
    return found


def notebook_of(seed: int, run: int, weights: Mapping[str, float]) -> str:
    """Which notebook a run is of."""
    dice = random.Random(f"{seed}/{run}/notebook")
    return dice.choices(list(weights), list(weights.values()))[0]

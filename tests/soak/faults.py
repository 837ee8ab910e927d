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

from soak.roles import ENDS_THE_RUN

KINDS = ("kill", "stop", "continue", "terminate", "interrupt")
"""SIGKILL; SIGSTOP; SIGSTOP and, a moment later, SIGCONT; SIGTERM; SIGINT."""
SHARE_OF_ENDING = 0.08
"""Of the faults before the last one of a run: one that goes on can be hit again, one that ends must start anew."""
_FIRST_SECONDS, _SOON_SECONDS = 60.0, 4.0
_PAUSE_SECONDS = (0.2, 2.0)
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
    role: float  # 0 to below 1: which of the roles that are there by then, one that ends the run seldom
    process: float  # the same for the processes of that role
    pause_seconds: float
    last: bool  # it is to end the run: it hits the runner or the kernel

    def victim(self, there: Mapping[str, Sequence[Process]]) -> tuple[str, Process]:
        """A role and one of its processes. Roles are equally likely, but for those with which a run ends."""
        ending = [role for role in there if role in ENDS_THE_RUN]
        others = [role for role in there if role not in ENDS_THE_RUN]
        share = SHARE_OF_ENDING if others and ending and not self.last else float(bool(ending))
        if self.role < share:
            role = ending[int(self.role / share * len(ending))]
        else:
            role = others[int((self.role - share) / (1 - share) * len(others))]
        return role, there[role][int(self.process * len(there[role]))]

    def hit(self, process: psutil.Process) -> None:
        """Do it. psutil.NoSuchProcess: it had ended by itself."""
        process.send_signal(_SIGNALS[self.kind])
        if self.kind == "continue":
            time.sleep(self.pause_seconds)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def draw(seed: int, run: int, most: int) -> list[Fault]:
    """The faults of a run, at `most` so many: the first within its first minute, rather early; the others soon after
    each; the last is to end it."""
    dice = random.Random(f"{seed}/{run}")
    count = dice.randint(1, most)
    found = []
    for number in range(count):
        last = number == count - 1
        seconds = _FIRST_SECONDS * dice.random() ** 2 if number == 0 else dice.uniform(0.0, _SOON_SECONDS)
        kind = dice.choice([kind for kind in KINDS if kind != "continue" or not last])
        found.append(Fault(seconds, kind, dice.random(), dice.random(), dice.uniform(*_PAUSE_SECONDS), last))
    return found


def notebook_of(seed: int, run: int, weights: Mapping[str, float]) -> str:
    """Which notebook a run is of."""
    dice = random.Random(f"{seed}/{run}/notebook")
    return dice.choices(list(weights), list(weights.values()))[0]

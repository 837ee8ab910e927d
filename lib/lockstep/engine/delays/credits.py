"""Burst credits that run out: cloud instances that are fast for a while, and then as fast as they pay for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lockstep.engine.delays.base import Floats
from lockstep.engine.delays.draws import STREAM_START, row_keys, uniforms
from lockstep.engine.delays.switches import Switch
from lockstep.engine.options import JobError, option

MINUTES = 60.0
"""Credits that a virtual CPU spends in an hour at full speed: a credit is a minute of one."""


class Credits(Switch):
    """A worker runs at full speed until its CPU credits have run out, then at the share that it earns for ever.

    *DPro-SM* trains on such an instance (ml.t2.2xlarge). AWS's standard mode: "Key concepts and definitions for
    burstable performance instances" in the Amazon EC2 User Guide. The defaults are a t2.micro: 1 vCPU, 6 credits per
    hour and so a baseline of 6 / 60 = 10 %, and at its start 30 credits. A worker that computes without a break
    spends 60 × vcpus - earned credits per hour, so the balance b lasts b / (60 × vcpus - earned) hours; afterwards work
    takes 60 × vcpus / earned times as long. Each worker begins with `balance` × (1 - spread × u) credits, u uniform:
    instances do not start together, and with equal balances all would slow down at once.

    Delays are functions of (worker, clock): what a worker could save while it waits for others is not credited.
    `seconds` is an hour of the instance in seconds of the run's clock; a smaller one plays the story faster.
    """

    name = "credits"

    @dataclass(frozen=True)
    class Options:
        earned: float = option(6.0, "CPU credits that an instance earns in an hour", above=0)
        vcpus: int = option(1, "virtual CPUs of an instance, all at work", least=1)
        balance: float = option(30.0, "CPU credits at the start, at most", least=0)
        spread: float = option(1.0, "share of the balance that is drawn for each worker", least=0, most=1)
        seconds: float = option(3600.0, "an hour of the instance, in seconds of the run's clock", above=0)

        def __post_init__(self) -> None:
            if self.earned >= MINUTES * self.vcpus:
                raise JobError(
                    f"earned={self.earned:g} credits never run out with vcpus={self.vcpus}; give less than "
                    f"{MINUTES * self.vcpus:g}"
                )

    options_kind = Options
    readings = ("credits",)

    @property
    def _spent(self) -> float:
        """Credits in a second of the run's clock."""
        spent: float = (MINUTES * self.options.vcpus - self.options.earned) / self.options.seconds
        return spent

    def system(self, worker: int, clock: float) -> dict[str, float]:
        """The balance, as the cloud shows it."""
        return {"credits": max(self._one[worker][0] - clock, 0.0) * self._spent}

    def systems(self, clocks: ArrayLike) -> dict[str, Floats]:
        """The balances of all workers."""
        return {"credits": np.maximum(self._at - np.asarray(clocks, np.float64), 0.0) * self._spent}

    def _switches(self) -> tuple[Floats, Floats]:
        options = self.options
        full = MINUTES * options.vcpus
        drawn = uniforms(row_keys(self.seed, STREAM_START, self.workers), 0)
        balance = options.balance * (1.0 - options.spread * drawn)
        return balance / (full - options.earned) * options.seconds, np.full(self.workers, full / options.earned)

    def left(self, clock: float) -> Floats:
        """[workers]: the credits that each worker still has at `clock`, in seconds of the run's clock."""
        spent = (MINUTES * self.options.vcpus - self.options.earned) / self.options.seconds  # in a second
        return np.maximum(self._at - clock, 0.0) * spent

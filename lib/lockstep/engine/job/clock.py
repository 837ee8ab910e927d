"""How long a job trains, and which repetition of its cell it is."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.job.execution import Execution
from lockstep.engine.options import JobError, choice, option

LEARNING: tuple[str, ...] = ("learning", "candidates", "ablation", "selected", "paired", "heads")
LEARNING += ("pool", "rungs", "finalists", "chosen", "scores")
"""Experiments whose cells train until they have learnt, each round with another seed: none is of time alone."""


@dataclass(frozen=True)
class Clock(Execution):
    """Steps, and the round."""

    steps: int = option(1, "measured optimiser steps", least=1)
    warmup_steps: int = option(1, "steps that are discarded before them", least=0)
    seed: int = option(0, "of initial parameters, batches, augmentation and dropout", least=0)
    round: int = option(0, "repetition of the whole grid", least=0)
    variant: str = choice("a", "b", help="the two halves of an A/A pair")
    selected: bool = option(False, "a finalist: quoted if validation data choose its setting")

    @property
    def repeated_by_seed(self) -> bool:
        """Is each round another seed? What is learnt, or simulated, does not depend on the machine or the day."""
        return self.experiment in LEARNING or self.simulated

    def check(self) -> None:
        super().check()
        if not self.learns:
            if self.experiment in LEARNING:
                raise JobError(
                    f"experiment={self.experiment!r} trains until something is learnt; give epochs or updates"
                )
            return
        given = f"epochs={self.epochs}" if self.epochs else f"updates={self.updates}"
        self.refuse_changed(
            "steps", "warmup_steps", why=f"does nothing with {given}, which says how long to train; leave it out"
        )
        if self.input != "jpeg":
            raise JobError(f"input={self.input!r} with {given} would keep every batch of every epoch; give 'jpeg'")

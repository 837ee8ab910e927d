"""Losses and parameters that are no finite numbers: training stops, and says in which step and on which rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

ON_NAN = ("stop", "warn")
_FIX = (
    "lower the learning rate, or look for images or labels that are broken (lockstep.train(on_nan='warn') goes on all "
    "the same)"
)


class NotFiniteError(ArithmeticError):
    """The loss, or a parameter, is NaN or infinite; the message names the step, the rank and the fix."""


@dataclass
class FiniteWatch:
    """Looks at what `rank` has computed. Raises NotFiniteError, or counts where `on_nan` is "warn"."""

    rank: int
    on_nan: str = "stop"
    first: str = ""
    steps: int = 0

    def see_loss(self, loss: float, step: int, rank: int | None = None) -> None:
        """`loss` of `step`; of `rank` if that is another one."""
        if not math.isfinite(loss):
            where = f"in step {step} on rank {self.rank if rank is None else rank}"
            if self.on_nan == "stop":
                raise NotFiniteError(f"the loss is {loss} {where}: {_FIX}")
            self.first = self.first or f"the loss is {loss} {where}"
            self.steps += 1

    def see_parameters(self, parameters: Tensor, step: int) -> None:
        """`parameters` after `step`, before a checkpoint of them replaces the last one."""
        if self.on_nan == "stop" and not bool(parameters.isfinite().all()):
            raise NotFiniteError(
                f"a parameter is NaN or infinite after step {step} on rank {self.rank}: {_FIX}; the last checkpoint "
                "stays as it is"
            )

    @property
    def cautions(self) -> list[str]:
        """What a reader should know of a training that went on."""
        return [f"{self.first}, the first of {self.steps} such losses there"] if self.steps else []

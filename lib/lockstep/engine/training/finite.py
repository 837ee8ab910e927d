"""Losses and parameters that are no finite numbers: training stops, and says in which step and on which rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lockstep.engine.data.loader import Batch

ON_NAN = ("stop", "warn")
_FIX = (
    "lower the learning rate, or look for images or labels that are broken (lockstep.train(on_nan='warn') goes on all "
    "the same)"
)
_AT_ONCE = 4_000_000  # numbers that are looked at together: a second array of all of them may not fit


class NotFiniteError(ArithmeticError):
    """The loss, or a parameter, is NaN or infinite; the message names the step, the rank and the fix."""


def not_finite_at(values: NDArray[Any]) -> tuple[int, ...] | None:
    """The place of the first NaN or infinite number in `values` [n, ...]; None if all are finite, or whole numbers."""
    if not np.issubdtype(values.dtype, np.floating):
        return None
    rows = max(1, _AT_ONCE // max(1, math.prod(values.shape[1:])))
    for start in range(0, len(values), rows):
        finite = np.isfinite(values[start : start + rows])
        if not finite.all():
            row, *inner = (int(index) for index in np.argwhere(~finite)[0])
            return (start + row, *inner)
    return None


def told_not_finite(values: NDArray[Any], what: str, ids: NDArray[np.int64] | None = None) -> str:
    """What is wrong with the first number that is not finite ("images: sample 17 is nan at [0, 3, 4]"); empty if all
    are. `ids`: of the samples, where they are not the first ones."""
    found = not_finite_at(values)
    if found is None:
        return ""
    sample = found[0] if ids is None else int(ids[found[0]])
    where = f" at {list(found[1:])}" if found[1:] else ""
    return f"{what}: sample {sample} is {values[found]}{where}"


@dataclass
class FiniteWatch:
    """Looks at what `rank` has computed. Raises NotFiniteError, or counts where `on_nan` is "warn"."""

    rank: int
    on_nan: str = "stop"
    first: str = ""
    steps: int = 0

    def see_loss(self, loss: float, step: int, rank: int | None = None, batch: Batch | None = None) -> None:
        """`loss` of `step`; of `rank` if that is another one. `batch`: what it was computed of, if it is at hand."""
        if not math.isfinite(loss):
            where = f"in step {step} on rank {self.rank if rank is None else rank}"
            if batch is not None and (broken := told_not_finite(batch.images, "images", batch.sample_ids)):
                where += f" ({broken})"
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

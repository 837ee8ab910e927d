"""How a learning curve is shown to the `SequenceModel`, so that one network forecasts any horizon.

After each epoch t of a curve that will end after epoch T it sees six numbers, and forecasts the score after T:

    the score,  the best so far,  its change since the epoch before,  ln t,  ln(T - t + 1),  t / T

With 32 units these are 5 198 parameters. Any epoch may be named as the end, so a prefix of a curve is forecast to any
horizon, and all prefixes of many curves in one pass.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lockstep.engine.forecasts.sequence_model import SequenceModel

Array = NDArray[np.float64]
INPUTS = 6
LEAST_SCALE = 1e-4
"""Laplace's b is taken to be at least this, so that no forecast is certain."""


def curve_inputs(curves: Array, ends: NDArray[np.int64]) -> Array:
    """[curves, epochs, INPUTS] of curves [curves, epochs] that end after the epochs `ends` [curves]."""
    epoch = np.arange(1, curves.shape[1] + 1, dtype=np.float64)
    end = ends[:, None].astype(np.float64)
    left = np.log(np.maximum(end - epoch, 0) + 1)
    change = np.diff(curves, axis=1, prepend=curves[:, :1])
    best = np.maximum.accumulate(curves, axis=1)
    share = np.minimum(epoch / end, 1)
    return np.stack([curves, best, change, np.broadcast_to(np.log(epoch), left.shape), left, share], axis=-1)


def forecast_ends(model: SequenceModel, curves: Array, end: int) -> tuple[Array, Array]:
    """(median, Laplace's b) of the score after epoch `end`, [curves, epochs] each, from every prefix."""
    mean, spread = model.every_step(curve_inputs(curves, np.full(len(curves), end)))
    return np.clip(mean[..., 0], 0, 1), np.maximum(spread[..., 0] / math.sqrt(2), LEAST_SCALE)


def scale_by(model: SequenceModel, curves: Sequence[Array]) -> None:
    """Inputs are shifted and scaled by their mean and standard deviation over these curves from then on."""
    inputs = np.concatenate([curve_inputs(curve[None], np.array([len(curve)]))[0] for curve in curves])
    model.shift, spread = inputs.mean(axis=0), inputs.std(axis=0)
    model.scale = np.where(spread > 1e-6, spread, 1.0)


def learn_ends(model: SequenceModel, curves: Sequence[Array], fade: float) -> float:
    """One update: every prefix of every curve forecasts its last score; the loss. `fade`: of the learning rate."""
    ends = np.array([len(curve) for curve in curves])
    values = np.zeros((len(curves), ends.max()))
    for row, curve in enumerate(curves):
        values[row, : len(curve)] = curve
    known = np.arange(1, ends.max() + 1) < ends[:, None]
    last = np.broadcast_to(np.array([curve[-1] for curve in curves])[:, None], known.shape)
    return model.train(curve_inputs(values, ends), last[..., None], known[..., None], fade)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on one core meanwhile: so small a network is slower on two, and other trials need them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

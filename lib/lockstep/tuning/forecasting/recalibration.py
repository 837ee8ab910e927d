"""What a study's finished curves say about forecasts: they are offset, and their spread is too small or too large.

A miss is counted in the raw forecast's own scale, u = (end - forecast) / b: so one number serves curves that are sure
and curves that are not. Misses differ early and late, so each epoch has its own offset and spread. Neighboring epochs
help: of finished curve c, u_c(t) is the mean over all its epochs e, weighted by exp(-ln(e / t)² / (2 WIDTH²)).
Then, after epoch t, with n finished curves:

    offset(t) = the median of u_1(t) .. u_n(t) and of `offset_prior` misses of the prior
    factor(t) = (spread_prior + sum over c of d_c(t)) / (spread_prior + n)
    forecast  = raw forecast + offset(t) · b,    b' = factor(t) · b

where d_c is |u_c(e) - offset(e)|, smoothed alike, and the prior's misses are quantiles of Laplace's distribution with
median 0 and mean size 1. Median, and mean distance to it, are the maximum likelihood of that distribution; both are
shrunk as if the prior were so many finished curves. Without any of the study's the forecast is the raw one, with one or
two nearly so, and one that collapsed moves it no further than one that ended a little low. A curve counts once however
many epochs it has, since its misses are alike.

On synthetic studies of 16 epochs, with 4 finished curves, mean absolute errors are 15 % below the raw forecast's after
epoch 1 and 2 % above after epoch 8. With a median that is multiplied by n / (n + 4) instead, 11 % below and 4 % above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
WIDTH = 0.35
"""Of the weights, in logarithms: beside epoch 2, epoch 1 counts 0.14; beside epoch 20, epoch 15 counts 0.7."""


@dataclass(frozen=True)
class Recalibration:
    """How many finished curves the prior counts for, a whole number; 0: none, infinity: the study's change nothing."""

    offset_prior: float = 6
    spread_prior: float = 6

    def tables(self, units: Array, epochs: NDArray[np.int64] | None = None) -> tuple[Array, Array]:
        """(offset, factor of b), [epochs] each, after each of `epochs`; without them after 1, 2 ... all of `units`.

        units: of the finished curves, [curves, epochs], NaN where there is none (`in_units`).
        """
        every = np.arange(1, units.shape[1] + 1)
        asked = every if epochs is None else epochs
        units = units[np.isfinite(units).any(axis=1)]
        known, filled = np.isfinite(units), np.nan_to_num(units)
        to_asked = _weights(asked, every)
        offset = self._offset(filled, known, to_asked)
        if math.isinf(self.spread_prior) or not len(units):
            return offset, np.ones(len(asked))
        middle = offset if epochs is None else self._offset(filled, known, _weights(every, every))
        total = _smoothed(np.abs(filled - middle), known, to_asked).sum(axis=0)
        return offset, (self.spread_prior + total) / (self.spread_prior + len(units))

    def _offset(self, units: Array, known: NDArray[np.bool_], weights: Array) -> Array:
        if math.isinf(self.offset_prior) or not len(units):
            return np.zeros(len(weights))
        prior = np.repeat(_laplaces(int(self.offset_prior))[:, None], len(weights), axis=1)
        return np.median(np.concatenate([_smoothed(units, known, weights), prior]), axis=0)


def in_units(curves: Array, middle: Array, scale: Array) -> Array:
    """How far finished curves ended from raw forecasts, in b: [curves, epochs]; NaN at the last one, which is known."""
    units = (curves[:, -1:] - middle) / scale
    units[:, -1] = np.nan
    return units


def _laplaces(count: int) -> Array:
    """`count` misses with median 0 and mean size 1, at equal steps of the probability."""
    below = (np.arange(count) + 0.5) / max(count, 1)
    values = np.sign(below - 0.5) * -np.log(1 - np.abs(2 * below - 1))
    return values / np.abs(values).mean() if count > 1 else np.zeros(count)


def _weights(asked: NDArray[np.int64], epochs: NDArray[np.int64]) -> Array:
    """[asked, epochs]"""
    return np.exp(-((np.log(asked[:, None] / epochs) / WIDTH) ** 2) / 2)


def _smoothed(values: Array, known: NDArray[np.bool_], weights: Array) -> Array:
    """[curves, asked]: the weighted mean over each curve's known epochs."""
    return np.where(known, values, 0.0) @ weights.T / (known.astype(np.float64) @ weights.T)

"""The gradient noise scale: how many samples make a gradient whose noise is as large as itself.

McCandlish et al. 2018, "An empirical model of large-batch training", appendix A.1: a mean gradient over b samples has
E|g|^2 = |G|^2 + S / b, with the true gradient G and the trace S of the covariance of single samples. From the mean
over workers of |g|^2 and from that of their sum, which has more samples, follow both, and B = S / |G|^2. A step with b
samples makes b / (b + B) of the progress of a step with all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

DECAY = 0.95
"""Weight of an update relative to the next one."""


class NoiseScale:
    """Averages over updates: of S and |G|^2, whose single estimates are noisy and may be negative, before they are
    divided. `told`: samples, 0 where it is to be measured; then it is taken to be `usual` until it is known."""

    def __init__(self, told: float = 0.0, usual: float = math.inf) -> None:
        self._told, self._usual = told, usual
        self._noise = self._signal = 0.0  # sums of S and |G|^2, discounted
        self._pending: tuple[float, float] | None = None  # 1 / b and |g|^2, means over an update's contributions

    def contributions(self, samples: Sequence[int], square_norms: Sequence[float]) -> None:
        """Of an update that is about to be made."""
        usable = len(samples) > 1 and all(samples) and all(math.isfinite(one) for one in square_norms)
        count = len(samples)
        self._pending = (sum(1 / one for one in samples) / count, sum(square_norms) / count) if usable else None

    def updated(self, samples: int, square_norm: float) -> None:
        """That update had so many samples, and this squared norm."""
        if self._pending is None or not math.isfinite(square_norm) or not samples:
            return
        (inverse, small), self._pending = self._pending, None
        noise = (small - square_norm) / (inverse - 1 / samples)
        self._noise = DECAY * self._noise + noise
        self._signal = DECAY * self._signal + square_norm - noise / samples

    @property
    def samples(self) -> float | None:
        """B; None while unknown, infinite where no gradient stands out of the noise."""
        if not self._noise and not self._signal:
            return None
        return max(self._noise, 0.0) / self._signal if self._signal > 0 else math.inf

    @property
    def assumed(self) -> float:
        """B as told, or as measured so far."""
        noise = self._told or self.samples
        return self._usual if noise is None else noise

    def state(self) -> dict[str, Any]:
        return {"noise": self._noise, "signal": self._signal}

    def load(self, state: dict[str, Any]) -> None:
        self._noise, self._signal, self._pending = float(state["noise"]), float(state["signal"]), None

"""A small problem with real gradients: logistic regression on two classes that overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


JUDGED = 4096
"""Samples over which the loss is taken after each update."""


class Logistic:
    """`samples` points of two normal distributions in `features` dimensions, whose means lie `distance` apart, and an
    L2 penalty of `decay` / 2 |w|^2, so that there is one minimum. The last feature is `condition` times smaller than
    the first one, so that the first gradient does not point to the minimum. Deterministic for a seed."""

    def __init__(
        self, samples: int = 4096, features: int = 32, distance: float = 2.0, decay: float = 1e-3, seed: int = 0,
        condition: float = 1.0,
    ) -> None:  # fmt: skip
        random = np.random.default_rng([seed, samples, features])
        self.samples, self.decay = samples, decay
        labels = random.integers(0, 2, samples) * 2.0 - 1.0
        direction = random.standard_normal(features)
        direction *= distance / 2 / np.linalg.norm(direction)
        self._points = random.standard_normal((samples, features)) + labels[:, None] * direction
        self._points *= np.geomspace(1, 1 / condition, features)
        self._points *= labels[:, None]  # a label of -1 turns the point round: the same products, to the bit
        self.start = np.zeros(features)

    def gradient(self, parameters: Floats, ids: NDArray[np.int64]) -> tuple[Floats, float]:
        """Of the mean loss over these samples, float64 [features], and the loss itself."""
        points = self._points.take(ids, axis=0)
        margins = points @ parameters
        return self._slope(points, margins, parameters), self._penalised(margins, parameters)

    def loss(self, parameters: Floats) -> float:
        """Over the first `JUDGED` samples."""
        return self._penalised(self._points[:JUDGED] @ parameters, parameters)

    def slope(self, parameters: Floats, ids: NDArray[np.int64] | None = None) -> Floats:
        """The gradient alone, float64 [features]; without samples that of `loss`."""
        points = self._points[:JUDGED] if ids is None else self._points.take(ids, axis=0)
        return self._slope(points, points @ parameters, parameters)

    def _slope(self, points: Floats, margins: Floats, parameters: Floats) -> Floats:
        factors = -1.0 / (1 + np.exp(margins)) / len(margins)
        return points.T @ factors + self.decay * parameters

    def _penalised(self, margins: Floats, parameters: Floats) -> float:
        # A sum and a division: what `mean` does, without all that it looks at first.
        mean = float(np.add.reduce(np.logaddexp(0, -margins)) / len(margins))
        return mean + self.decay / 2 * float(parameters @ parameters)

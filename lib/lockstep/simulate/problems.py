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
        self._labels = random.integers(0, 2, samples) * 2.0 - 1.0
        direction = random.standard_normal(features)
        direction *= distance / 2 / np.linalg.norm(direction)
        self._points = random.standard_normal((samples, features)) + self._labels[:, None] * direction
        self._points *= np.geomspace(1, 1 / condition, features)
        self.start = np.zeros(features)

    def gradient(self, parameters: Floats, ids: NDArray[np.int64]) -> tuple[Floats, float]:
        """Of the mean loss over these samples, float64 [features], and the loss itself."""
        points, labels = self._points[ids], self._labels[ids]
        margins = labels * (points @ parameters)
        factors = -labels / (1 + np.exp(margins)) / len(ids)
        return points.T @ factors + self.decay * parameters, self._penalised(margins, parameters)

    def loss(self, parameters: Floats) -> float:
        """Over the first `JUDGED` samples."""
        margins = self._labels[:JUDGED] * (self._points[:JUDGED] @ parameters)
        return self._penalised(margins, parameters)

    def slope(self, parameters: Floats) -> Floats:
        """The gradient of `loss`, float64 [features]."""
        return self.gradient(parameters, np.arange(min(JUDGED, self.samples)))[0]

    def _penalised(self, margins: Floats, parameters: Floats) -> float:
        # A sum and a division: what `mean` does, without all that it looks at first.
        mean = float(np.add.reduce(np.logaddexp(0, -margins)) / len(margins))
        return mean + self.decay / 2 * float(parameters @ parameters)

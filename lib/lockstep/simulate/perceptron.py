"""A small network with real gradients on real images: one hidden layer, in numpy, for thousands of simulated updates.

    50 x 50 pixels -> means of 2 x 2 -> standardised -> hidden units (tanh) -> one output (binary cross-entropy)

Some 10 000 parameters, so that a gradient of 8 images takes a tenth of a millisecond: training in virtual time costs
gradients alone, and what is compared are policies, not networks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

JUDGED = 512
"""Training images over which the loss is taken after each update."""
POOLED = 2
"""Pixels, in each direction, that one input is the mean of."""


def inputs_of(images: ArrayLike) -> Floats:
    """Images [count, channels, height, width] as inputs [count, features]: means of 2 x 2 pixels, each image with mean
    0 and standard deviation 1."""
    pixels = np.asarray(images, np.float64).mean(axis=1)
    count, height, width = pixels.shape
    pooled = pixels[:, : height - height % POOLED, : width - width % POOLED]
    pooled = pooled.reshape(count, height // POOLED, POOLED, width // POOLED, POOLED).mean(axis=(2, 4))
    flat = pooled.reshape(count, -1)
    deviation = np.maximum(flat.std(axis=1, keepdims=True), 1e-3)
    return (flat - flat.mean(axis=1, keepdims=True)) / deviation


class Perceptron:
    """`inputs` [count, features], `labels` [count] of 0 and 1. Parameters are one vector, drawn with `seed`.

    Raises ValueError for labels of more than two classes.
    """

    def __init__(self, inputs: Floats, labels: ArrayLike, hidden: int = 16, seed: int = 0) -> None:
        self._labels = np.asarray(labels, np.float64)
        if not np.isin(self._labels, (0, 1)).all():
            raise ValueError(f"labels {sorted(set(self._labels.tolist()))[:5]} are not of two classes, 0 and 1")
        self._inputs = inputs
        self.samples, features = inputs.shape
        self._shape = (features, hidden)
        random = np.random.default_rng([seed, features, hidden])
        first = random.standard_normal(features * hidden) / np.sqrt(features)
        last = random.standard_normal(hidden) / np.sqrt(hidden)
        self.start = np.concatenate([first, np.zeros(hidden), last, np.zeros(1)])
        judged = np.random.default_rng([seed, self.samples]).permutation(self.samples)[:JUDGED]
        self._judged = inputs[judged], self._labels[judged]  # taken out once, not at every look

    def gradient(self, parameters: Floats, ids: NDArray[np.int64]) -> tuple[Floats, float]:
        """Of the mean loss over these samples, float64 [parameters], and the loss itself."""
        inputs, labels = self._inputs.take(ids, axis=0), self._labels.take(ids)
        units, outputs = self._forward(parameters, inputs)
        errors = (1 / (1 + np.exp(-outputs)) - labels) / len(labels)
        found = np.empty_like(parameters)
        first, bias, last, _ = self._parts(found)  # views: each part is computed where it belongs
        backward = errors[:, None] * self._parts(parameters)[2] * (1 - units * units)
        np.matmul(inputs.T, backward, out=first)
        np.add.reduce(backward, axis=0, out=bias)
        np.matmul(errors, units, out=last)
        found[-1] = np.add.reduce(errors)
        return found, _cross_entropy(outputs, labels)

    def loss(self, parameters: Floats) -> float:
        """Over `JUDGED` training samples."""
        return self._loss_of(parameters, *self._judged)

    def loss_over(self, parameters: Floats, ids: NDArray[np.int64]) -> float:
        """Over these samples."""
        return self._loss_of(parameters, self._inputs[ids], self._labels[ids])

    def _loss_of(self, parameters: Floats, inputs: Floats, labels: Floats) -> float:
        _, outputs = self._forward(parameters, inputs)
        return _cross_entropy(outputs, labels)

    def accuracy(self, parameters: Floats, inputs: Floats, labels: ArrayLike) -> float:
        """Share of other samples that are told right, 0 to 1."""
        _, outputs = self._forward(parameters, inputs)
        return float(((outputs > 0) == (np.asarray(labels) > 0)).mean())

    def _parts(self, parameters: Floats) -> tuple[Floats, Floats, Floats, float]:
        features, hidden = self._shape
        inner = features * hidden
        first, bias = parameters[:inner].reshape(features, hidden), parameters[inner : inner + hidden]
        return first, bias, parameters[inner + hidden : -1], float(parameters[-1])

    def _forward(self, parameters: Floats, inputs: Floats) -> tuple[Floats, Floats]:
        first, bias, last, offset = self._parts(parameters)
        units = np.tanh(inputs @ first + bias)
        return units, units @ last + offset


def _cross_entropy(outputs: Floats, labels: Floats) -> float:
    # A sum and a division: what `mean` does, without all that it looks at first.
    return float(np.add.reduce(np.logaddexp(0, outputs) - labels * outputs) / len(labels))

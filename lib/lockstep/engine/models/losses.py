"""Losses of each sample, and the scores of the classes, from the output of a network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, labels) -> one value per sample."""


def cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Loss of each sample: output [samples, classes], labels int64 [samples] -> float32 [samples]."""
    return nn.functional.cross_entropy(output.float(), labels, reduction="none")


def binary_cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Loss of each sample for two classes and one logit, that of the second: [samples, 1] -> float32 [samples]."""
    logits = output.float().squeeze(1)
    return nn.functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")


def scores_of(output: Tensor) -> Tensor:
    """A score for every class, float32 [samples, classes]. One logit is that of the second class; the first gets 0."""
    output = output.float()
    return torch.cat([torch.zeros_like(output), output], dim=1) if output.shape[1:] == (1,) else output

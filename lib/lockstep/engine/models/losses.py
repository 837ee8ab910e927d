"""Losses of each sample, and the scores of the classes, from the output of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""(output, labels) -> one value per sample."""


def cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Loss of each sample: output [samples, classes], labels int64 [samples] -> float32 [samples]."""
    return nn.functional.cross_entropy(output.float(), labels, reduction="none")


def binary_cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """Loss of each sample for two classes and one logit, that of the second: [samples, 1] or [samples] -> float32
    [samples]."""
    logits = output.float().reshape(labels.shape)
    return nn.functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")


def logits_in(output: Any) -> Tensor:
    """The logits in what a model returns: a tensor, the `logits` of a dict or an object (as HuggingFace's models
    return), or the first of a tuple. Raises TypeError for anything else."""
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits")
    elif isinstance(output, tuple | list) and not hasattr(output, "logits"):
        found = output[0] if output else None
    elif not isinstance(output, Tensor):
        found = getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        names = f" of {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
        raise TypeError(f"no logits in a {type(output).__name__}{names}")
    return found


def scores_of(output: Tensor) -> Tensor:
    """A score for every class, float32 [samples, classes]. One logit is that of the second class; the first gets 0."""
    output = output.float()
    output = output.unsqueeze(1) if output.dim() == 1 else output
    return torch.cat([torch.zeros_like(output), output], dim=1) if output.shape[1:] == (1,) else output

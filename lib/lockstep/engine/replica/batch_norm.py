"""Synchronized batch normalization: statistics of the whole batch of a step, which several workers share.

    worker 0   its images -> count, sums --+                          +--> normalizes its own images
                                           +-- sum over all workers --+
    worker 1   its images -> count, sums --+                          +--> normalizes its own images

The backward pass goes the same way back: the gradients of the sums are summed over all workers, too. So each layer
costs two exchanges of 2 x channels + 1 numbers, and parameters and running statistics are those of one worker.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.engine.groups import Group


class SharedStatistics:
    """The exchange of all layers of one replica. `group`: the workers, under tags of its own, so that a sum of
    gradients that is under way can't take its messages."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.seconds = 0.0  # of exchanging, waiting included
        self.bytes_sent = 0.0

    def normalize(self, model: nn.Module) -> int:
        """Let the layers of batch normalization in `model` use these statistics; returns how many there are. Raises
        ValueError for a class of them whose forward pass does more."""
        layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
        for layer in layers:
            if type(layer).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
                raise ValueError(
                    f"sync_batch_norm=True, and {type(layer).__name__} has a forward pass of its own, which would be "
                    "left out; use nn.BatchNorm1d, 2d or 3d, or give sync_batch_norm=False"
                )
            # The module itself stays: its parameters, its buffers and its name are known in many places.
            layer.forward = functools.partial(_normalized, self, layer)  # type: ignore[method-assign]
        return len(layers)

    def summed(self, own: Tensor) -> Tensor:
        """A new tensor: the sum of all workers' `own`, the same bits on all of them."""
        start = time.perf_counter()
        whole = own.detach().cpu().clone()
        if self.group.size > 1:
            self.group.allreduce(whole)
            self.bytes_sent += 2 * (self.group.size - 1) / self.group.size * whole.nbytes  # a ring's
        self.seconds += time.perf_counter() - start
        return whole.to(own.device)


class _Sum(torch.autograd.Function):
    """A sum over workers, whose gradient is the sum of all workers' gradients."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, shared: SharedStatistics) -> Tensor:
        ctx.shared = shared
        return shared.summed(own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.shared.summed(gradient), None


def _normalized(shared: SharedStatistics, layer: _BatchNorm, x: Tensor) -> Tensor:
    """The forward pass of `layer` for this worker's share `x` [images, channels, ...], which may hold no image."""
    if not layer.training:
        return type(layer).forward(layer, x)
    layer._check_input_dim(x)
    values, channels = x.float(), x.shape[1]
    whole = _Sum.apply(_sums(values), shared)
    count = int(whole[0])
    if count < 2:
        raise ValueError(
            f"batch normalization needs at least two values per channel, and this step's whole batch has {count} "
            f"(input {list(x.shape)}); give a global batch whose last step holds more images"
        )
    mean, square = (whole[1:] / count).view(2, channels)
    variance = (square - mean * mean).clamp(min=0.0)
    if layer.track_running_stats:
        _note(layer, mean.detach(), variance.detach() * count / (count - 1))
    along = [1, channels, *[1] * (x.dim() - 2)]
    scale = torch.rsqrt(variance + layer.eps).float().view(along)
    normal = (values - mean.float().view(along)) * scale
    if layer.affine:
        normal = normal * layer.weight.view(along) + layer.bias.view(along)
    return normal.to(x.dtype)


def _sums(values: Tensor) -> Tensor:
    """[count, sums of the channels, sums of their squares], float64, of `values` [images, channels, ...].

    Built from mean and variance, because the difference of two large sums of float32 numbers has lost the variance.
    """
    over = [0, *range(2, values.dim())]
    count = values.numel() // values.shape[1]
    if count == 0:
        nothing = values.sum(over).double()
        return torch.cat([nothing.new_zeros(1), nothing, nothing])
    variance, mean = torch.var_mean(values, over, correction=0)
    mean = mean.double()
    square = variance.double() + mean * mean
    return torch.cat([mean.new_full([1], count), count * mean, count * square])


def _note(layer: _BatchNorm, mean: Tensor, unbiased: Tensor) -> None:
    """Take this step's statistics into the running ones, as torch does."""
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    share = 1.0 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    for running, now in ((layer.running_mean, mean), (layer.running_var, unbiased)):
        assert running is not None
        running.lerp_(now.to(running.dtype), share)

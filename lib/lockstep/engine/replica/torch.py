"""A torch model as a `Replica`."""

from __future__ import annotations

import functools
import itertools
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.loader import Batch
from lockstep.engine.data.sources import are_classes
from lockstep.engine.groups import Group
from lockstep.engine.models.losses import Loss, cross_entropy, logits_in, scores_of
from lockstep.engine.replica.base import Ready, Replica, flat_views
from lockstep.engine.replica.batch_norm import SharedStatistics
from lockstep.engine.replica.dropout import SampleKeys, key_dropout
from lockstep.engine.replica.layout import TensorLayout, averaged_buffers, put_others, trained_layers

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def formatted(images: Tensor, memory_format: torch.memory_format) -> Tensor:
    """`images` [n, channels, height, width] in this format; for one channel only the strides tell the formats apart."""
    images = images.contiguous(memory_format=memory_format)
    if memory_format is torch.channels_last and images.shape[1] == 1:
        _, _, height, width = images.shape
        images = images.as_strided(images.shape, (height * width, 1, width, 1))
    return images


class TorchReplica(Replica):
    """`model` on `device`, with `loss(output, labels)` giving one value per sample. `layout`: of the whole model, if
    `model` is a part of it. Raises ValueError for a model without parameters to train, or with such in another type
    than float32.

    Until `rebind(gradients=...)`, gradients stay where autograd leaves them (`leaves[i].grad`): a single
    worker pays nothing for being distributable. Afterwards a hook moves each gradient into the flat buffer
    as soon as autograd has it. Binding `.grad` to views beforehand would make autograd add into cold memory.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss = cross_entropy,
        *,
        device: str = "cpu",
        precision: str = "float32",
        seed: int = 0,
        memory_format: str = "contiguous",
        layout: TensorLayout | None = None,
    ) -> None:
        self.layout = TensorLayout.of(model) if layout is None else layout
        self.layout.check_trainable()
        self.keys = SampleKeys(seed)
        self.model = key_dropout(model, self.keys).to(device).train()
        self.loss, self.device, self.precision = loss, torch.device(device), precision
        self.memory_format = MEMORY_FORMATS[memory_format]
        self._layers = trained_layers(self.model)
        self._trained = [leaf for layer in self._layers for leaf in layer]
        self.leaves = self._trained
        if not self._trained:
            raise ValueError(f"{type(model).__name__} has no parameter to train; give a model with requires_grad=True")
        bounds = np.cumsum([0] + [sum(leaf.numel() for leaf in layer) for layer in self._layers])
        self.layer_slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(bounds)]
        self._gradients: Tensor | None = None
        self._pending: list[int] = []
        self._fresh = [True] * len(self._trained)
        self._on_ready: Ready | None = None
        self._statistics: SharedStatistics | None = None
        self.rebind(parameters=torch.empty(int(bounds[-1]), device=self.device))
        self._flatten_buffers()

    @property
    def gradients(self) -> Tensor:
        if self._gradients is not None:
            return self._gradients
        return torch.cat([torch.zeros_like(p).view(-1) if p.grad is None else p.grad.view(-1) for p in self._trained])

    def rebind(self, parameters: Tensor | None = None, gradients: Tensor | None = None, *, adopt: bool = False) -> None:
        if parameters is not None:
            for leaf, view in zip(self._trained, flat_views(parameters, self._trained), strict=True):
                if not adopt:
                    view.copy_(leaf.data)
                leaf.data = view
            self.parameters = parameters
        if gradients is not None:
            if self._gradients is None:
                self._install_hooks()
            self._gradients, self._views = gradients, flat_views(gradients, self._trained)

    def normalize_together(self, group: Group) -> None:
        """Synchronized batch normalization over the workers of `group`, which from now on take part in each other's
        passes, with an empty share, too. Raises ValueError for a model without batch normalization."""
        self._statistics = SharedStatistics(group)
        if not self._statistics.normalize(self.model):
            raise ValueError(
                f"sync_batch_norm=True, and {type(self.model).__name__} has no layer of batch normalization; give "
                "sync_batch_norm=False"
            )

    def clear_gradients(self) -> None:
        self._fresh = [True] * len(self._trained)
        for leaf in self._trained:
            leaf.grad = None

    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        self._on_ready = on_ready
        self._pending = [len(layer) for layer in self._layers]
        loss = 0.0
        if len(batch.labels) or not self.skips_empty or self._statistics is not None:
            loss = self._backward(batch, torch.from_numpy(np.asarray(weights, np.float32)).to(self.device))
        if self._gradients is not None:
            self._finish_untouched()
        self._on_ready = None
        return loss

    def _backward(self, batch: Batch, weights: Tensor) -> float:
        start = self._computing()
        total = (self.losses(batch)[1] * weights).sum()
        middle = self._computing()
        total.backward()
        loss = float(total.detach())
        # On a GPU the calls return before the work is done, so the passes can't be timed apart without stopping it.
        split = self.device.type == "cpu"
        self.forward_seconds += middle - start if split else float("nan")
        self.backward_seconds += self._computing() - middle if split else float("nan")
        return loss

    def _computing(self) -> float:
        """A clock that stands still while statistics are exchanged."""
        if self._statistics is not None:
            self.exchange_seconds, self.bytes_sent = self._statistics.seconds, self._statistics.bytes_sent
        return time.perf_counter() - self.exchange_seconds

    def losses(self, batch: Batch) -> tuple[Any, Tensor]:
        """What the model returns in training, and the loss of each sample."""
        self.keys.epoch, self.keys.sample_ids = batch.epoch, batch.sample_ids
        output = self._forward(batch)
        return output, self.loss(output, torch.from_numpy(batch.labels).to(self.device))

    def _forward(self, batch: Batch) -> Any:
        images = formatted(torch.from_numpy(batch.images).to(self.device), self.memory_format)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            return self.model(images)

    def predict(self, batch: Batch) -> Tensor:
        output = logits_in(self.evaluated(batch))
        return scores_of(output) if are_classes(batch.labels) else output.float()

    def evaluated(self, batch: Batch) -> Any:
        """What the model returns in evaluation mode; training goes on as if it had not been asked."""
        self.model.eval()
        try:
            with torch.no_grad():
                return self._forward(batch)
        finally:
            self.model.train()

    def _install_hooks(self) -> None:
        # A hook that refers to the replica would keep it alive forever: the tensor owns the hook in C++, where
        # Python's garbage collector can't see the cycle.
        weak = weakref.ref(self)
        index = 0
        for layer, leaves in enumerate(self._layers):
            for leaf in leaves:
                leaf.register_post_accumulate_grad_hook(functools.partial(_take, weak, index, layer))
                index += 1

    def _take(self, leaf: Tensor, index: int, layer: int) -> None:
        """Move a gradient that autograd has just completed into the flat buffer."""
        assert leaf.grad is not None
        if self._fresh[index]:
            self._views[index].copy_(leaf.grad)
            self._fresh[index] = False
        else:
            self._views[index].add_(leaf.grad)
        leaf.grad = None
        self._done(layer)

    def _done(self, layer: int) -> None:
        self._pending[layer] -= 1
        if self._pending[layer] == 0 and self._on_ready is not None:
            self._on_ready(layer)

    def _finish_untouched(self) -> None:
        """Set the gradient of parameters that this batch did not use to zero."""
        index = 0
        for layer, leaves in enumerate(self._layers):
            for _ in leaves:
                if self._fresh[index]:
                    self._views[index].zero_()
                    self._fresh[index] = False
                index += 1
            if self._pending[layer] > 0:
                self._pending[layer] = 1
                self._done(layer)

    def _flatten_buffers(self) -> None:
        found = averaged_buffers(self.model)
        flat = [buffer.detach().reshape(-1) for buffer, _ in found]
        self.buffers = torch.cat([torch.empty(0, device=self.device), *flat])
        views = flat_views(self.buffers, [buffer for buffer, _ in found])
        self._buffer_views = [(view, places) for view, (_, places) in zip(views, found, strict=True)]
        for view, places in self._buffer_views:
            for module, name in places:
                setattr(module, name, view)
        self.other_buffers = any(True for _ in self.layout.others(self.model, frozen=False))

    def adopt_buffers(self) -> None:
        for view, places in self._buffer_views:
            for module, name in places:
                now = module._buffers.get(name)
                if now is view:
                    continue
                if now is None or now.shape != view.shape:
                    raise ValueError(
                        f"{type(module).__name__} has replaced its buffer {name!r}, float32 {list(view.shape)}, by "
                        f"{None if now is None else list(now.shape)}; keep its shape, so that workers can average it"
                    )
                view.copy_(now.detach())
                setattr(module, name, view)

    def others(self, frozen: bool = True) -> dict[str, Tensor]:
        held = self.layout.others(self.model, frozen)
        return {name: each.detach() for name, _, each in held if each is not None}

    def take_others(self, values: Mapping[str, Tensor]) -> None:
        put_others(self.layout.others(self.model), values)


def _take(replica: weakref.ref[TorchReplica], index: int, layer: int, leaf: Tensor) -> None:
    alive = replica()
    if alive is not None:
        alive._take(leaf, index, layer)


def load_flat(model: nn.Module, parameters: Tensor, buffers: Tensor, others: Mapping[str, Tensor]) -> None:
    """Put a replica's flat parameters and buffers, and its other tensors, into a plain model of the same kind."""
    leaves = [leaf for layer in trained_layers(model) for leaf in layer]
    owned = [buffer for buffer, _ in averaged_buffers(model)]
    with torch.no_grad():
        for leaf, view in zip(leaves, flat_views(parameters, leaves), strict=True):
            leaf.copy_(view)
        for buffer, view in zip(owned, flat_views(buffers, owned), strict=True):
            buffer.copy_(view)
    put_others(TensorLayout.of(model).others(model), others)

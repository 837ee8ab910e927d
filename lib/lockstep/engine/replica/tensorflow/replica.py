"""A Keras model as a `Replica`: TensorFlow computes the loss and the gradients; everything else is as with torch.

    torch: flat parameters, buffers  --DLPack, no copy-->  TensorFlow: one graph, forward and backward
    torch: flat gradients            <--one copy---------  flat gradients, in torch's layout

The flat vectors are those of a `TorchReplica` of the same network, so syncs, checkpoints and starting weights are too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.keyed import STREAM_DROPOUT, keyed_uniform
from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group
from lockstep.engine.job import Job, JobError
from lockstep.engine.models.layers import Network
from lockstep.engine.replica.base import Ready, Replica, flat_views
from lockstep.engine.replica.tensorflow.graph import graph
from lockstep.engine.replica.tensorflow.profiling import operator_seconds
from lockstep.engine.replica.tensorflow.runtime import one_by_one, start_tensorflow
from lockstep.engine.replica.torch import TorchReplica

if TYPE_CHECKING:
    from lockstep.engine.usecases import UseCase

_ALIGNED = 64  # bytes: the alignment of torch's tensors, which numpy's arrays may lack
_BUILDING = threading.Lock()  # torch's generator is one per process


class TensorFlowReplica(Replica):
    """`network` in Keras on the CPU, which starts with the weights of `like`.

    `like` gives the flat layout too, and is not needed afterwards. Its loss is cross-entropy: binary for two classes.
    Raises ValueError if `like` is of another network, and NoTensorFlow.
    """

    def __init__(self, network: Network, like: TorchReplica, seed: int = 0, threads: int = 1) -> None:
        self.network, self.seed = network, seed
        self._tf = start_tensorflow(threads)
        self._graph = graph(network)
        if self._graph.keras.length != like.length or self._graph.keras.running != like.buffers.numel():
            raise ValueError(f"the torch model has {like.length} parameters, {network} {self._graph.keras.length}")
        self.parameters, self.buffers = like.parameters.detach().clone(), like.buffers.detach().clone()
        self.layout, self.layer_slices = like.layout, list(like.layer_slices)
        self._others = {name: each.clone() for name, each in like.others().items()}  # of torch alone; kept for it
        # One leaf for each parameter of torch's model, so that an optimizer's state fits either framework.
        self._like = [torch.empty(piece.shape, device="meta") for piece in self._graph.keras.parameters]
        self.leaves = [nn.Parameter(view) for view in flat_views(self.parameters, self._like)]
        self._gradients: Tensor | None = None  # what a sync provides
        self._own: Tensor | None = None  # what TensorFlow made, as long as no sync provides any
        self._fresh = True
        self.forward_seconds = self.backward_seconds = float("nan")  # one graph does both
        self._executor: Callable[[Any], contextlib.AbstractContextManager[None]] = one_by_one

    @property
    def gradients(self) -> Tensor:
        if self._gradients is not None:
            return self._gradients
        return torch.zeros_like(self.parameters) if self._own is None else self._own

    def rebind(self, parameters: Tensor | None = None, gradients: Tensor | None = None, *, adopt: bool = False) -> None:
        if parameters is not None:
            if not adopt:
                parameters.copy_(self.parameters)
            self.parameters = parameters
            for leaf, view in zip(self.leaves, flat_views(parameters, self._like), strict=True):
                leaf.data = view
        if gradients is not None:
            self._gradients = gradients

    def clear_gradients(self) -> None:
        self._fresh, self._own = True, None
        for leaf in self.leaves:
            leaf.grad = None

    def backward(self, batch: Batch, weights: np.ndarray, on_ready: Ready | None = None) -> float:
        loss = 0.0
        if len(batch):
            loss = self._backward(batch, np.asarray(weights, np.float32))
        elif self._fresh and self._gradients is not None:
            self._gradients.zero_()
            self._fresh = False
        if on_ready is not None:
            for layer in reversed(range(len(self.layer_slices))):  # as torch's backward pass does
                on_ready(layer)
        return loss

    def _backward(self, batch: Batch, weights: np.ndarray) -> float:
        given = (self.parameters, self.buffers, batch.images, batch.labels, weights, *self._masks(batch))
        loss, gradients, buffers = self._run(self._graph.step, given)
        self._add(_taken(gradients))
        if self.buffers.numel():
            self.buffers.copy_(_taken(buffers))
        return float(loss.numpy())

    def _add(self, gradients: Tensor) -> None:
        """Add to the flat buffer or, if no sync provides one, to the gradients that a single worker's optimizer
        reads."""
        into = self._own if self._gradients is None else self._gradients
        if into is None:
            self._own = gradients
            for leaf, view in zip(self.leaves, flat_views(gradients, self._like), strict=True):
                leaf.grad = view
        elif self._fresh:
            into.copy_(gradients)
        else:
            into.add_(gradients)
        self._fresh = False

    def _masks(self, batch: Batch) -> list[np.ndarray]:
        """What each dropout layer keeps, uint8 in torch's layout: the same as `KeyedDropout` draws."""
        found = []
        for number, shape in enumerate(self._graph.keras.masks):
            length, stream = int(np.prod(shape)), STREAM_DROPOUT + number
            draws = np.asarray(keyed_uniform(self.seed, batch.epoch, batch.sample_ids, stream, length))
            found.append((draws >= self.network.dropout).view(np.uint8).reshape(-1, *shape))
        return found

    def predict(self, batch: Batch) -> Tensor:
        given = (self.parameters, self.buffers, batch.images)
        logits = _taken(self._run(self._graph.predict, given))
        # One logit is of the second class against the first.
        return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits

    def others(self, frozen: bool = True) -> dict[str, Tensor]:
        return dict(self._others)

    def take_others(self, values: Mapping[str, Tensor]) -> None:
        self._others.update((name, each.clone()) for name, each in values.items() if name in self._others)

    def _run(self, function: Any, given: Iterable[Any]) -> Any:
        with self._executor(self._tf):
            return function(*map(self._given, given))

    def profiled(self, batch: Batch, weights: np.ndarray) -> list[tuple[str, float]]:
        """(type, seconds) of every operator of a forward and backward pass, which adds to the gradients.

        The pass runs once before, to start the executor that reports operators. With several threads for operators,
        these overlap, and the sum of their seconds is larger than the duration of the pass.
        """
        self._executor = contextlib.nullcontext
        try:
            self.backward(batch, weights)
            return operator_seconds(self._tf, lambda: self.backward(batch, weights))
        finally:
            self._executor = one_by_one

    def _given(self, value: Tensor | np.ndarray) -> Any:
        """`value` as a TensorFlow tensor, on the same memory if possible."""
        tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.detach()
        if tensor.data_ptr() % _ALIGNED:  # TensorFlow would end the process
            tensor = tensor.clone()
        return self._tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))


def _taken(value: Any) -> Tensor:
    """A TensorFlow tensor as torch's, on the same memory."""
    return torch.from_dlpack(value)


def tensorflow_replica(case: UseCase, job: Job, group: Group) -> TensorFlowReplica:
    """The network of `case`, with the weights that `job.seed` gives torch's model of it, the same on every rank.

    Raises JobError for a use case that says its network only as a torch model, and NoTensorFlow.
    """
    network = case.network
    if network is None:
        raise JobError(
            f"framework='tensorflow' with use case {case.name!r}, whose network is a torch model: Keras builds a "
            "lockstep.engine.models.layers.Network; give UseCase.of(Network(...), ...), or framework='torch'"
        )
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        like = TorchReplica(case.model(), case.loss)
    group.enter("start")  # importing TensorFlow may take many seconds on a slow disk, which is no stall
    replica = TensorFlowReplica(network, like, job.seed, job.threads_per_worker)
    group.enter("start")
    return replica

"""The memory that a rank of a pipeline needs: what its stages hold, and the peak within a step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class HeldMemory:
    """Bytes of the distinct memory behind tensors, without that of `module`'s own parameters and buffers.

    Where a tensor is a view of a part of the memory, such as one micro-batch of a batch, only that part counts.
    """

    def __init__(self, module: nn.Module) -> None:
        own = [*module.parameters(), *module.buffers()]
        self._own = {tensor.untyped_storage().data_ptr() for tensor in own}
        self._found: dict[int, int] = {}

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, seen = storage.data_ptr(), min(tensor.numel() * tensor.element_size(), storage.nbytes())
        if address not in self._own:
            self._found[address] = max(seen, self._found.get(address, 0))

    @property
    def bytes(self) -> int:
        return sum(self._found.values())

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """While in this context, add the tensors that autograd saves for the backward pass."""

        def pack(tensor: Tensor) -> Tensor:
            self.add(tensor)
            # Not the tensor itself, which may refer to the graph that holds this hook: a cycle that is never collected.
            return tensor.detach()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield


class PeakTensorMemory:
    """The peak memory of CPU tensors within a step, in bytes above its beginning, as torch's profiler counts it.

    Memory that a kernel allocates itself, without torch's allocator, is not counted.
    """

    def __init__(self) -> None:
        self.most_bytes = math.nan

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            yield
        events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
        alive = self.most_bytes = 0
        for each in sorted(events, key=lambda event: event.start_ns()):
            alive += each.nbytes()
            self.most_bytes = max(self.most_bytes, alive)

"""How much memory a rank of a pipeline needs: what its stages hold, and the most that was alive in a step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

_RESET_PEAK = "5"  # proc(5), /proc/pid/clear_refs


class HeldMemory:
    """Bytes of the distinct memory behind tensors, without that of `module`'s own parameters and buffers.

    Of memory that tensors see a part of, such as one micro-batch of a batch of images, that part counts.
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
        """Add what autograd keeps for the backward pass meanwhile."""

        def pack(tensor: Tensor) -> Tensor:
            self.add(tensor)
            # Not the tensor itself: it may hold the graph that holds this hook, a circle that nobody would collect.
            return tensor.detach()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield


class PeakTensorMemory:
    """The most bytes of CPU tensors that were alive at once above those at the beginning, as torch's profiler saw them.

    Memory that a kernel takes for itself, past torch's allocator, is not seen.
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


def reset_peak_rss() -> None:
    """Let the peak of this process's resident memory begin anew; elsewhere than on Linux nothing."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def peak_rss_bytes() -> float:
    """Since `reset_peak_rss`; nan where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    return math.nan

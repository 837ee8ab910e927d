"""What a process that trains takes of a GPU's memory: counted, with what cannot be counted as a range.

    parameters, gradients, momentum     3 x 4 bytes per parameter
    activations                         what autograd keeps of each image, and the image
    for a moment                        the gradients of a layer's output and of its input, in the backward pass
    besides                             the CUDA context, workspaces of convolutions, the allocator's slack

The first two are the least that torch's own tensors take. What is besides differs with driver and GPU, so it is a
range, and answers are given for both of its ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.predict.networks import Network, network

MEMORIES_GB = (8, 11, 16, 24)
"""Memory of the GPUs that the paper's years had."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXT_BYTES = (0.3e9, 0.9e9)
"""Of one process: the CUDA context with the kernels of cuDNN and cuBLAS, on different GPUs and drivers."""
WORKSPACE_BYTES = (0.0, 0.5e9)
SLACK = (1.0, 1.2)
"""Memory that the allocator holds over memory that tensors take."""
_STATE_BYTES = 12  # per parameter
LOW, HIGH = 0, 1
"""The two ends of what is besides."""


@dataclass(frozen=True)
class Share:
    """What one process holds on one GPU: a network or a half of it."""

    parameters: int
    image_bytes: int
    moment_bytes: int  # of an image, in the backward pass

    @classmethod
    def of(cls, own: Network) -> Share:
        return cls(own.parameters, own.activation_bytes, 2 * own.largest_output_bytes)

    def tensor_bytes(self, batch: float, end: int) -> float:
        """At the low end of the range without what is held for a moment only."""
        moment = self.moment_bytes if end == HIGH else 0
        return _STATE_BYTES * self.parameters + batch * (self.image_bytes + moment)

    def process_bytes(self, batch: float, end: int) -> float:
        return CONTEXT_BYTES[end] + WORKSPACE_BYTES[end] + SLACK[end] * self.tensor_bytes(batch, end)

    def largest_batch(self, memory_gb: float, processes: int, end: int) -> int:
        """The most images per process with which so many processes fit; 0 where none do."""
        each = memory_gb * 1e9 / processes - CONTEXT_BYTES[end] - WORKSPACE_BYTES[end]
        images = each / SLACK[end] - _STATE_BYTES * self.parameters
        return max(0, int(images / (self.tensor_bytes(1, end) - self.tensor_bytes(0, end))))


def whole(use_case: str) -> Share:
    return Share.of(network(use_case))


def processes_that_fit(use_case: str, memory_gb: float, batch: int, end: int) -> int:
    return int(memory_gb * 1e9 / whole(use_case).process_bytes(batch, end))


def overflow_share(use_case: str, end: int, processes: int = 2) -> float:
    """Of all MEMORIES_GB and BATCHES that one process fits, the share in which so many processes do not."""
    fitting = [(memory, batch) for memory in MEMORIES_GB for batch in BATCHES
               if processes_that_fit(use_case, memory, batch, end) >= 1]  # fmt: skip
    over = [1 for memory, batch in fitting if processes_that_fit(use_case, memory, batch, end) < processes]
    return len(over) / len(fitting)


def hybrid_batches(use_case: str, memory_gb: float, replicas: int, end: int) -> tuple[int, int]:
    """The largest global batch that fits two GPUs with half the model each: of one pipeline, and of so many replicas of
    it that share the GPUs."""
    found = []
    for count in (1, replicas):
        each = min(half.largest_batch(memory_gb, count, end) for half in map(Share.of, network(use_case).halves))
        found.append(count * each)
    return found[0], found[1]

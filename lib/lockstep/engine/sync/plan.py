"""The samples of each worker in each step. Global batches depend on seed, epoch and size, never on the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from lockstep.engine.data.sampling import global_batch, share_of, steps_per_epoch
from lockstep.engine.policies import Setting, Work
from lockstep.engine.policies.places import cut_ranges, ids_of, part_of_batch

OptimiserFactory = Callable[[Iterable[Tensor]], Optimizer]


@dataclass(frozen=True)
class Share:
    """A micro-batch of one worker."""

    step: int
    epoch: int
    sample_ids: np.ndarray  # int64 [samples], may be empty
    weights: np.ndarray  # float32 [samples]; over all workers of a step they sum to `scale`
    last: bool = True  # of this worker's micro-batches in this step
    scale: float = 1.0  # the loss is a sum with these weights, divided by it


@dataclass(frozen=True)
class Plan:
    """Which samples a step trains on: a function of (seed, step, global batch), never of the worker count.

    `micro_batch_size` splits a worker's share of a step (0: one micro-batch). `sample_weights`, float64 [samples], are
    relative weights (None: all equal). A step's weights always sum to 1, as in torch's weighted cross-entropy, so that
    all batches count equally, whatever classes they hold. Keras divides the weighted sum by the number of
    samples instead, so that a batch with many rare samples takes a longer step.
    """

    samples: int
    global_batch_size: int
    steps: int
    seed: int = 0
    micro_batch_size: int = 0
    sample_weights: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)

    def lasting(self, steps: int) -> Plan:
        """The same plan for another number of steps."""
        return replace(self, steps=steps)

    def setting(self, workers: int, micro_batch: int = 0, standby: int = 0) -> Setting:
        """What a policy is told of this plan."""
        return Setting(workers, self.samples, self.global_batch_size, micro_batch, standby, self.seed)

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.samples, self.global_batch_size)

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def shares(self, step: int, rank: int, workers: int) -> list[Share]:
        """The micro-batches of `rank` in `step`. An uneven last batch is split as evenly as can be."""
        epoch = self.epoch_of(step)
        ids = global_batch(self.seed, epoch, step % self.steps_per_epoch, self.samples, self.global_batch_size)
        own = share_of(ids, rank, workers)
        size = self.micro_batch_size or max(len(own), 1)
        pieces = [own[i : i + size] for i in range(0, max(len(own), 1), size)]
        weigh = self._weigher(ids)
        return [Share(step, epoch, piece, weigh(piece), last=i == len(pieces) - 1) for i, piece in enumerate(pieces)]

    def micro_batches(self, work: Work, version: int, workers: int) -> list[Share]:
        """The micro-batches of what a policy gives a worker; of coded work, its parts of the batch that `workers` cut.

        The weights make the gradient the mean over the work's samples, or the sum of coefficient x mean of each part.
        """
        if work.parts:
            cut = [(part_of_batch(work.ranges, work.samples, part, workers), factor) for part, factor in work.parts]
        else:
            size = work.micro_batch
            starts = range(0, work.samples, max(size, 1))
            cut = [(cut_ranges(work.ranges, start, start + size), 1.0) for start in starts]
        shares = []
        for place, (ranges, factor) in enumerate(cut):
            ids = ids_of(ranges, self.samples, self.seed)
            each = factor / len(ids) if work.parts else 1.0 / work.samples
            weights = np.full(len(ids), each, np.float32)
            epoch = ranges[0][0] // self.samples
            shares.append(Share(version, epoch, ids, weights, last=place == len(cut) - 1))
        return shares

    def _weigher(self, ids: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """A function from sample ids to float32 weights, which sum to 1 over the global batch `ids`."""
        if self.sample_weights is None:
            weight = np.float32(1.0 / len(ids))
            return lambda piece: np.full(len(piece), weight, np.float32)
        weights = self.sample_weights
        total = weights[ids].sum()
        return lambda piece: (weights[piece] / total).astype(np.float32)

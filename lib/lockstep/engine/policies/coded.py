"""Redundancy by codes: parts of a batch are computed by several workers, and some of their sums give the whole.

    batch   | part 0 | part 1 | part 2 |        worker i sends  sum over its parts p of  B[i, p] n(p)/n g(p)
    worker 0  x        x                        n(p) of n samples, g(p) the mean gradient of the part
    worker 1           x        x
    worker 2  x                 x               decoding: a with  sum over arrived i of a[i] B[i, p] = 1 for every p

So that sum over i of a[i] x (what i sends) is the mean gradient of the batch, whoever is late. `B`, float64 [workers,
workers], is fixed before training, as data would be laid out. A "task" of MapReduce is a part; workers have several.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.engine.options import JobError
from lockstep.engine.policies.base import Needs, Ranges, Setting, Work
from lockstep.engine.policies.places import part_of_batch
from lockstep.engine.policies.rounds import Closed, Floats, RoundPolicy, Whole, even


class Coded(RoundPolicy):
    """A round whose workers compute parts of one batch. Places that no contribution covers go back to the pool."""

    needs = Needs(recall=True, coded=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self.matrix: Floats = self.code()
        self._parts = [np.flatnonzero(row).tolist() for row in self.matrix]

    @abstractmethod
    def code(self) -> Floats:
        """B: float64 [workers, parts]."""

    def check_setting(self) -> None:
        setting = self.setting
        if setting.standby:
            raise JobError(f"standby={setting.standby} does nothing with coded work, which all workers share; give 0")
        if setting.global_batch < setting.workers:
            raise JobError(
                f"a global batch of {setting.global_batch} images has no {setting.workers} parts, one for each worker; "
                "give a larger batch or fewer workers"
            )

    def works(self) -> list[tuple[int, Work]]:
        """The whole batch for everybody, each with parts of their own."""
        self._samples = self.pool.batch_size()
        self._ranges, sizes = self.pool.take(self._samples), even(self._samples, self.workers)
        shares, present = sizes / self._samples, (one for one in range(self.workers) if one not in self._gone)
        return [(worker, self._work(worker, sizes, shares)) for worker in present]

    def _work(self, worker: int, sizes: Whole, shares: Floats) -> Work:
        """A batch of fewer samples than workers leaves parts empty, and whoever has only such ones without work."""
        own = [part for part in self._parts[worker] if sizes[part]]
        if not own:
            return Work((), 0, 0)
        parts = tuple((part, float(self.matrix[worker, part] * shares[part])) for part in own)
        return Work(self._ranges, self._samples, int(sizes[0]), parts=parts)

    def unused(self, work: Work, samples: int) -> None:
        """Nothing yet: others may compute the same places. `closed` knows."""
        del work, samples

    def closed(self, over: Closed) -> None:
        here = ~np.isnan(over.seconds)
        covered = (self.matrix[here] != 0).any(axis=0)
        if covered.all():
            return
        for part in np.flatnonzero(~covered).tolist():
            self.pool.give_back(part_of_batch(self._ranges, self._samples, part, self.workers))

    def places(self) -> list[Ranges]:
        return [self._ranges]

    @abstractmethod
    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """The decoding vector."""


def covering(order: Sequence[int] | Whole, group: Whole, groups: int) -> int | None:
    """How many of these workers, in order, have one of every group among them; None: all of them have not."""
    if len(order) < groups:
        return None
    found, first = np.unique(group[np.asarray(order, np.int64)], return_index=True)
    return int(first.max()) + 1 if len(found) == groups else None


def shared_evenly(workers: Sequence[int], group: Whole) -> list[float]:
    """1 / the number of these workers that are of the same group: what all of a group send is the same."""
    own = group[np.asarray(workers, np.int64)]
    return (1 / np.bincount(own)[own]).tolist() if len(own) else []

"""Codes without a promise: the gradient is right on average (stochastic gradient coding), or right once every part has
been seen (batched coupon's collector)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.coded import Coded, covering, shared_evenly
from lockstep.engine.policies.rounds import Floats, Whole

DRAWS = 1000
"""Random layouts of batches that are tried before none is found that covers all of them."""


@dataclass(frozen=True)
class StochasticOptions:
    copies: int = option(2, "workers that compute each part", least=1)
    k: int = option(0, "contributions that make an update; 0: all but one worker's", least=0)


class StochasticGradientCoding(Coded):
    """Bitar et al. 2019, "Stochastic gradient coding for straggler mitigation in distributed learning" (reference 42 of
    DPro-SM): every part lies on d workers, spread so that pairs of workers share few of them (pair-wise balanced). A
    worker sends the sum of its parts' gradients / d, and the server sums what has come and divides by the probability
    that a worker is no straggler. Whoever is late by chance alone, that is the full gradient on average; it is never
    decoded. The source leaves open how long the server waits; here it is for k workers, and the probability is k / n.

    A "task" of MapReduce is a part; each worker has d of them. Parts that nobody sent go back to the pool.
    """

    does = "each part of a batch on several workers; the first k sums are scaled up, right on average"
    label = "stochastic gradient coding"
    Options = StochasticOptions

    def check_setting(self) -> None:
        super().check_setting()
        for name in ("copies", "k"):
            if (value := getattr(self.options, name)) > self.workers:
                raise JobError(f"{name}={value} of {self.workers} workers is not possible; give at most as many")

    @property
    def k(self) -> int:
        return self.options.k or max(1, self.workers - 1)

    @property
    def survives_loss(self) -> int:
        return self.workers - self.k

    def code(self) -> Floats:
        """Part p lies on the workers p + o, counted round, for d different o of `setting.seed`."""
        copies = self.options.copies
        random = np.random.default_rng([self.setting.seed, self.workers, copies])
        offsets = random.permutation(self.workers)[:copies]
        code = np.zeros((self.workers, self.workers))
        for offset in offsets:
            parts = np.arange(self.workers)
            code[(parts + offset) % self.workers, parts] = 1 / copies
        return code

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        needed = min(self.k, expected)
        return needed if len(order) >= needed else None

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """workers / those that are here, for each."""
        del samples
        return [self.workers / len(workers)] * len(workers)


@dataclass(frozen=True)
class CollectorOptions:
    r: int = option(2, "parts that each worker computes", least=1)


class CouponCollector(Coded):
    """Li et al. 2017, "Near-optimal straggler mitigation for distributed gradient methods" (reference 22 of DPro-SM):
    BCC. The n parts are put into ceil(n / r) batches of r; each worker picks one of them at random and sends the sum of
    its gradients; the server goes on when it has collected every batch, as coupons are collected.

    The workers' picks are drawn from `setting.seed` until every batch is picked by somebody: the source counts on so
    many workers that this happens by itself. A "task" of MapReduce is one worker's batch.
    """

    does = "each worker computes a batch picked at random; an update is made when every batch has been collected"
    label = "batched coupon's collector"
    Options = CollectorOptions

    @property
    def batches(self) -> int:
        return -(-self.workers // self.options.r)

    def check_setting(self) -> None:
        super().check_setting()
        if self.options.r > self.workers:
            raise JobError(f"r={self.options.r} of {self.workers} parts is not possible; give at most as many")

    @property
    def survives_loss(self) -> int:
        """As many as the batch that was picked least often can spare."""
        return int(np.bincount(self._group).min()) - 1

    def code(self) -> Floats:
        self._group = self._picks()
        batch_of_part = np.arange(self.workers) // self.options.r
        return (self._group[:, None] == batch_of_part[None, :]).astype(np.float64)

    def _picks(self) -> Whole:
        if self.batches == self.workers:
            return np.arange(self.workers)  # r = 1: every worker is needed
        random = np.random.default_rng([self.setting.seed, self.workers, self.options.r])
        for _ in range(DRAWS):
            picks = random.integers(0, self.batches, self.workers)
            if len(np.unique(picks)) == self.batches:
                return picks
        expected = self.batches * sum(1 / one for one in range(1, self.batches + 1))
        raise JobError(
            f"r={self.options.r}: {self.workers} workers that pick one of {self.batches} batches at random leave some "
            f"out, in {DRAWS} draws of {DRAWS}; collecting all takes {expected:.0f} picks on average: give a larger r"
        )

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        del expected
        return covering(order, self._group, self.batches)

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """1 / the workers with the same batch that are here."""
        del samples
        return shared_evenly(workers, self._group)

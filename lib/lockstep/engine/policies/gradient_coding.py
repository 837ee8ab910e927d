"""Gradient coding: the full gradient from any n - s workers, where each computes s + 1 parts.

Tandon et al. 2017, "Gradient coding: avoiding stragglers in distributed learning" (reference 28 of DPro-SM): fractional
repetition (section 3.1) and cyclic codes (section 3.2). A "task" of MapReduce is a part; a worker
has s + 1 of them and sends one sum. Each step costs s + 1 times the computing, and no more messages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Setting
from lockstep.engine.policies.coded import Coded, covering, shared_evenly
from lockstep.engine.policies.rounds import Floats, Whole

DRAWS = 32
"""Random codes of which the best conditioned one is taken."""
TRIED = 100
"""Sets of workers that each of them is tried on, at most."""
LARGEST_TRIED = 64
"""Workers up to which codes are compared: a trial costs their number cubed."""
RESIDUE = 1e-6
"""By how much a decoded part may miss its weight."""


@dataclass(frozen=True)
class CodingOptions:
    s: int = option(1, "stragglers that an update does without", least=0)


class GradientCoding(Coded):
    """What both codes have in common. The condition number of the rows that arrived is recorded."""

    Options = CodingOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._condition = self._worst = 1.0

    def check_setting(self) -> None:
        super().check_setting()
        if self.options.s >= self.workers:
            raise JobError(f"s={self.options.s} stragglers of {self.workers} workers leave nobody; give fewer")

    @property
    def survives_loss(self) -> int:
        return int(self.options.s)

    def facts(self) -> dict[str, float]:
        return {"condition_number": self._condition, "worst_condition_number": self._worst}

    def _note(self, condition: float) -> None:
        self._condition, self._worst = condition, max(self._worst, condition)


class FractionalRepetition(GradientCoding):
    """Groups of s + 1 workers compute the same s + 1 parts; one worker of each group is enough. Needs n divisible by
    s + 1. An update is made as soon as every group has sent, even where more than s are missing."""

    does = "groups of s + 1 workers compute the same parts; an update needs one worker of each group"
    label = "gradient coding, fractional repetition"

    def check_setting(self) -> None:
        super().check_setting()
        if self.workers % (self.options.s + 1):
            raise JobError(
                f"fractional repetition with s={self.options.s} needs groups of {self.options.s + 1} workers, which "
                f"{self.workers} workers do not make; give an s of which s + 1 divides {self.workers}"
            )

    def code(self) -> Floats:
        self._group: Whole = np.arange(self.workers) // (self.options.s + 1)
        return (self._group[:, None] == self._group[None, :]).astype(np.float64)

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        del expected
        return covering(order, self._group, self.workers // (self.options.s + 1))

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """1 / the workers of the group that are here; singular values are the roots of (s + 1) x these."""
        del samples
        here = np.bincount(self._group[np.asarray(workers)])
        self._note(float(np.sqrt(here.max() / here.min())))
        return shared_evenly(workers, self._group)


class Cyclic(GradientCoding):
    """Worker i computes the parts i ... i + s, counted round, and any n - s rows of B span the vector of ones.

    Where n - s is odd, B is the circulant code of Raviv et al. 2018, "Gradient coding from cyclic MDS codes and
    expander graphs": its first row is the polynomial whose zeros are s neighbouring n-th roots of unity, those
    opposite of 1, so that it is real. Otherwise no such set of zeros is closed under conjugation, and B is Algorithm 2
    of Tandon et al.: made from a random H, [s, n], whose rows sum to 0, so that every row of B lies in its null space
    (Theorem 3). Random codes are much worse conditioned; the best of some is taken.
    """

    does = "each worker computes s + 1 neighboring parts, and any n - s workers give the full gradient"
    label = "gradient coding, cyclic"

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._decoded: dict[tuple[int, ...], tuple[list[float], float]] = {}

    def code(self) -> Floats:
        workers, stragglers = self.workers, self.options.s
        if (workers - stragglers) % 2:
            return _circulant_code(workers, stragglers)
        random = np.random.default_rng([self.setting.seed, workers, stragglers])
        if workers > LARGEST_TRIED:
            return _random_code(workers, stragglers, random)
        codes = [_random_code(workers, stragglers, random) for _ in range(DRAWS if stragglers else 1)]
        tried = _some_sets(workers, workers - stragglers, random)
        return min(codes, key=lambda code: float(np.linalg.cond(code[tried]).max()))

    def closes_at(self, order: Sequence[int] | Whole, expected: int) -> int | None:
        del expected
        needed = self.workers - self.options.s
        return needed if len(order) >= needed else None

    def weights(self, workers: Sequence[int], samples: Sequence[int]) -> list[float]:
        """The shortest a with a B = 1, by least squares. Raises JobError where it misses by more than `RESIDUE`."""
        del samples
        key = tuple(workers)
        if key not in self._decoded:
            if len(self._decoded) >= 1024:
                self._decoded.clear()
            self._decoded[key] = self._decode(key)
        vector, condition = self._decoded[key]
        self._note(condition)
        return vector

    def _decode(self, workers: tuple[int, ...]) -> tuple[list[float], float]:
        rows, ones = self.matrix[list(workers)], np.ones(self.workers)
        vector, _, rank, singular = np.linalg.lstsq(rows.T, ones, rcond=None)
        condition = float(singular[0] / singular[rank - 1])
        missed = float(np.abs(vector @ rows - ones).max())
        if not missed <= RESIDUE:
            raise JobError(
                f"the cyclic code of {self.workers} workers with s={self.options.s} can't be decoded from "
                f"{len(workers)} of them: a part's weight is off by {missed:.2g} (condition number "
                f"{condition:.2g}); give a smaller s"
            )
        return vector.tolist(), condition


def _circulant_code(workers: int, stragglers: int) -> Floats:
    """Each row is the one before it, moved on by one place."""
    exponents = np.arange(stragglers) + (workers - stragglers + 1) // 2
    row = np.zeros(workers)
    polynomial = np.poly(np.exp(2j * np.pi * exponents / workers)).real
    row[: stragglers + 1] = polynomial / np.abs(polynomial).max()
    return np.stack([np.roll(row, worker) for worker in range(workers)])


def _random_code(workers: int, stragglers: int, random: np.random.Generator) -> Floats:
    """Algorithm 2 of Tandon et al."""
    if not stragglers:
        return np.eye(workers)
    null = random.standard_normal((stragglers, workers))
    null[:, -1] = -null[:, :-1].sum(axis=1)
    code = np.zeros((workers, workers))
    for worker in range(workers):
        parts = (worker + np.arange(stragglers + 1)) % workers
        code[worker, parts[0]] = 1
        code[worker, parts[1:]] = -np.linalg.solve(null[:, parts[1:]], null[:, parts[0]])
    return code


def _some_sets(workers: int, size: int, random: np.random.Generator) -> Whole:
    """Sets of `size` workers, [sets, size]: all of them if they are few, or else random ones."""
    if math.comb(workers, size) <= TRIED:
        return np.array(list(itertools.combinations(range(workers), size)))
    return np.stack([random.permutation(workers)[:size] for _ in range(TRIED)])

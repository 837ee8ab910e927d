"""A pool of learning curves that were trained to the end, on which pruners are compared, and what it can tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.options import JobError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CurvePool:
    """Settings that were trained to the end, unpruned.

    values: scores in 0..1 after each epoch, [settings, epochs]; higher is better. NaN from some epoch on: training
    failed there. epoch_seconds: of one epoch of each setting, [settings]. images: of the validation set that the scores
    come from; one of them, 1 / images, is the difference of scores that counts as none.

    Raises JobError for shapes that do not fit, for scores outside 0..1, for seconds that are not above 0, and where no
    setting ends with a score.
    """

    values: Array
    epoch_seconds: Array
    images: int

    def __post_init__(self) -> None:
        values, seconds = np.array(self.values, dtype=float), np.array(self.epoch_seconds, dtype=float)
        if values.ndim != 2 or not values.size or seconds.shape != values.shape[:1]:
            raise JobError(
                f"a pool needs values [settings, epochs] and epoch_seconds [settings]; there are {list(values.shape)} "
                f"and {list(seconds.shape)}"
            )
        known = values[~np.isnan(values)]
        if not ((known >= 0) & (known <= 1)).all():
            wrong = known[~((known >= 0) & (known <= 1))][0]
            raise JobError(f"a pool's value {wrong:g} is no score in 0..1; give shares, or exp(-loss), NaN for failed")
        if not (np.isfinite(seconds) & (seconds > 0)).all():
            raise JobError(f"epoch_seconds={seconds.tolist()}: give finite seconds above 0 for each setting")
        if self.images < 1:
            raise JobError(f"images={self.images} is not possible; give the number of validation images, at least 1")
        if np.isnan(values[:, -1]).all():
            raise JobError("no setting of the pool ends with a score: train one to the end")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "epoch_seconds", seconds)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def epochs(self) -> int:
        """Of every setting."""
        return int(self.values.shape[1])

    @property
    def tolerance(self) -> float:
        """The score of one validation image."""
        return 1 / self.images

    def select(self, settings: ArrayLike) -> CurvePool:
        """The pool of some settings, by their places, [any number of them]."""
        places = np.asarray(settings, dtype=int)
        return CurvePool(self.values[places], self.epoch_seconds[places], self.images)

    def drawn(self, trials_per_study: int, seed: int) -> NDArray[np.intp]:
        """The settings of one study in their order, [trials]: the same for every pruner and number of workers. Raises
        JobError for more trials than there are settings."""
        if not 1 <= trials_per_study <= len(self):
            raise JobError(
                f"trials_per_study={trials_per_study} is not possible with a pool of {len(self)} settings, none of "
                "which is drawn twice; give fewer trials, or train more settings"
            )
        return np.random.default_rng(seed).permutation(len(self))[:trials_per_study]


def halves(pool: CurvePool, seed: int) -> tuple[CurvePool, CurvePool]:
    """The pool's settings in two halves at random: one to choose pruners' settings on, and one to report. Raises
    JobError for a pool that is too small."""
    if len(pool) < 4:
        raise JobError(f"a pool of {len(pool)} settings has no two halves; train at least 4")
    order = np.random.default_rng(seed).permutation(len(pool))
    middle = len(pool) // 2
    return pool.select(np.sort(order[:middle])), pool.select(np.sort(order[middle:]))


@dataclass(frozen=True)
class EffectiveNumber:
    """How much studies that are drawn from one pool can tell.

    overlap: the share of settings that two such studies have in common, on average. of_all: how many studies of new
    settings all orders of the pool amount to, at least; of_these: the same of as many orders as were drawn.
    """

    overlap: float
    of_all: float
    of_these: float


def effective_number(settings: int, trials_per_study: int, orders: int) -> EffectiveNumber:
    """What `orders` random studies of k out of n settings amount to.

    Two studies share k / n of their settings on average. The mean of a study's outcome over all subsets of a pool is a
    U-statistic, whose variance is at most k / n of the variance v of one study's outcome (Hoeffding, "A class of
    statistics with asymptotically normal distribution", 1948, theorem 5.2). So all orders together amount to n / k
    independent studies at least, and R of them, drawn at random, to

        v / variance of their mean  >=  1 / (k/n + (1 - k/n) / R).

    500 orders of 30 out of 100 are 3.3 studies, of 80 out of 100 are 1.2. Raises JobError for numbers that can't be.
    """
    if not 1 <= trials_per_study <= settings or orders < 1:
        raise JobError(
            f"{orders} studies of {trials_per_study} out of {settings} settings can't be drawn; give one order at "
            "least, and no more trials than settings"
        )
    share = trials_per_study / settings
    return EffectiveNumber(share, 1 / share, 1 / (share + (1 - share) / orders))

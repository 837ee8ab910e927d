"""Intervals of what images' scores say, over seeds and patients: a two-level bootstrap.

Every network scores the same images, so seeds and patients are crossed: each draw takes seeds anew and patients anew,
independently, both with replacement (the pigeonhole bootstrap, Owen 2007, Annals of Applied Statistics 1, 386). All
images of a patient that is drawn come along, so that images of one patient never count as independent; where names tell
no patient, an image is its own. The interval is the middle 95 % of the draws. It holds other seeds and other patients
of the same kind; not other hospitals, nor thresholds set on other validation images: those are as they were set.

`scipy.stats.bootstrap` draws along one axis and knows no groups, which is why this is here. With few seeds a draw
varies by (n - 1) / n too little over seeds; that patients and seeds vary together counts twice in it, which is more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.image_scores import Numbers, SplitScores

DRAWS = 1000
_MIDDLE = (2.5, 97.5)

Measure = Callable[[Numbers | None], Numbers]
"""Weights of images [draws, images] -> a number for each draw and seed; None: each image once, and one row."""


@dataclass(frozen=True, eq=False)
class PatientDraws:
    """How often each seed [draws, seeds] and each image [draws, images] is in each draw."""

    of_seeds: Numbers
    of_images: Numbers

    @classmethod
    def of(cls, split: SplitScores, draws: int = DRAWS) -> PatientDraws:
        """The same draws for the same seeds and images, so that two networks are compared on the same draws."""
        random = np.random.default_rng(0)
        groups, place = np.unique(split.groups, return_inverse=True)
        patients = random.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=draws)
        seeds = len(split.seeds)
        taken = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
        return cls(taken.astype(np.float64), patients[:, place].astype(np.float64))

    def estimate(self, measure: Measure, scale: float = 1.0) -> Estimate:
        """The mean over seeds of a measure, times `scale`, with its interval; `rounds` are the seeds."""
        value = float(measure(None).mean())
        each = measure(self.of_images)
        drawn = (each * self.of_seeds).sum(axis=1) / self.of_seeds.sum(axis=1)
        low, high = (float(np.nanpercentile(drawn, end)) for end in _MIDDLE)
        # Of a few equal values a mean lies outside the middle by rounding.
        low, high = min(low, value), max(high, value)
        return Estimate(scale * value, scale * low, scale * high, self.of_seeds.shape[1], logarithmic=False)

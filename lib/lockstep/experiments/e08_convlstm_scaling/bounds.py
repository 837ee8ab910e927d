"""What a link of infinite rate and no latency would allow: bounds on Table 3 and on the speedup on five nodes.

On such a link a step takes what its computing takes: fixed + images x image seconds, both from the calibrated cost
model, so no real link does better. The paper leaves the batch of a step unsaid, so every bound is shown over its range:
the batch of Table 2 shared out among the workers, larger ones, the whole set in one step, and a batch for each worker,
with which a larger cluster has fewer steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lockstep.analysis.verdicts import TOLERANCE
from lockstep.experiments.e08_convlstm_scaling.forecasts import BATCH, EPOCH_IMAGES
from lockstep.experiments.fixed_batch import PLAIN_BATCH
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta

INFINITE = AlphaBeta(0.0, 0.0)
FIXED_VARIED = (0.5, 2.0)
"""Other machines' fixed seconds of a step, as shares of this one's."""
RATES = np.logspace(5, 14, 181)
"""Bits per second of links that are tried out: 100 kbit/s to 100 Tbit/s."""


@dataclass(frozen=True)
class Reading:
    """What the unstated batch of a step may be: so many images in all, or for each worker."""

    images: int
    per_worker: bool = False

    def __str__(self) -> str:
        return f"{self.images} images {'for each worker' if self.per_worker else 'a step'}"

    def epoch_seconds(self, costs: Costs, workers: int, sync: str = "allreduce", link: AlphaBeta = INFINITE) -> float:
        """Seconds of an epoch, up to a factor that is that of the data: seconds of a step over its images."""
        batch = self.images * workers if self.per_worker else self.images
        return sum(costs.on_cluster(batch, workers, sync, link)) / batch


def readings(epoch_images: int = EPOCH_IMAGES) -> tuple[Reading, ...]:
    return Reading(PLAIN_BATCH), Reading(BATCH), Reading(epoch_images), Reading(PLAIN_BATCH, per_worker=True)


@dataclass(frozen=True)
class Bound:
    """How many times as fast `many` workers can be as `few`, whatever the link: the calibrated model's value, with what
    other draws of its rounds and other fixed seconds would say."""

    reading: Reading
    few: int
    many: int
    value: float
    low: float
    high: float
    kindest: float  # with the fixed seconds of FIXED_VARIED that allow most

    def allows(self, published: float) -> bool:
        """Whether a number within TOLERANCE of the published one is possible."""
        return (1 - TOLERANCE) * published <= max(self.high, self.kindest)

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}] at {self.reading}"


def times(costs: Costs, reading: Reading, few: int, many: int, sync: str = "allreduce",
          link: AlphaBeta = INFINITE) -> float:  # fmt: skip
    """How many times as fast `many` workers are as `few`, a node each."""
    return reading.epoch_seconds(costs, few, sync, link) / reading.epoch_seconds(costs, many, sync, link)


def bound(costs: Costs, draws: Sequence[Costs], reading: Reading, few: int, many: int) -> Bound:
    """The bound of a reading. `draws`: the model calibrated on other draws of the rounds."""
    drawn = [times(each, reading, few, many) for each in draws]
    varied = [replace(costs, fixed_seconds=factor * costs.fixed_seconds) for factor in FIXED_VARIED]
    low, high = np.percentile(drawn, (2.5, 97.5))
    kindest = max(times(each, reading, few, many) for each in varied)
    return Bound(reading, few, many, times(costs, reading, few, many), float(low), float(high), kindest)


def least_batch(costs: Costs, published: float, few: int, many: int, epoch_images: int = EPOCH_IMAGES) -> int | None:
    """The fewest images of a step, shared out, from which on a published number is possible; None if never."""
    sizes = [*range(PLAIN_BATCH, epoch_images, PLAIN_BATCH), epoch_images]
    out = [size for size in sizes if times(costs, Reading(size), few, many) < (1 - TOLERANCE) * published]
    if not out:
        return sizes[0]
    return next((size for size in sizes if size > out[-1]), None)


def least_rate(costs: Costs, reading: Reading, published: float, few: int, many: int, sync: str) -> float | None:
    """The slowest link without latency, in bits per second, on which a published number is possible; None: none is."""
    wanted = (1 - TOLERANCE) * published
    return next(
        (float(rate) for rate in RATES if times(costs, reading, few, many, sync, AlphaBeta(0.0, 8 / rate)) >= wanted),
        None,
    )


def bounds_table(
    costs: Costs, draws: Sequence[Costs], published: Sequence[tuple[str, float, int, int]], epoch_images: int
) -> pd.DataFrame:
    """A row per published number (what, number, workers that it is relative to, workers) and reading of the batch.

    Columns: what, published_times, batch, few, many (workers), modelled_bound, low, high, kindest, possible,
    server_bits_per_second and allreduce_bits_per_second (the slowest link that allows it; NaN if none does).
    """
    rows = []
    for what, number, few, many in published:
        for reading in readings(epoch_images):
            found = bound(costs, draws, reading, few, many)
            row = {"what": what, "published_times": number, "batch": str(reading), "few": few, "many": many}
            row |= {"modelled_bound": found.value, "low": found.low, "high": found.high, "kindest": found.kindest}
            row |= {"possible": found.allows(number)}
            for name, sync in (("server", "parameter_server"), ("allreduce", "allreduce")):
                row[f"{name}_bits_per_second"] = least_rate(costs, reading, number, few, many, sync)
            rows.append(row)
    return pd.DataFrame(rows)

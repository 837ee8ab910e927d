"""What a link of infinite rate and no latency would allow: bounds on Table 3 and on the speedup on five nodes.

On such a link a step takes what its computing takes: fixed + images x image seconds, both from the calibrated cost
model, so no real link does better. The paper leaves the batch of a step unsaid, so every bound is shown over its range:
the batch of Table 2 shared out among the workers, larger ones, the whole set in one step, and a batch for each worker,
with which a larger cluster has fewer steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate, estimated
from lockstep.analysis.tables import ratio_columns
from lockstep.analysis.verdicts import TOLERANCE
from lockstep.engine.units import bits_text
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
    """How many times as fast `many` workers can be as `few`, whatever the link.

    `modelled`: by the calibrated model; `kindest`: by that of FIXED_VARIED which allows most; both with what the rounds
    of the calibration leave open. `ideal`: without any fixed seconds, which nothing exceeds.
    """

    reading: Reading
    few: int
    many: int
    modelled: Estimate
    kindest: Estimate
    ideal: float

    def allows(self, published: float) -> bool:
        """Whether a number within TOLERANCE of the published one may be possible."""
        return _least(published) <= min(self.kindest.high, self.ideal)

    def possible(self, published: float) -> str:
        """For a reader: yes where the model itself allows it, undecided where only the rounds leave it open, or no."""
        certain = _least(published) <= min(self.kindest.value, self.ideal)
        return "yes" if certain else "undecided" if self.allows(published) else "no"

    def chance(self, published: float) -> float:
        """The chance that it is possible although the model's rounds say otherwise; 0 where arithmetic forbids it."""
        return self.kindest.chance(_least(published)) if _least(published) <= self.ideal else 0.0

    def rounds_more(self, published: float) -> float:
        """How many more rounds of the calibration would forbid it; infinite where the model itself allows it."""
        if self.kindest.value >= _least(published):
            return math.inf
        return max(1.0, self.kindest.rounds_until(_least(published)) - self.kindest.rounds)

    @property
    def shown(self) -> Estimate:
        """`modelled` with ends that are possible: more workers are never slower there, and none beats the ideal."""
        if self.modelled.open:
            return self.modelled
        return replace(self.modelled, low=max(self.modelled.low, 1.0), high=min(self.modelled.high, self.ideal))

    def __str__(self) -> str:
        return f"{self.shown} at {self.reading}"


def _least(published: float) -> float:
    return (1 - TOLERANCE) * published


def times(costs: Costs, reading: Reading, few: int, many: int, sync: str = "allreduce",
          link: AlphaBeta = INFINITE) -> float:  # fmt: skip
    """How many times as fast `many` workers are as `few`, a node each."""
    return reading.epoch_seconds(costs, few, sync, link) / reading.epoch_seconds(costs, many, sync, link)


def bound(costs: Costs, draws: Sequence[Costs], rounds: int, reading: Reading, few: int, many: int) -> Bound:
    """The bound of a reading. `draws`: the model calibrated on other draws of the rounds, of which the cell with the
    fewest has `rounds`.

    Their spread is the bound's standard error (the bootstrap's, of samples of that size), and its interval the
    anytime-valid one of so many rounds: open for fewer than `lockstep.analysis.anytime.MIN_ROUNDS`.
    """
    drawn = np.log([times(each, reading, few, many) for each in draws])
    deviation = float(drawn.std()) * rounds / math.sqrt(rounds - 1) if rounds > 1 else math.nan

    def around(value: float) -> Estimate:
        return estimated(math.log(value), deviation, rounds)

    value = times(costs, reading, few, many)
    varied = [replace(costs, fixed_seconds=factor * costs.fixed_seconds) for factor in FIXED_VARIED]
    kindest = max(value, *(times(each, reading, few, many) for each in varied))
    ideal = times(Costs(0.0, 1.0, 0.0), reading, few, many)
    return Bound(reading, few, many, around(value), around(kindest), ideal)


def least_batch(costs: Costs, published: float, few: int, many: int, epoch_images: int = EPOCH_IMAGES) -> int | None:
    """The fewest images of a step, shared out, from which on a published number is possible; None if never."""
    sizes = [*range(PLAIN_BATCH, epoch_images, PLAIN_BATCH), epoch_images]
    out = [size for size in sizes if times(costs, Reading(size), few, many) < (1 - TOLERANCE) * published]
    if not out:
        return sizes[0]
    return next((size for size in sizes if size > out[-1]), None)


def least_rate(costs: Costs, reading: Reading, published: float, few: int, many: int, sync: str) -> float | None:
    """The slowest link without latency, in bit/s, on which a published number is possible; None if none is."""
    wanted = (1 - TOLERANCE) * published
    return next(
        (float(rate) for rate in RATES if times(costs, reading, few, many, sync, AlphaBeta(0.0, 8 / rate)) >= wanted),
        None,
    )


def needed_link(costs: Costs, reading: Reading, published: float, few: int, many: int, sync: str) -> str:
    """`least_rate` for a reader; of the slowest that was tried it is only known that it is enough."""
    rate = least_rate(costs, reading, published, few, many, sync)
    return f"{'at most ' if rate == RATES[0] else ''}{bits_text(rate)}" if rate else "no link"


def bounds_table(
    costs: Costs,
    draws: Sequence[Costs],
    rounds: int,
    published: Sequence[tuple[str, float, int, int]],
    epoch_images: int,
) -> pd.DataFrame:
    """A row per published number (what, number, workers that it is relative to, workers) and reading of the batch.

    Columns: what, published_times, batch, few, many (workers), modelled_bound, low, high (`Bound.shown`), ideal,
    kindest, possible, server_needs and allreduce_needs (the slowest link that allows it, for a reader).
    """
    rows = []
    for what, number, few, many in published:
        for reading in readings(epoch_images):
            found = bound(costs, draws, rounds, reading, few, many)
            row = {"what": what, "published_times": number, "batch": str(reading), "few": few, "many": many}
            row |= ratio_columns(found.shown, "modelled_bound")
            row |= {"ideal": found.ideal, "kindest": found.kindest.value, "possible": found.possible(number)}
            for name, sync in (("server", "parameter_server"), ("allreduce", "allreduce")):
                row[f"{name}_needs"] = needed_link(costs, reading, number, few, many, sync)
            rows.append(row)
    return pd.DataFrame(rows)

"""What a worker holds at its peak, and what it would hold if its state were divided among workers.

    peak(b) = base + activations x b                     a line through the peaks at two batches, one worker alone
    base    = process + parameters P + gradients G + state of the optimizer O

    of n workers of a host    DDP            base
                              full copies    base + largest layer                     a gradient moves when it is whole
                              one copy       base + largest layer - (n-1)/n (P + O)   P and O stand once per host

That is a worker's part of what all of a host hold together: pages that several share count in parts (a PSS), so that a
host needs n times as much. A worker's own process shows more where there is one copy (its RSS).

The three ways to divide the state are arithmetic (Rajbhandari et al. 2020, section 5, there with mixed precision):

    replication P + G + O      optimizer sharding P + G + O/n      full sharding (P + G + O)/n + largest layer, gathered
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.advisor.advice import Advised, Sharded
from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.coefficients import ALONE, has_one_copy
from lockstep.advisor.scope import SHARDING
from lockstep.engine import registry
from lockstep.engine.units import bytes_text

SHARDED_OVER = (2, 4, 8, 16)
"""Workers among whom state is divided, for comparison."""


@dataclass(frozen=True)
class MemoryLine:
    """The peak of one worker that trains alone: bytes whatever the batch, and of each image."""

    base_bytes: float
    image_bytes: float

    @classmethod
    def of(cls, calibration: Calibration) -> MemoryLine:
        """Raises CalibrationError for a calibration without any peak."""
        peaks = sorted({peak.per_worker_batch_size: peak.peak_bytes for peak in calibration.memory}.items())
        if not peaks:
            raise CalibrationError("the calibration holds no peak of memory; measure it anew, and for longer")
        held = calibration.empty_process_bytes + full_state_bytes(calibration)
        (few, low), (many, high) = peaks[0], peaks[-1]
        each = max(0.0, (high - low) / (many - few)) if many > few else max(0.0, (high - held) / many)
        return cls(max(0.0, high - each * many), each)

    def peak_bytes(self, images: int) -> float:
        return self.base_bytes + self.image_bytes * images


def full_state_bytes(calibration: Calibration) -> float:
    """Bytes of parameters, gradients and optimizer state of one full copy."""
    model = calibration.model
    return parameter_bytes(calibration) + model.gradient_bytes + model.optimiser_bytes


def parameter_bytes(calibration: Calibration) -> float:
    return 4.0 * calibration.model.parameters + calibration.model.buffer_bytes


def worker_bytes(calibration: Calibration, sync: str, workers_of_host: int, images: int) -> float:
    """The part of a worker, of which a host has so many, in what they hold together at their peak."""
    peak, model = MemoryLine.of(calibration).peak_bytes(images), calibration.model
    if sync == ALONE or sync in registry.PEERS:
        return peak
    once = parameter_bytes(calibration) + model.optimiser_bytes if has_one_copy(sync) else 0.0
    return max(0.0, peak + model.largest_layer_bytes - once * (1 - 1 / workers_of_host))


def sharded(calibration: Calibration, workers: int, images: int) -> Sharded:
    """Bytes per worker of replication, of optimizer sharding and of full sharding, with `images` in its batch."""
    line, model = MemoryLine.of(calibration), calibration.model
    peak, state = line.peak_bytes(images), full_state_bytes(calibration)
    return divided(workers, state, model.optimiser_bytes, peak - state, model.largest_layer_bytes)


def divided(workers: int, state: float, optimiser: float, rest: float, largest_layer: float) -> Sharded:
    """Bytes of a worker if `state` (parameters, gradients, optimizer state) is divided; `rest` is held by each."""
    full = min(rest + state / workers + largest_layer, rest + state)
    return Sharded(workers, rest + state, rest + state - optimiser * (1 - 1 / workers), full)


def without_room(
    name: str, batch: int, limit: float, state: float, optimiser: float, rest_bytes: Callable[[int], float],
    largest_layer: float,
) -> Advised:  # fmt: skip
    """The answer for a model of which not even one worker fits: what dividing it would need, by arithmetic alone.

    `rest_bytes(images)`: what a worker holds besides the state, with so many images.
    """
    images = {workers: math.ceil(batch / workers) for workers in SHARDED_OVER if workers <= batch} or {2: batch}
    return Advised(
        f"It does not fit: one worker of {name} with batch {batch} needs about "
        f"{bytes_text(state + rest_bytes(batch))}, and the machine has {bytes_text(limit)} free.",
        None, None, None, None, (), (), (),
        ("Nothing was trained: parameters are counted without allocating them, of activations only those that are "
         "known from two samples.", SHARDING),
        tuple(divided(n, state, optimiser, rest_bytes(share), largest_layer) for n, share in images.items()),
    )  # fmt: skip

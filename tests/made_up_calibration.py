"""A machine and a model of which every second is known: a calibration made by the formula that predictions use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lockstep.advisor.calibration import (
    NOTHING,
    SCHEMA,
    CalibratedMachine,
    CalibratedModel,
    Calibration,
    CalibrationCell,
    PeakMemory,
)
from lockstep.advisor.errors import KindError
from lockstep.advisor.steps import Predictor

MB = 10**6
GIB = 1 << 30


@dataclass(frozen=True)
class Truth:
    """What a step takes, in seconds."""

    fixed: float = 0.010
    image: float = 0.002
    crowding: float = 0.10
    added: float = 0.003
    update: float = 0.004
    gradient: int = 40 * MB
    cores: int = 2
    byte_seconds: tuple[tuple[str, float], ...] = (("shared_memory", 1e-10), ("allreduce", 5e-10))

    def computing(self, batch: int, workers: int = 1) -> float:
        turns = -(-workers // self.cores)
        return turns * (self.fixed + self.image * batch * (1 + self.crowding * (workers / turns - 1)))


def cell(sync: str, workers: int, batch: int, parts: tuple[float, float, float], rounds: int = 3) -> CalibrationCell:
    """A cell in which computing, exchange and update take `parts`, alike in every round."""
    compute, exchange, update = ((part,) * rounds for part in parts)
    return CalibrationCell(sync, workers, batch, 1, (sum(parts),) * rounds, compute, exchange, update)


def made_up(truth: Truth = Truth(), small: int = 16, large: int = 64, rounds: int = 3) -> Calibration:
    """One worker at two batches, all cores for themselves, and two workers by each sync with the large batch."""
    cells = [cell("local", 1, batch, (truth.computing(batch), 0.0, truth.update), rounds) for batch in (small, large)]
    cells.append(cell(NOTHING, truth.cores, large, (truth.computing(large, truth.cores), 0.0, truth.update), rounds))
    for sync, each in truth.byte_seconds:
        computing = truth.computing(large, 2) + truth.added
        update = truth.update / 2 if sync == "shared_memory" else truth.update
        cells.append(cell(sync, 2, large, (computing, each * truth.gradient, update), rounds))
    size = truth.gradient
    return Calibration(
        schema=SCHEMA,
        model=CalibratedModel(
            "made.up:model", "{}", "torch", "3,224,224", "cross_entropy", "sgd", size // 4, size, 0, size, size // 4
        ),
        machine=CalibratedMachine("made up", "cpu", truth.cores, 8 * GIB, "Linux", "3.11", "2.13"),
        cells=tuple(cells),
        optimiser_seconds=(truth.update,) * rounds,
        copy_bytes_per_second=(1e10,) * rounds,
        memory=tuple(PeakMemory(batch, 300 * MB + 3 * size + MB * batch) for batch in (small, large)),
        empty_process_bytes=300 * MB,
        start_seconds=2.0,
    )


def with_cells(calibration: Calibration, *cells: CalibrationCell) -> Calibration:
    return replace(calibration, cells=(*calibration.cells, *cells))


def predicted_step_seconds(
    calibration: Calibration, *asked: Any, errors: Mapping[str, KindError] | None = None, **more: Any
) -> Any:
    """The seconds of a step of one cell with their range, as `Predictor.step_seconds` is asked."""
    return Predictor(calibration, errors).step_seconds(*asked, **more)

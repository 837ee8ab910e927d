"""What was measured of one model on one machine: everything that a prediction needs, as one JSON file.

No host name and no path stands in it, so that it can be handed on: advice for a cluster is computed on a laptop from a
file that one of the cluster's nodes wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings pandas, which a worker that only knows CalibrationError need not load
    from lockstep.predict.layout_model import LayerTime

SCHEMA = 1
NOTHING = "none"
"""In place of a sync: every worker trained by itself, at the same time as the others."""


class CalibrationError(ValueError):
    """A calibration that can't be read, measured or used; the message names the value and the fix."""


@dataclass(frozen=True)
class CalibrationCell:
    """Workers that trained on one host. Each list has a number for every round, in the order of the rounds."""

    sync: str  # of `lockstep strategies`, or NOTHING
    workers: int
    per_worker_batch_size: int
    threads_per_worker: int
    step_seconds: tuple[float, ...]  # of the slowest worker, median over the round's steps
    compute_seconds: tuple[float, ...]  # of it, forward and backward pass
    exchange_seconds: tuple[float, ...]  # of it, exchange and waiting for others
    update_seconds: tuple[float, ...]  # of it, the optimizer
    step_spread: tuple[float, ...] = ()  # of the round's steps, see `spreads`; empty: single steps were not kept


@dataclass(frozen=True)
class CalibratedModel:
    """The model, its input, and what its memory and exchange depend on."""

    name: str  # as given: module:factory
    arguments: str  # of the factory, canonical JSON
    framework: str  # torch | keras
    inputs: str  # as given, canonical: "3,224,224"
    loss: str
    optimiser: str
    parameters: int
    gradient_bytes: int
    buffer_bytes: int
    optimiser_bytes: int  # state that it keeps for all parameters
    largest_layer_bytes: int  # of parameters, which full sharding gathers at once


@dataclass(frozen=True)
class CalibratedMachine:
    """The machine and its software. Two calibrations agree only where all of this does."""

    processor: str
    device: str  # cpu | the name of a GPU
    cores: int  # that may be used
    memory_bytes: int  # of the machine, or what its control group may use; of the GPU for a GPU
    system: str  # Linux 6.8 x86_64
    python: str
    torch: str


@dataclass(frozen=True)
class PeakMemory:
    """The most that one worker's process (or its GPU) held while it trained alone with this batch."""

    per_worker_batch_size: int
    peak_bytes: int


@dataclass(frozen=True)
class Calibration:
    """One model on one machine. `lockstep advise --save FILE` writes it, `--from FILE` reads it."""

    schema: int
    model: CalibratedModel
    machine: CalibratedMachine
    cells: tuple[CalibrationCell, ...]
    optimiser_seconds: tuple[float, ...]  # a step of the optimizer alone, by round
    copy_bytes_per_second: tuple[float, ...]  # read plus written, one thread, by round
    memory: tuple[PeakMemory, ...]
    empty_process_bytes: int  # of a worker that has imported torch and built nothing
    start_seconds: float  # until two workers are ready to train
    decode_seconds_per_image: tuple[float, ...] = ()  # by round; empty without a folder of data
    ping_pong: tuple[tuple[int, float], ...] = ()  # (bytes, seconds one way) between hosts, shortest first
    layers: tuple[LayerTime, ...] = ()  # of a model that can be cut into stages
    others_share: float = 0.0  # of the cores' time that other processes took while it was measured
    seconds: float = 0.0  # that measuring took
    cut_short: str = ""  # why something is missing, for a time-out
    versions: dict[str, str] = field(default_factory=dict)  # others that matter: tensorflow, mpi
    answer_seconds: float = 0.0  # of `lockstep advise`, from its start to the answer

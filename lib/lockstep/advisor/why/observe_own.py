"""Trains the reader's own model on real workers for some seconds, in cells that differ from each other in one thing.

    as asked                             W workers x T threads, batch B
    with threads that fit                W x cores / W           if T is another number    -> threads, few threads
    one worker alone                     1 x cores / W           -> memory bandwidth
        with a larger batch              -> batch
        with denormal numbers kept       -> denormals

They are visited in turns, so that what drifts meanwhile hits all of them, and what only one
third of the turns shows is the moment's; times are those of the quickest quarter of the steps.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.asked_cells import CellAsked
from lockstep.advisor.measuring.meter import CellMeter
from lockstep.advisor.measuring.worker_calls import machine_visit
from lockstep.advisor.why.observations import CellSeen, Observations, WorkerStep
from lockstep.advisor.why.visits import CPU_SECONDS, FAULTS, observed_visit
from lockstep.engine.cores import usable_cores
from lockstep.engine.data.drawn import DrawnSamples
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import UseCase
from lockstep.measure.environment import missing

SECONDS = 25.0
VISIT_SECONDS = 0.25
"""What a visit's measured steps should take together."""
FEWEST_STEPS, MOST_STEPS = 3, 30
MOST_PARTS = 3
ALWAYS, MORE_SECONDS = 2, 20.0
"""Cells, the asked one and what it is first compared with, that are measured even if that takes so much more time, as
is the asked one's second visit: in its first, images were decoded while the model was still warming up."""
LEAST_LARGER_BATCH = 16
"""A batch of one is compared with no smaller one: its operators are quicker per image from some images on."""
_WITHIN = ("step_seconds", "compute_seconds", "exchange_seconds", "wait_seconds", "update_seconds",
           "images", "bytes_sent", FAULTS)  # fmt: skip
_COPY = "copy_bytes_per_second"


@dataclass(frozen=True)
class RunAsked:
    """The training that the reader finds slow."""

    workers: int = 2
    threads_per_worker: int = 1
    batch: int = 32  # of each worker
    sync: str = "allreduce"
    launcher: str = ""  # empty: processes, or mpiexec for several hosts
    hosts: int = 1  # emulated on this machine
    link_bits_per_second: float = 0.0
    environment: str = "tuned"
    precision: str = "float32"
    seed: int = 0
    images_timed: int = 0  # of the run whose time the reader has; 0: not told
    seconds: float = SECONDS
    command: str = Observations.command

    def cell(self) -> CellAsked:
        return CellAsked(
            self.sync, self.workers, self.batch, self.threads_per_worker, self.hosts, self.link_bits_per_second,
            self.launcher,
        )  # fmt: skip


class _Meter(CellMeter):
    """Warm teams in the environment that was asked for."""

    def __init__(self, case: UseCase, asked: RunAsked) -> None:
        super().__init__(case, asked.seconds, precision=asked.precision, seed=asked.seed)
        self._common |= {"environment": asked.environment}


@dataclass
class _Visited:
    """A cell, and what each of its ranks measured in its visits so far."""

    asked: CellAsked
    keep_denormals: bool = False
    turns: dict[int, list[list[dict[str, float]]]] = field(default_factory=dict)  # by turn: each worker's steps
    visit_seconds: float = 0.0
    failure: str = ""  # why it is not visited any more

    @property
    def label(self) -> str:
        return f"{self.asked.label}{', denormals kept' if self.keep_denormals else ''}"

    @property
    def step_seconds(self) -> float:
        """Of the last visit's slowest step, for planning."""
        last = self.turns[max(self.turns)] if self.turns else []
        return max((steps[-1]["step_seconds"] for steps in last if steps), default=math.inf)

    def note(self, traces: list[Trace], turn: int) -> None:
        """The first turn, which also warms up, counts only where there is no other."""
        self.turns.pop(0, None)
        self.turns[turn] = [trace.steps for trace in traces[: self.asked.workers]]

    def seen(self, among: list[int] | None = None) -> CellSeen | None:
        """In all turns, or in some of them. None for a cell that was not reached."""
        turns = [self.turns[number] for number in self.turns if among is None or number in among]
        workers = [[step for steps in worker for step in steps] for worker in zip(*turns, strict=True)]
        if not workers or not all(workers):
            return None
        ranks = tuple(_step_of(steps) for steps in workers)
        asked = self.asked
        return CellSeen(asked.sync, asked.workers, asked.threads_per_worker, asked.per_worker_batch_size, ranks)


def _step_of(steps: list[dict[str, float]]) -> WorkerStep:
    """What one worker's measured steps say of its step."""
    found = {name: lower_quartile([step[name] for step in steps]) for name in _WITHIN}
    # A step whose images were ready is followed by one that waits for two batches: what counts is all waiting.
    waiting = sum(step["input_seconds"] for step in steps) / sum(step["step_seconds"] for step in steps)
    # Other work in the caches only adds to the CPU time, and one step in the quarter may have had much of it.
    cpu_seconds = min(step[CPU_SECONDS] for step in steps)
    return WorkerStep(**found, input_seconds=waiting * found["step_seconds"], cpu_seconds=cpu_seconds)


def lower_quartile(values: list[float]) -> float:
    """The value that a quarter of them do not exceed."""
    return sorted(values)[(len(values) - 1) // 4]


def observe_own(
    asked: RunAsked, case: UseCase, gradient_bytes: float = 0.0, progress: Callable[[str], None] | None = None
) -> Observations:
    """Train `case` as asked, and in what it is compared with, for `asked.seconds`, the start
    of workers not counted; no process stays behind.

    Raises CalibrationError and JobError for what can't be measured here, before anything starts, and where not even the
    asked cell was measured within the time.
    """
    cores = len(usable_cores())
    cells = _cells(asked, cores)
    if lacking := missing(asked.cell().job(environment=asked.environment, precision=asked.precision)):
        raise CalibrationError(f"{asked.cell().label} can't be measured here: {lacking}")
    with _Meter(case, asked) as meter:
        meter.host([each.asked for each in cells.values()])
        failure, start = _measure(meter, asked, list(cells.values()), progress or (lambda text: None))
        copy = _copy_bandwidth(meter, asked, cells["alone"].asked) if asked.hosts == 1 and asked.workers > 1 else 0.0
    found: dict[str, Any] = {name: each.seen() for name, each in cells.items()}
    own = found.pop("asked")
    if own is None:
        raise CalibrationError(
            f"{asked.cell().label}: no step was measured within {asked.seconds:g} s; {failure or 'give --seconds more'}"
        )
    unmeasured = tuple(each.label for each in cells.values() if each.seen() is None and not each.failure)
    failed = tuple(f"{each.label}: {each.failure}" for each in cells.values() if each.failure)
    hidden = own.workers > 1 and not any(rank.exchange_seconds for rank in own.ranks)
    seen = Observations(
        own, cores, **found, exchange_is_hidden=hidden, gradient_bytes=gradient_bytes, copy_bytes_per_second=copy,
        link_bytes_per_second=asked.link_bits_per_second / 8, start_seconds=start, images_timed=asked.images_timed,
        others_share=meter.others_share, environment=asked.environment, unmeasured=unmeasured, failed=failed,
        command=asked.command,
    )  # fmt: skip
    turns = list(cells["asked"].turns)
    return replace(seen, turns=len(turns), parts=tuple(_among(seen, cells, part) for part in parts_of(turns)))


def parts_of(turns: list[int]) -> list[list[int]]:
    """Thirds of the turns, or each by itself where there are fewer than three. Seen where
    each of nine was judged by itself: beside a busy program, some turns hold no undisturbed step of a worker."""
    count = min(len(turns), MOST_PARTS)
    return [turns[len(turns) * part // count : len(turns) * (part + 1) // count] for part in range(count)]


def _among(seen: Observations, cells: dict[str, _Visited], turns: list[int]) -> Observations:
    """What was seen in these turns, and of a cell that was not visited in them what was seen in all."""
    within: dict[str, Any] = {name: cell for name, each in cells.items() if (cell := each.seen(turns)) is not None}
    return replace(seen, **within)


def with_photos(case: UseCase, folder: Path) -> UseCase:
    """`case` with the photos of a folder `train/<class>/*.jpg` in place of random samples.

    Raises DataError for a folder that can't be read, CalibrationError for photos that do not fit the model.
    """
    from lockstep.api import images_of  # pandas is behind it

    photos = images_of(str(folder), "train", strict=False)[0]
    taken = case.train
    assert taken is not None
    if photos.shape != taken.shape or len(photos.classes) > len(taken.classes):
        raise CalibrationError(
            f"--data {folder} gives images of {list(photos.shape)} in {len(photos.classes)} classes, and the model "
            f"takes {list(taken.shape)} in {len(taken.classes)}; give --input {','.join(map(str, photos.shape))}, and "
            "a model with an output for each class"
        )
    return replace(case, train=photos)


def _cells(asked: RunAsked, cores: int) -> dict[str, _Visited]:
    """By the name in `Observations`. Raises CalibrationError, JobError."""
    own = asked.cell()
    own.job()  # refuses what can't be
    fitting = max(1, cores // asked.workers)
    cells = {"asked": _Visited(own)}
    if fitting != asked.threads_per_worker:
        cells["fitting"] = _Visited(replace(own, threads_per_worker=fitting))
    alone = CellAsked("local", 1, asked.batch, fitting)
    larger = max(2 * asked.batch, LEAST_LARGER_BATCH)
    return cells | {
        "alone": _Visited(alone),
        "larger": _Visited(replace(alone, per_worker_batch_size=larger)),
        "kept_denormals": _Visited(alone, keep_denormals=True),
    }


def _measure(
    meter: CellMeter, asked: RunAsked, cells: list[_Visited], progress: Callable[[str], None]
) -> tuple[str, float]:
    """Visit the cells in turns until the time is over; one whose workers fail is left out from then on. Returns why
    the asked cell was not measured, should it not have been, and the seconds of the start."""
    start, started = 0.0, set[int]()  # the asked cell comes first
    for number in range(1_000):
        for place, cell in enumerate(reversed(cells) if number % 2 == 0 and number else cells):
            if cell.failure:
                continue
            if (number == 0 and 0 < place < ALWAYS) or (number, place) == (1, 0):  # if it fits into a little more time
                meter.ends = max(meter.ends, time.monotonic() + min(2 * cells[0].visit_seconds, MORE_SECONDS))
            if number == 0 and meter.left <= 0:
                if place == 0:
                    return "the time was over", start
                break  # to the asked cell's second visit
            if number and meter.left < cell.visit_seconds:
                return "", start
            progress(cell.label)
            left = meter.left
            try:
                steps = _steps(cell.step_seconds, meter.left / len(cells)) if number else _first_steps(cells[0])
                traces = _visit(meter, asked, cell, steps)
            except WorkerFailed as failure:
                if meter.late:
                    return "the time was over", start
                cell.failure = str(failure).splitlines()[0]
                if cell is cells[0] and not cell.turns:
                    return str(failure), start
                continue
            cell.visit_seconds = left - meter.left
            if id(team := meter.team(cell.asked)) not in started:  # its start is no part of the time for measuring
                started.add(id(team))
                meter.ends += team.start_seconds
                cell.visit_seconds -= team.start_seconds
            start = start or team.start_seconds + max(trace.startup_seconds for trace in traces)
            cell.note(traces, number)
    return "", start


def _visit(meter: CellMeter, asked: RunAsked, cell: _Visited, steps: int) -> list[Trace]:
    """So many measured steps, after one that warms up. Raises WorkerFailed."""
    job = cell.asked.job(
        steps=steps, warmup_steps=1, environment=asked.environment, precision=asked.precision, seed=asked.seed
    )
    case, data = meter.case, meter.case.train
    if isinstance(data, DrawnSamples):  # as many as the steps need, so that every step has a whole batch
        case = replace(case, train=data.lasting(job.global_batch_size * (steps + 1)))
    visit = functools.partial(observed_visit, keep_denormals=True) if cell.keep_denormals else observed_visit
    return meter.run(cell.asked, job, Site(use_case=case), visit)


def _first_steps(own: _Visited) -> int:
    """Of a cell's first visit: one for the asked cell, and where that has shown that a step takes long; else two."""
    return 1 if own.step_seconds > VISIT_SECONDS else 2


def _steps(step_seconds: float, share_seconds: float) -> int:
    """As many as a visit should last, or as this cell's share of the time that is left has room for."""
    wanted = min(max(math.ceil(VISIT_SECONDS / step_seconds), FEWEST_STEPS), MOST_STEPS)
    return max(2, min(wanted, int(share_seconds / step_seconds) - 1))


def _copy_bandwidth(meter: CellMeter, asked: RunAsked, cell: CellAsked) -> float:
    """Bytes per second that one worker copies in memory, read plus written; 0 if it could not be measured."""
    try:
        job = cell.job(environment=asked.environment, precision=asked.precision, seed=asked.seed)
        return meter.run(cell, job, Site(use_case=meter.case), machine_visit)[0].scores.get(_COPY, 0.0)
    except WorkerFailed:
        return 0.0

"""Measures a calibration: one model, this machine, so many seconds, the most important first.

    the model is tried once        is it one, does it fit, is the machine quiet?
    two workers start              each trains alone with a batch of its own: memory, and how long a step takes
    rounds, in turned order        one worker with two batches; all cores without an exchange; two workers by each of
                                   three ways to agree; one worker with a thread per core; then the optimizer, copies,
                                   decoding
    after the first round          the layers of a model that can be cut
    if there is time               a parameter server, and a third round of all

What there was no time for is missing, and `cut_short` says so.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from lockstep import __version__
from lockstep.advisor.calibration import NOTHING, SCHEMA, Calibration, CalibrationError, PeakMemory
from lockstep.advisor.calibration_file import without_paths
from lockstep.advisor.measuring.asked_cells import CellAsked, Visits
from lockstep.advisor.measuring.batches import pair_of_batches, timed_batch
from lockstep.advisor.measuring.cells import measure_in_turns
from lockstep.advisor.measuring.layer_times import layer_times_of
from lockstep.advisor.measuring.machine_here import this_machine
from lockstep.advisor.measuring.meter import CellMeter
from lockstep.advisor.measuring.own_model import ModelAsked, OwnModel, look_at
from lockstep.advisor.measuring.worker_calls import PEAK, decode_visit, empty_visit, machine_visit, memory_visit
from lockstep.engine.cgroups import free_memory
from lockstep.engine.cores import usable_cores
from lockstep.engine.data.folders import open_folder
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.training.loop import Site, Trace
from lockstep.measure.contention import Contention
from lockstep.predict.layout_model import LayerTime

ROUNDS, FEWEST_ROUNDS = 3, 2
WAYS, GPU_WAYS = ("shared_memory", "allreduce", "ddp"), ("ddp", "allreduce")
"""By which two workers agree; the first ones are measured first."""
LATER_WAYS = ("parameter_server",)
WORKERS_START = "workers start"
"""What is told as soon as all that could be refused has been checked."""
_FIRST_STEP_SECONDS = 4.0  # of the asked batch, until it is halved for the measurement of memory
_TIMES_OF_LAYERS = 12  # steps of the larger batch, roughly
_MOST_WORKERS = 64
_OF_ALL_ROUNDS = 3  # of the cells, the first so many need ROUNDS; FEWEST_ROUNDS will do for the others
_QUIET_SECONDS = 1.0  # the least time in which it is told whether the machine is busy
Progress = Callable[[str], None]


def calibrate(
    asked: ModelAsked, seconds: float = 45.0, progress: Progress | None = None, *, force: bool = False
) -> Calibration:
    """Measure this model on this machine for about `seconds`.

    `progress` is told what is being measured. Raises CalibrationError for a model that can't be measured, a machine
    that others use (`force=True` goes on all the same), and if not even one worker could be measured; DataError for a
    folder of photos that can't be opened.
    """
    tell, began = progress or (lambda text: None), time.monotonic()
    if not seconds > 0:
        raise CalibrationError(f"{seconds:g} seconds are not possible; give more than 0")
    if asked.data:
        open_folder(asked.data, "train")
    tell("the model is tried once")
    own = _tried_on_quiet_machine(asked, tell, force)
    common = {"precision": asked.precision, "device": asked.device, "seed": asked.seed}
    with CellMeter(own.case, max(seconds - (time.monotonic() - began), 1.0), **common) as meter:  # type: ignore[arg-type]
        found = _Measuring(asked, own, meter, tell)
        found.measure()
    return found.calibration(time.monotonic() - began)


def _tried_on_quiet_machine(asked: ModelAsked, tell: Progress, force: bool) -> OwnModel:
    with Contention() as others:
        began = time.monotonic()
        own = look_at(asked)
        time.sleep(max(0.0, _QUIET_SECONDS - (time.monotonic() - began)))
    if others.contended():
        busy = f"other programs take {others.others_share:.0%} of the {others.usable_cores} cores' time"
        if not force:
            raise CalibrationError(
                f"{busy}, so what is measured now would not hold on a quiet machine; end them, or go on all the same "
                "with --force"
            )
        tell(f"{busy}: what is measured will be too slow")
    return own


class _Measuring:
    """What has been measured until now."""

    def __init__(self, asked: ModelAsked, own: OwnModel, meter: CellMeter, tell: Progress) -> None:
        self.asked, self.own, self.meter, self.tell = asked, own, meter, tell
        self.cores = len(usable_cores()) if asked.device == "cpu" else _gpus()
        self.cells: list[Visits] = []
        self.memory: list[PeakMemory] = []
        self.empty_bytes = 0
        self.start_seconds = 0.0
        self.optimiser_seconds: list[float] = []
        self.copies: list[float] = []
        self.decode_seconds: list[float] = []
        self.layers: tuple[LayerTime, ...] = ()
        self.missing: list[str] = []
        self.smaller = ""  # why less than half of the batch was timed

    @functools.cached_property  # free memory changes while it is measured
    def together(self) -> int:
        """Workers that train at the same time, for crowding: one for each core, as far as they fit into memory."""
        if self.asked.device != "cpu" or self.own.needed is None:
            return min(self.cores, _MOST_WORKERS)
        return max(1, min(self.cores, _MOST_WORKERS, free_memory() // self.own.needed.total))

    @property
    def host(self) -> CellAsked:
        """The cell whose team measures all that one or two workers do."""
        return CellAsked(NOTHING, 2 if self.together > 1 else 1, 1)

    def measure(self) -> None:
        """Everything, as far as there is time. Raises CalibrationError if not even one worker can train."""
        self.tell(WORKERS_START)
        self._start()
        large, small = self._measure_memory()
        self.cells = [Visits(each) for each in self._first_cells(large, small)]
        self._rounds(self.cells, 1)
        if not self.cells[0].step_seconds:
            why = self.cells[0].failure.splitlines()[0] if self.cells[0].failure else "no time was left"
            raise CalibrationError(f"one worker with a batch of {large} could not be measured: {why}")
        if not self.optimiser_seconds and not self.meter.late:  # not even one round
            self._measure_machine(1)
        self._measure_layers(large, small)
        self._rounds(self.cells, FEWEST_ROUNDS)
        self._rounds(self.cells[:_OF_ALL_ROUNDS], ROUNDS)
        later = [Visits(each) for each in self._later_cells(large)]
        self.cells += later
        if later and self.meter.left > self.start_seconds + 3 * self.cells[0].visit_seconds:
            self._rounds(later, FEWEST_ROUNDS)
        self._rounds(self.cells, ROUNDS)

    def _rounds(self, cells: Sequence[Visits], count: int) -> None:
        measure_in_turns(self.meter, cells, count, self._after_round)

    def _start(self) -> None:
        self.meter.host([self.host])
        try:
            team = self.meter.team(self.host)
            team.start()
            self.start_seconds = team.start_seconds
            self.empty_bytes = int(self._run(empty_visit)[0].scores[PEAK])
        except WorkerFailed as failure:
            raise CalibrationError(f"workers can't start: {failure}") from failure

    def _run(self, function: Callable[..., Trace], round_: int = 0, site: Site | None = None) -> list[Trace]:
        job = self.host.job(steps=1, warmup_steps=1, round=round_, message_bytes=self.own.facts.gradient_bytes)
        job = job.with_(precision=self.asked.precision, device=self.asked.device, seed=self.asked.seed)
        return self.meter.run(self.host, job, site or Site(use_case=self.own.case), function)

    def _measure_memory(self) -> tuple[int, int]:
        """The memory with two batches, each in a process that has trained nothing else; and the two batches that are
        to be timed."""
        large = self.asked.batch
        while large > 1 and large * self.own.sample_seconds > _FIRST_STEP_SECONDS:
            large //= 2
        batches = pair_of_batches(large)
        self.tell(f"memory with batches of {batches[0]} and {batches[1]}")
        at_once = self.host.workers > 1 and self.asked.device == "cpu"
        seconds: dict[int, float] = {}
        for turn in [batches] if at_once else [(each,) for each in reversed(batches)]:
            try:
                traces = self._run(functools.partial(memory_visit, batches=turn))
            except WorkerFailed as failure:
                self.missing.append(f"memory with a batch of {turn[0]} ({self._reason(failure)})")
                continue
            for batch, trace in zip(turn, traces, strict=False):
                self.memory.append(PeakMemory(batch, int(trace.scores[PEAK])))
                seconds[batch] = trace.steps[-1]["step_seconds"]
            if not at_once and self.asked.device == "cpu":
                self.meter.team(self.host).close()  # the other batch, too, is measured in a new process
        self.memory.sort(key=lambda each: each.per_worker_batch_size)
        timed = pair_of_batches(timed_batch(batches[0], seconds))
        if 2 * timed[0] < self.asked.batch:
            self.smaller = f"batches of {timed[0]} in place of {self.asked.batch}, whose step would take too long"
        return timed

    def _first_cells(self, large: int, small: int) -> list[CellAsked]:
        cells = [CellAsked("local", 1, large), CellAsked("local", 1, small)]
        if self.cores == 1:
            self.missing.append("two workers (this machine has one core)" if self.asked.device == "cpu" else "two GPUs")
        elif self.together == 1:
            self.missing.append("two workers (they do not fit into memory)")
        else:
            cells.append(CellAsked(NOTHING, self.together, large))
        ways = WAYS if self.asked.device == "cpu" else GPU_WAYS
        cells += [CellAsked(sync, 2, large) for sync in ways if self.together > 1]
        if self.cores > 1 and self.asked.device == "cpu":
            cells.append(CellAsked("local", 1, large, threads_per_worker=self.cores))
        return cells

    def _later_cells(self, large: int) -> list[CellAsked]:
        several = self.together > 1 and self.asked.device == "cpu"
        return [CellAsked(sync, 2, large) for sync in LATER_WAYS if several]

    def _after_round(self, number: int, cells: Sequence[object]) -> None:
        self.tell(f"round {number}: {len(cells)} ways to train")
        if len(self.optimiser_seconds) < number:
            self._measure_machine(number)

    def _measure_machine(self, number: int) -> None:
        """The optimizer alone, copies, decoding."""
        try:
            found = self._run(machine_visit, number)[0].scores
            self.optimiser_seconds.append(found["optimiser_seconds"])
            self.copies.append(found["copy_bytes_per_second"])
            if self.asked.data:
                site = Site(use_case=self.own.case, data_root=self.asked.data)
                decoded = self._run(decode_visit, number, site)[0].scores
                self.decode_seconds += decoded.values()
        except WorkerFailed as failure:
            self.missing.append(f"the optimizer alone ({self._reason(failure)})")

    def _measure_layers(self, large: int, small: int) -> None:
        if not self.own.sequential:
            return
        if self.meter.left < _TIMES_OF_LAYERS * self.cells[0].step_seconds[0]:
            self.missing.append("the layers by themselves (no time)")
            return
        self.tell("the layers by themselves")
        from lockstep.measure.probes.stages import run_layers  # with torch's pipelining, which takes seconds to load

        alone = CellAsked("local", 1, 1)
        measured = []
        try:
            for batch in (small, large):
                job = CellAsked("local", 1, batch).job(steps=2, warmup_steps=1, seed=self.asked.seed)
                job = job.with_(precision=self.asked.precision, device=self.asked.device)
                site = Site(use_case=self.own.case)
                measured.append((batch, self.meter.run(alone, job, site, run_layers)[0].tables["layers"]))
        except WorkerFailed as failure:
            self.missing.append(f"the layers by themselves ({self._reason(failure)})")
            return
        self.layers = layer_times_of(measured)

    def _reason(self, failure: WorkerFailed) -> str:
        return "the time was over" if self.meter.late else kind_of_failure(str(failure))

    def _why(self, visits: Visits) -> str:
        return kind_of_failure(visits.failure) if visits.failure else "no time was left"

    def _cut_short(self) -> str:
        """What is missing, and why; empty if nothing is."""
        unseen = [f"{each.asked.label} ({self._why(each)})" for each in self.cells if not each.step_seconds]
        parts = [f"without {', '.join([*unseen, *self.missing])}"] if unseen or self.missing else []
        fewest = min(len(each.step_seconds) for each in self.cells if each.step_seconds)
        parts += [self.smaller] if self.smaller else []
        return "; ".join(parts + ([f"{fewest} of {FEWEST_ROUNDS} rounds"] if fewest < FEWEST_ROUNDS else []))

    def calibration(self, seconds: float) -> Calibration:
        """All of it, `seconds` after its beginning."""
        return Calibration(
            schema=SCHEMA,
            model=replace(self.own.facts, arguments=without_paths(self.own.facts.arguments)),
            machine=this_machine(self.asked.device),
            cells=tuple(each.cell for each in self.cells if each.step_seconds),
            optimiser_seconds=tuple(self.optimiser_seconds),
            copy_bytes_per_second=tuple(self.copies),
            memory=tuple(self.memory),
            empty_process_bytes=self.empty_bytes,
            start_seconds=self.start_seconds,
            decode_seconds_per_image=tuple(self.decode_seconds),
            layers=self.layers,
            others_share=round(self.meter.others_share, 4),
            seconds=round(seconds, 2),
            cut_short=without_paths(self._cut_short()),
            versions={"lockstep": __version__},
        )


def kind_of_failure(message: str) -> str:
    """The type of the error that workers told, for their words may name the reader's files; else the first line."""
    found = re.findall(r"\b(?:\w+\.)*(\w+(?:Error|Exception))\b", message)
    return found[-1] if found else message.splitlines()[0]


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()

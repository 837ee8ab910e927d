"""Delays that were recorded: a task takes as much longer than its peers' as it did in a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lockstep.engine.delays.base import Delays, Floats
from lockstep.engine.delays.traces import StragglerTrace, read_trace
from lockstep.engine.options import JobError, choice, option

ALL_STAGES = -1


class TraceDelays(Delays):
    """A task takes as many times its work as the recorded one took of the median of its pipeline stage.

    Task t has factor t modulo the trace's length, so a trace belongs to the family of pauses, which are keyed by
    (worker, task), but it stretches a task evenly, and below the median a task is shorter than its work. Worker w is
    the w-th recorded worker of `stage`; with stage -1 those of all stages are workers, stage after stage, each compared
    within its own: what looks like a straggler may be a longer stage. Forecasts begin anew after a gap in the recorded
    steps, and where the trace is played again from its start.
    """

    name = "trace"
    family = "pauses"

    @dataclass(frozen=True)
    class Options:
        file: str = option("", "the trace, a CSV or Parquet file")
        stage: int = option(ALL_STAGES, "the pipeline stage whose workers these are; -1: all stages", least=ALL_STAGES)
        unit: str = choice("step", "micro_batch", help="what was recorded as one task")
        median: str = choice("step", "trace", help="of the stage's workers: in the same task, or over the whole trace")

        def __post_init__(self) -> None:
            if not self.file:
                raise JobError("no file is given; write trace:file=…, a CSV or Parquet file")

    options_kind = Options

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        """Raises JobError as `read_trace` does, and for fewer recorded workers than `workers`."""
        super().__init__(options, workers, seed)
        trace = read_trace(options.file)
        stages = trace.stages if options.stage == ALL_STAGES else (options.stage,)
        every = np.concatenate([self._stage(trace, stage) for stage in stages], axis=1)
        if every.shape[1] < workers:
            where = "all stages" if options.stage == ALL_STAGES else f"stage {options.stage}"
            raise JobError(
                f"delays={self.text!r}: {trace.name} records {every.shape[1]} workers in {where}, fewer than "
                f"workers={workers}"
            )
        self._factors = np.ascontiguousarray(every[:, :workers])
        self._lists = self._factors.tolist()
        per_step = len(every) // len(trace.segments)
        segments = trace.segments if per_step == 1 else np.repeat(np.arange(len(trace.segments)), per_step)
        self._first = np.diff(segments, prepend=-1) != 0  # of a segment

    def _stage(self, trace: StragglerTrace, stage: int) -> Floats:
        """The factors of one stage: [tasks, workers]."""
        by_step = self.options.unit == "step"
        seconds = trace.step_seconds(stage) if by_step else trace.micro_batch_seconds(stage)
        seconds = seconds.reshape(-1, seconds.shape[-1])
        medians = np.median(seconds, axis=1, keepdims=True) if self.options.median == "step" else np.median(seconds)
        if not np.all(medians > 0):
            raise JobError(f"delays={self.text!r}: in {trace.name} the median worker of stage {stage} takes 0 s")
        return seconds / medians

    def begins_anew(self, task: int) -> bool:
        return bool(self._first[task % len(self._first)])

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        if not 0 <= worker < self.workers:
            self._refuse(worker)
        if task < 0:
            self._what(task)
        return start + work_seconds * self._lists[task % len(self._lists)][worker]

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        factors = self._factors[self._what(tasks) % len(self._factors), self._who(workers)]
        return np.asarray(starts, np.float64) + np.asarray(work_seconds, np.float64) * factors

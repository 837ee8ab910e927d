"""How long tasks took, round by round: simulated under delays, or recorded in a trace.

round 0   worker 0 |---work---|...pause...|            | a barrier: all begin their next task
          worker 1 |---work---|                        | when the last one has ended
NaN       between two jobs, two steps of a trace, two recorded steps with others between them: nothing is forecast
          from one side to the other
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.delays import make_delays
from lockstep.engine.delays.credits import Credits
from lockstep.engine.delays.traces import read_trace

Array = NDArray[np.float64]
NOISE = 0.05
"""Standard deviation of the logarithm of a task's work: on no machine two equal tasks take the same time."""
_OF_THE_WORK = 10  # the stream of numpy's generator that draws it
JOBS = 8
"""So many short jobs follow each other where credits run out: an instance has them once, and does not get them back."""
TRACES = {"AR": 4, "SE": 32, "ST": 2}
"""The public traces, and how many data-parallel workers each stage of their pipelines has."""
EARLIER_RUNS, EARLIER_SEEDS = 4, 1_000_000
"""So many runs of a third of the length came before, for a forecaster that is trained on what a cluster has seen."""
FOLDER = "straggler-traces"
STEPS, MICRO_BATCHES = "steps", "micro-batches"


@dataclass(frozen=True)
class World:
    """What happened: [rounds, workers], NaN in rounds that lie between two jobs or segments.

    `seconds` that each task took; `work` that it would have taken without delays (of a trace NaN); `system`: numbers of
    the system's state as the round ended, by name.
    """

    seconds: Array
    work: Array
    system: Mapping[str, Array] = field(default_factory=dict)

    def after_a_gap(self) -> NDArray[np.bool_]:
        """[rounds]: whether nothing was seen in the round before, so that nothing may be forecast for this one."""
        gone = np.asarray(np.isnan(self.seconds).all(axis=1))
        return np.concatenate([[True], gone[:-1]])

    def runs(self, system: bool) -> list[Array]:
        """[rounds, workers, 1 + numbers of the system's state, if `system`]: what lies between gaps, each by itself."""
        whole = np.stack([self.seconds, *(self.system.values() if system else ())], axis=2)
        parts = np.split(whole, np.flatnonzero(self.after_a_gap()))
        return [part[~np.isnan(part[:, :, 0]).all(axis=1)] for part in parts if len(part)]


def simulated_world(delays: str, workers: int, rounds: int, seed: int) -> World:
    """Rounds of synchronous training in virtual time, whose tasks are a second of work each, give or take NOISE.

    Raises JobError for delays that do not exist or that so many workers can't have.
    """
    kind = delays.partition(":")[0]
    if kind != Credits.name:
        return _job(delays, workers, rounds, seed)
    parts = [_job(delays, workers, max(2, rounds // JOBS), JOBS * seed + job) for job in range(JOBS)]
    system = {name: apart([part.system[name] for part in parts]) for name in parts[0].system}
    return World(apart([part.seconds for part in parts]), apart([part.work for part in parts]), system)


def earlier_worlds(delays: str, workers: int, rounds: int, seed: int) -> list[World]:
    """Other, shorter runs of workers with the same kind of delays, none of which is that of any `simulated_world`."""
    first = EARLIER_SEEDS + EARLIER_RUNS * seed
    return [simulated_world(delays, workers, rounds // 3, first + run) for run in range(EARLIER_RUNS)]


def _job(delays: str, workers: int, rounds: int, seed: int) -> World:
    drawn = make_delays(delays, workers, seed)
    work = np.exp(NOISE * np.random.default_rng([seed, _OF_THE_WORK]).standard_normal((rounds, workers)))
    seconds, credits, clock = np.empty_like(work), np.empty_like(work), 0.0
    everybody = np.arange(workers)
    for task in range(rounds):
        ended = drawn.ends(everybody, task, clock, work[task])
        seconds[task] = ended - clock
        clock = float(ended.max())
        if isinstance(drawn, Credits):
            credits[task] = drawn.left(clock)
    return World(seconds, work, {"credits": credits} if isinstance(drawn, Credits) else {})


def apart(parts: Sequence[Array]) -> Array:
    """The parts, [rounds, workers] each, one after the other with a round of NaN between them."""
    gap = np.full((1, parts[0].shape[1]), np.nan)
    return np.concatenate([each for part in parts for each in (part, gap)][:-1])


def recorded_worlds(root: str, name: str, unit: str) -> list[World]:
    """One world for each stage of the pipeline, since a worker is compared within its stage.

    `unit`: STEPS, with a gap wherever recorded steps do not follow each other; MICRO_BATCHES, with one after each step.
    Raises JobError as `read_trace` does.
    """
    trace = read_trace(trace_file(root, name))
    worlds = []
    for stage in trace.stages:
        if unit == STEPS:
            seconds = trace.step_seconds(stage)
            parts = [seconds[trace.segments == segment] for segment in np.unique(trace.segments)]
        else:
            parts = list(trace.micro_batch_seconds(stage))
        seconds = apart(parts)
        worlds.append(World(seconds, np.full_like(seconds, np.nan)))
    return worlds


def trace_file(root: str, name: str) -> Path:
    """Where the data folder has that trace, if it has it."""
    return Path(root) / FOLDER / f"{name}.parquet"

"""Notebook 13's cells. Those of a model stand in one round: what the advisor is calibrated with, and what it predicts.

calibration     one worker at two batches, one of several threads, and two by each way to exchange at one batch
crowded         as many workers as there, each by itself: what busy neighbours cost without any exchange
held_out        other batches, and more workers than cores
held_out_hosts  two emulated hosts, with a worker or two on each
memory          new processes, since a warm one holds what it used last: two batches of one worker, and two workers
wire            a ping-pong between these hosts: all that the advisor is told of their link

Some cells stand twice in a round, as variants a and b: what the same cell differs by from itself is the noise floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job, JobError
from lockstep.experiments.experiment import Parameters
from lockstep.measure.planning import Comparison
from lockstep.records import MEMORY

CALIBRATION, CROWDED, HELD_OUT, HOSTS, WIRE = "calibration", "crowded", "held_out", "held_out_hosts", "wire"
WAYS = ("processes", "processes_allreduce", "ddp")
"""Ways to exchange that the advisor calibrates."""
SHARED, SUMMED, DDP = WAYS
THREADS = "intra_op"
OVER_LINKS = ("mpi_allreduce", "mpi_shared_memory")
TIMES_THE_SMALL_BATCH = 4
"""One worker is calibrated at a batch and at one that is so many times smaller, as `lockstep advise` does."""
MOST_ROUNDS, MEMORY_ROUNDS = 60, 1
"""Of each model as many as the minutes allow; how much memory is held hardly differs from round to round."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell, model after model, in the order of a round."""
    if not chosen.use_cases:
        raise JobError("use_cases=[] leaves nothing to measure; name at least one")
    jobs = _wire(chosen)
    for use_case in chosen.use_cases:
        others = [*_other_cells(chosen, use_case), *_on_hosts(chosen, use_case)]
        jobs += _alternating(_calibrating(chosen, use_case), others) + _holding(chosen, use_case)
    return list(dict.fromkeys(jobs))


def planned(chosen: Parameters, jobs: Sequence[Job]) -> list[Comparison]:
    """A round of each model in turn, of all its cells that can run here; those that can't stand alone, for their rows
    that say why."""
    from lockstep.measure.cell import why_impossible  # torch: only who measures waits for it

    possible = [place for place, job in enumerate(jobs) if why_impossible(job) is None]
    wire = [place for place in possible if jobs[place].experiment == WIRE]
    timed = [place for place in possible if jobs[place].experiment != MEMORY]
    found = []
    for use_case in chosen.use_cases:
        own = [place for place in timed if jobs[place].use_case == use_case]
        found.append(Comparison((*wire, *own), rounds=MOST_ROUNDS, once=True))
    apart = [place for place, job in enumerate(jobs) if place not in possible or job.experiment == MEMORY]
    return [*found, *(Comparison((place,), rounds=MEMORY_ROUNDS) for place in apart)]


def _calibrating(chosen: Parameters, use_case: str) -> list[Job]:
    """What `lockstep advise` measures of a model."""
    small, batch = _batches(chosen, use_case)
    alone = [_cell(chosen, CALIBRATION, "sequential", use_case, size) for size in (small, batch)]
    crowded = _cell(chosen, CROWDED, SHARED, use_case, batch)
    teams = [_cell(chosen, CALIBRATION, way, use_case, batch) for way in WAYS]
    return [alone[1], crowded, alone[0], *_threads(chosen, CALIBRATION, use_case, batch // 2), *teams]


def _batches(chosen: Parameters, use_case: str) -> tuple[int, int]:
    """The two batches of one worker."""
    batch = int(chosen.of("per_worker_batch_size", use_case))
    return max(1, batch // TIMES_THE_SMALL_BATCH), batch


def _other_cells(chosen: Parameters, use_case: str) -> list[Job]:
    """Held-out cells of one host and the second halves of the A/A pairs; fewer of a model whose steps are long."""
    batch = _batches(chosen, use_case)[1]
    half, again = max(1, batch // 2), [_cell(chosen, CALIBRATION, SHARED, use_case, batch, variant="b")]
    if use_case in chosen.long_steps:
        return [*again, *(_cell(chosen, HELD_OUT, way, use_case, half) for way in (SHARED, SUMMED))]
    asked = [(SHARED, 2 * batch), ("sequential", 2 * batch), (SUMMED, 2 * batch), ("sequential", half), (SHARED, half)]
    jobs = [_cell(chosen, HELD_OUT, way, use_case, size) for way, size in [*asked, (DDP, half)]]
    jobs += _threads(chosen, HELD_OUT, use_case, batch)
    jobs += [_cell(chosen, HELD_OUT, SHARED, use_case, batch, workers=workers) for workers in chosen.turn_workers]
    again.insert(0, _cell(chosen, CALIBRATION, "sequential", use_case, batch, variant="b"))
    most = max(chosen.turn_workers)
    one, other = (_cell(chosen, HELD_OUT, SUMMED, use_case, batch, workers=most, variant=each) for each in ("a", "b"))
    return [jobs[0], again[1], one, *jobs[1:4], again[0], *jobs[4:], other]


def _threads(chosen: Parameters, experiment: str, use_case: str, batch: int) -> list[Job]:
    """One worker whose operators use all cores, with the batches of as many workers together."""
    return [] if use_case in chosen.long_steps else [_cell(chosen, experiment, THREADS, use_case, batch)]


def _on_hosts(chosen: Parameters, use_case: str) -> list[Job]:
    if use_case in chosen.long_steps:
        return []
    batch, rate = _batches(chosen, use_case)[1], chosen.link_rate
    jobs = []
    for workers in (2, 2 * chosen.workers):
        for way in OVER_LINKS if workers > 2 else OVER_LINKS[:1]:
            where = {"hosts": 2, "link_bits_per_second": rate, "workers": workers}
            jobs.append(_cell(chosen, HOSTS, way, use_case, batch, **where))
    return jobs


def _holding(chosen: Parameters, use_case: str) -> list[Job]:
    small, batch = _batches(chosen, use_case)
    larger = batch if use_case in chosen.long_steps else 2 * batch
    asked = [("sequential", small), ("sequential", batch), (SUMMED, batch), (SHARED, larger)]
    return [_cell(chosen, MEMORY, way, use_case, size) for way, size in asked]


def _wire(chosen: Parameters) -> list[Job]:
    """Messages from one host to the other and back, without a model."""
    if not set(chosen.use_cases) - set(chosen.long_steps):
        return []
    where: dict[str, Any] = {"hosts": 2, "link_bits_per_second": chosen.link_rate, "workers": 2, "input": "none"}
    where |= {"use_case": NO_USE_CASE, "steps": 4, "warmup_steps": 1}
    sizes = [Job.of("mpi_allreduce", experiment=WIRE, message_bytes=size, **where) for size in chosen.message_bytes]
    return [job.with_(strategy="ping_pong", sync="ping_pong") for job in sizes]


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str, batch: int, **fields: Any) -> Job:
    """Samples are in memory before the clock starts: how long decoding takes is another question."""
    given: dict[str, Any] = {"workers": chosen.workers, "input": "memory", "warmup_steps": chosen.warmup_steps}
    given |= {"steps": chosen.of("steps", use_case), "per_worker_batch_size": batch}
    return Job.of(strategy, experiment=experiment, use_case=use_case, **given | fields)


def _alternating(first: Sequence[Job], second: Sequence[Job]) -> list[Job]:
    """Both in their order, mixed evenly: a machine that is slower for some seconds should strike both alike."""
    every = -(-len(second) // len(first))
    parts = [second[start : start + every] for start in range(0, len(second), every)]
    mixed = [[one, *part] if one else list(part) for one, part in zip_longest(first, parts, fillvalue=())]
    return [job for part in mixed for job in part]

"""What notebook 09's own cells measure: the pool's learning curves, and one list of trials by one engine and by two."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training.finite import NotFiniteError
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.usecases import use_case
from lockstep.experiments.e09_autotuning.grid import ENGINES, POOL, SETTINGS_PER_ROUND
from lockstep.experiments.e09_autotuning.stored_pool import CURVES, TRIALS, read_space
from lockstep.experiments.e09_autotuning.timing import STUDIES, run_engine_counts
from lockstep.measure.probes.probe import Probe, Probes
from lockstep.records.places import repository_root

Row = dict[str, Any]
POOL_SEED = 0
"""Draws the pool's settings: number n of the pool is the same setting in every run of one space."""


def run_pool(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Trains SETTINGS_PER_ROUND settings to the end, each by one engine: tables `trials` and `curves`.

        round (seed) 3    settings 12 13 14 15        engine 0: 12, 14      engine 1: 13, 15
    """
    site = site or Site()
    space, held_out = read_space(repository_root()), count_held_out(job, site)
    first = job.seed * SETTINGS_PER_ROUND
    trials, curves = [], []
    for number in range(first, first + SETTINGS_PER_ROUND)[group.rank :: group.size]:
        group.enter("compute")
        setting = space.draw(POOL_SEED, number)
        row, epochs = train_setting(space.job(alone(job), setting).with_(seed=number), site)
        told = {"number": number, "space": space.fingerprint, "held_out": held_out}
        trials.append({**told, **of_setting(setting), **row})
        curves += [{"number": number, **epoch} for epoch in epochs]
    everyones = allgather_object(group, {TRIALS: trials, CURVES: curves})
    tables = {name: [row for own in everyones for row in own[name]] for name in (TRIALS, CURVES)}
    spent = sum(row["seconds"] for row in tables[TRIALS])
    return Trace(group.rank, scores={"training_seconds": spent}, tables=tables)


def count_held_out(job: Job, site: Site) -> int:
    """The images that a score is of."""
    return len(use_case(job.use_case).open("train", site.data_root, job.images, site.skipped, part="held_out"))


def alone(job: Job) -> Job:
    """What one engine trains by itself, with the same images and memory format, epochs and scores."""
    names = ("use_case", "epochs", "scored_on", "images", "memory_format", "data_source")
    return Job.of("sequential", experiment=POOL, **{name: getattr(job, name) for name in names})


def train_setting(job: Job, site: Site) -> tuple[Row, list[Row]]:
    """A row of `trials` without the setting, and the rows of `curves`.

    A loss that is no finite number ends the training, with its reason; its epochs until then are lost.
    """
    began, processor = time.perf_counter(), time.process_time()
    row: Row = {"state": "finished", "reason": "", "score": math.nan}
    epochs: list[Row] = []
    try:
        trace = run_job(job, ThreadGroup.of(1)[0], site)
    except NotFiniteError as error:
        row |= {"state": "diverged", "reason": str(error).partition(":")[0]}
    else:
        epochs = [_epoch(each) for each in trace.tables["epochs"]]
        row["score"] = epochs[-1]["score"]
    row |= {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - processor}
    return row, epochs


def _epoch(row: Mapping[str, Any]) -> Row:
    return {**row, "score": math.exp(-row["validation_loss"])}


def of_setting(setting: Mapping[str, Any]) -> Row:
    """A setting as a traced table holds it: yes and no as 1 and 0."""
    return {name: int(value) if isinstance(value, bool) else value for name, value in setting.items()}


def probes() -> Probes:
    cell = ("epochs", "images", "seed")
    pool = Probe(run_pool, tables={TRIALS: cell, CURVES: cell})
    return {POOL: pool, ENGINES: Probe(run_engine_counts, tables={STUDIES: ("images",)})}

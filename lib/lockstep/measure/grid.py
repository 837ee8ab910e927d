"""Running a grid: rounds of interleaved variants, one row per variant and round.

round 0   ddp 2 | sequential a | processes 2 | sequential b | threads 2       -> written, whole
round 1   sequential b | threads 2 | ddp 2 | processes 2 | sequential a       -> written, whole
...       (a seeded order of its own for each round, so that no variant always follows the same one; cells of a team
           that is too large to stay warm beside others stand together)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.cores import usable_cores
from lockstep.engine.job import LEARNING, NO_USE_CASE, OF_LEARNING, Job, JobError
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.launch.environment import PROFILES
from lockstep.engine.training.loop import STEP_COLUMNS, Site, Trace
from lockstep.engine.training.scores import DIVERGED
from lockstep.engine.usecases import Source, find_images, use_case
from lockstep.measure.contention import Contention
from lockstep.measure.environment import capture, missing
from lockstep.measure.probes import EXPERIMENTS, OF_ALL_FRAMEWORKS, RESTARTED, STEPS_TRACED
from lockstep.measure.resources import ResourceSampler
from lockstep.measure.steps import step_table
from lockstep.measure.teams import Teams
from lockstep.records import Row, RunFolder, make_row
from lockstep.records.places import repository_root

# Cells of a round that may be measured again because others used the machine. A neighbour that never rests would
# otherwise double the time of a run and gain nothing; such rows say that they are contended.
_REDO_PER_ROUND = 1
_SLOWEST = (
    "step_seconds", "input_seconds", "compute_seconds", "forward_seconds", "backward_seconds", "exchange_seconds",
    "update_seconds",
)  # fmt: skip
_CELL_OF_TABLES = ("experiment", "use_case", "strategy", "round", "workers", "device")
_ALSO_OF_STEPS = ("launcher", "hosts", "variant")
_OF_PIPELINES = ("stages", "actions", "layers")
_ALSO_OF_SPARK = ("images", "global_batch_size", "exchange_every", "executor_data", "variant")
_ALSO_OF_OPERATORS = ("global_batch_size", "network", "framework")
_OF_LEARNING = ("epochs", "confusion")
_ALSO_OF_LEARNING: tuple[str, ...] = ("images", "launcher", "framework", "global_batch_size", "exchange_every")
_ALSO_OF_LEARNING += ("memory_format", "stages", "micro_batches", *OF_LEARNING, "seed", "variant", "selected")
_ALSO_OF_PIPELINES: tuple[str, ...] = ("schedule", "stages", "stages_per_rank", "micro_batches")
_ALSO_OF_PIPELINES += ("partition", "activations", "global_batch_size", "variant")
_ACCURACIES = ("train_accuracy", "validation_accuracy", "test_accuracy")
_LARGEST = ("wait_seconds", "decode_seconds", "bytes_sent")


def run_grid(
    jobs: Sequence[Job],
    *,
    notebook: str,
    results: str | Path,
    rounds: int,
    parameters: Mapping[str, Any],
    data_dir: str = "",
    images: int = 0,
    strict: bool = False,
    traced: Callable[[Job], bool] = lambda job: False,
) -> Path:
    """Measure every job in each of `rounds` rounds into `<results>/<notebook>/`; returns that folder.

    Rounds that stand there already are kept: a killed run goes on where it was. A cell that fails or can't run here
    is a row that says why. `images` limits the training photos (see `find_images`); all test photos are used. Photos
    that can't be read are left out, warned about and counted in `skipped_images`; `strict` allows none. The samples of
    CPU, memory and threads are stored of the cells for which `traced` is true. Raises
    RecordError, WriteError, DataError, JobError before anything is measured, also for choices that a use case has not.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise JobError(f"rounds={rounds!r} is not possible; give a whole number of at least 1")
    repository = repository_root()
    folder = (repository / results if not Path(results).is_absolute() else Path(results)) / notebook
    jobs, sources = _with_images(jobs, data_dir, images, strict)
    with Teams() as teams:
        for job in jobs:
            if _why_not(job) is None:
                teams.team(job)
        info = {
            **capture(repository),
            "notebook": notebook,
            "data": {
                name: {"source": found.kind, "train_images": found.train_images, "skipped_images": len(found.skipped)}
                for name, found in sources.items()
            },
            "parameters": {name: value for name, value in parameters.items() if name != "rounds"},
            "environment_profiles": {name: dict(PROFILES[name]) for name in sorted({job.environment for job in jobs})},
            "workers": teams.placements(),
        }
        with RunFolder(folder, info) as run:
            for number in range(rounds):
                if number in run.rounds_done:
                    _say(f"round {number + 1} of {rounds}: stands in {folder.name} already")
                    continue
                _measure_round(run, jobs, sources, teams, number, rounds, traced)
    return folder


def _measure_round(
    run: RunFolder,
    jobs: Sequence[Job],
    sources: Mapping[str, Source],
    teams: Teams,
    number: int,
    rounds: int,
    traced: Callable[[Job], bool],
) -> None:
    redone = 0
    rows: list[tuple[int, Row]] = []
    frames_of: dict[str, list[pd.DataFrame]] = {}
    shuffled = np.random.default_rng([number, len(jobs)]).permutation(len(jobs))
    order = teams.in_a_row(jobs, (int(index) for index in shuffled))
    for place, index in enumerate(order):
        job = _of_round(jobs[index], number)
        source = sources.get(job.use_case)
        row, tables, disturbed = measure_job(job, source, teams, traced(job))
        if disturbed and job.experiment not in LEARNING and redone < _REDO_PER_ROUND:
            redone += 1
            _say(f"{job.label}: others used the machine meanwhile, measured again")
            again = measure_job(job, source, teams, traced(job))
            if again[0]["status"] == "ok":
                row, tables, _ = again
        rows.append((index, row))
        for name, frame in tables.items():
            frames_of.setdefault(name, []).append(frame)
        _say(f"round {number + 1} of {rounds}, {place + 1:2d}/{len(jobs)}: {job.experiment} {job.label}: {_told(row)}")
    whole = {name: pd.concat(frames) for name, frames in frames_of.items()}
    run.write_round([row for _, row in sorted(rows, key=lambda pair: pair[0])], whole)


def _of_round(job: Job, number: int) -> Job:
    """What is learnt differs from round to round by its seed; a time differs by itself."""
    return job.with_(round=number, **({"seed": number} if job.experiment in LEARNING else {}))


def measure_job(
    job: Job, source: Source | None, teams: Teams, traced: bool = False
) -> tuple[Row, dict[str, pd.DataFrame], bool]:
    """One cell: its row, its part of the traced tables, and whether others disturbed it.

    `traced`: its samples of CPU, memory and threads are a table too. Failed and impossible cells are rows too.
    """
    why = _why_not(job)
    if why is not None:
        return make_row(job, {}, status="skipped", reason=why), {}, False
    team = teams.team(job)
    site = Site(data_root=source.root, skipped=source.skipped) if source else Site()
    function = EXPERIMENTS.get(job.experiment)
    try:
        if job.experiment in RESTARTED:
            team.close()
        teams.make_room(job)
        team.start()
        network = job.link_bits_per_second > 0
        with Contention(network=network) as contention, ResourceSampler(team.pids) as sampler:
            traces = team.run(job, site, function)
    except WorkerFailed as failure:
        _say(str(failure))
        return make_row(job, {}, status="failed", reason=str(failure).splitlines()[0]), {}, False
    measured = summarise(job, traces)
    measured.update(
        peak_pss_bytes=float(sampler.peak_pss_bytes),
        other_cpu_seconds=contention.other_cpu_seconds,
        steal_seconds=contention.steal_seconds,
        launch_seconds=team.start_seconds,
    )
    if source is not None and source.kind == "real":  # the stand-in is not looked at
        measured["skipped_images"] = len(source.skipped)
    notes = job.cautions(len(usable_cores()))
    if contention.contended():
        notes.append("contended")
    if team.repeated:  # by other processes than those that were sampled
        notes.append(team.repeated)
        del measured["peak_pss_bytes"]
    # Not ok: a mean over the seeds that are would not tell of the others.
    diverged = any(math.isnan(measured.get(name, 0.0)) for name in _ACCURACIES)
    status, notes = ("failed", [DIVERGED, *notes]) if diverged else ("ok", notes)
    row = make_row(job, measured, status=status, reason="; ".join(notes))
    return row, _tables(job, traces, sampler if traced and not team.repeated else None), contention.contended()


def _why_not(job: Job) -> str | None:
    """Why this cell can't be measured here; None if it can."""
    if job.framework != "torch" and not _asks_for_framework(job):
        return f"experiment {job.experiment!r} measures torch alone, not {job.framework}"
    return missing(job)


def _asks_for_framework(job: Job) -> bool:
    """Does what is measured depend on the job's framework, so that it may be another than torch?"""
    return job.experiment not in EXPERIMENTS or job.experiment in OF_ALL_FRAMEWORKS


def _tables(job: Job, traces: Sequence[Trace], sampler: ResourceSampler | None) -> dict[str, pd.DataFrame]:
    """The cell's rows of the traced tables, each told from the other cells' by its first columns."""
    kept = _OF_LEARNING if job.experiment in LEARNING else traces[0].tables  # what stages did is no matter there
    found = {name: pd.DataFrame(rows) for name, rows in traces[0].tables.items() if name in kept}
    for name in set(found).intersection(_OF_LEARNING):
        for place, column in enumerate(_ALSO_OF_LEARNING):
            told = f"job_{column}" if column in found[name] else column  # an epoch has a learning rate of its own
            found[name].insert(place, told, getattr(job, column))
    for name in _ALSO_OF_OPERATORS if "operators" in found else ():
        found["operators"].insert(0, name, getattr(job, name))
    for name in set(found).intersection(_OF_PIPELINES):
        for place, column in enumerate(_ALSO_OF_PIPELINES):
            found[name].insert(place, column, getattr(job, column))
    for name in _ALSO_OF_SPARK if "spark" in found else ():
        found["spark"].insert(0, name, getattr(job, name))
    if sampler is not None:
        found["resources"] = _samples(traces, sampler)
    if job.experiment in STEPS_TRACED:
        found["steps"] = step_table(traces)
        for name in _ALSO_OF_STEPS:
            found["steps"].insert(0, name, getattr(job, name))
    for frame in found.values():
        for name in _CELL_OF_TABLES:
            frame.insert(0, name, getattr(job, name))
    return found


def _samples(traces: Sequence[Trace], sampler: ResourceSampler) -> pd.DataFrame:
    """What was sampled during the measured steps, not while models were built."""
    samples = sampler.frame()
    # perf_counter is one clock for all processes of a machine.
    began = min(trace.began for trace in traces) - sampler.began
    ended = max(trace.ended for trace in traces) - sampler.began
    return samples[samples["seconds"].between(began, ended)].assign(seconds=lambda kept: kept["seconds"] - began)


def summarise(job: Job, traces: Sequence[Trace]) -> dict[str, float]:
    """The measurements of a row from the traces of all ranks: means over steps, then the slowest rank."""
    if not any(trace.steps for trace in traces):  # a profile: its table holds what was measured
        return dict(traces[0].scores)
    # Per step of the workers: a server that is asked less often has fewer rows.
    count = traces[0].summed or len(traces[0].steps)
    sums = [pd.DataFrame(trace.steps, columns=list(STEP_COLUMNS)).sum(min_count=1) for trace in traces]
    means = pd.DataFrame(sums) / count
    measured = {name: float(means[name].max()) for name in (*_SLOWEST, *_LARGEST)}
    measured |= _of_links(job, means)
    if job.model_parallel == "pipeline":
        measured["idle_seconds"] = float(means["idle_seconds"].mean())
    measured["startup_seconds"] = max(trace.startup_seconds for trace in traces)
    if means["images"].sum():
        # Losses are sums over a rank's share, weighted by 1 / global batch.
        measured["train_loss"] = float(means["train_loss"].sum())
        measured["images_per_second"] = float(means["images"].sum()) / measured["step_seconds"]
        if job.images and job.scored_on != "validation":  # of which a fifth is not trained on
            measured["epoch_seconds"] = job.images / measured["images_per_second"]
    return measured | traces[0].scores


def _of_links(job: Job, means: pd.DataFrame) -> dict[str, float]:
    """What the emulated links carried per step, counted once per host; nothing where there are none.

    What one host sends another receives. Of the two sums the larger one counts: a server's last messages may still be
    under way when it looks at its link, while a receiver looks when it has them.
    """
    if not job.link_bits_per_second:
        return {}
    hosts = means.groupby([rank * job.hosts // job.ranks for rank in range(job.ranks)])  # equal blocks of ranks
    sent, received = hosts["link_bytes_sent"].max(), hosts["link_bytes_received"].max()
    total = max(sent.sum(), received.sum())
    return {"link_bytes_sent": float(total), "link_bytes_busiest": float(max(sent.max(), received.max()))}


def _with_images(jobs: Sequence[Job], data_dir: str, images: int, strict: bool) -> tuple[list[Job], dict[str, Source]]:
    """Where each use case's images are, and the jobs that say how many and of which kind."""
    for job in jobs:
        _check_choices(job)
    names = dict.fromkeys(job.use_case for job in jobs if job.use_case != NO_USE_CASE)
    sources = {name: find_images(use_case(name), data_dir or None, images, strict) for name in names}

    def told(job: Job) -> Job:
        source = sources.get(job.use_case)
        if source is None:
            return job
        # A job may ask for fewer than there are: what changes with the size of a data set.
        count = min(job.images or source.train_images, source.train_images)
        return job.with_(images=count, data_source=source.kind)

    jobs = [told(job) for job in jobs]
    held_out = ((job.use_case, job.images) for job in jobs if job.scored_on == "validation")
    for name, count in dict.fromkeys(held_out):  # DataError for a class that is too small for it
        use_case(name).open("train", sources[name].root, count, sources[name].skipped, part="held_out")
    return jobs, sources


def _check_choices(job: Job) -> None:
    """Raises JobError for a network or framework that the job's use case has not."""
    if job.use_case == NO_USE_CASE:
        return
    case = use_case(job.use_case).for_job(job)
    if job.framework == "tensorflow" and case.network is None and _asks_for_framework(job):
        raise JobError(
            f"framework='tensorflow' with use_case={job.use_case!r}, whose network is a torch model; give a use case "
            "of small images, or framework='torch'"
        )


def _told(row: Row) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}"
    if row["updates_done"]:
        scored = [f"{row[name]:.1%} {name.split('_')[0]}" for name in _ACCURACIES if row[name] is not None]
        return ", ".join([f"{row['updates_done']} updates in {row['training_seconds']:.1f} s", *scored])
    if row["images_per_second"]:
        return f"{row['images_per_second']:.1f} images/s, {row['step_seconds']:.3f} s a step"
    parts = [f"{row['flops_per_second'] / 1e9:.0f} GFLOP/s"] if row["flops_per_second"] else []
    parts += [f"{row['bandwidth_bytes_per_second'] / 1e9:.1f} GB/s"] if row["bandwidth_bytes_per_second"] else []
    if not parts and row["step_seconds"] is None:
        return "measured, in a table of its own"
    return ", ".join(parts) or f"{row['step_seconds']:.4f} s"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

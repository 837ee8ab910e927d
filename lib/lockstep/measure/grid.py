"""Running a grid: rounds of interleaved variants, one row per variant and round.

round 0   ddp 2 | sequential a | processes 2 | sequential b | threads 2       -> written, whole
round 1   sequential b | threads 2 | ddp 2 | processes 2 | sequential a       -> written, whole
...       (a seeded order of its own for each round, so that no variant always follows the same one; cells of a team
           that is too large to stay warm beside others stand together)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import LEARNING, NO_USE_CASE, Job, JobError
from lockstep.engine.launch.environment import PROFILES
from lockstep.engine.usecases import Source, find_images, use_case
from lockstep.measure.cell import depends_on_framework, measure_job, why_impossible
from lockstep.measure.environment import capture
from lockstep.measure.progress import one_line, say
from lockstep.measure.teams import Teams
from lockstep.records import Row, RunFolder
from lockstep.records.places import repository_root

# How many cells of a round may be measured again because others used the machine. A neighbor that never rests would
# otherwise double the time of a run and gain nothing; such rows say that they are contended.
_REDO_PER_ROUND = 1


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

    Rounds that are stored there already are kept, so a killed run continues where it was. A cell that fails or can't
    run here is a row that says why. `images` limits the training photos (see `find_images`); all test photos are used.
    Photos that can't be read are left out, with a warning, and counted in `skipped_images`; `strict` allows none.
    Samples of CPU, memory and threads are stored for the cells for which `traced` is true. Raises RecordError,
    WriteError, DataError or JobError before anything is measured, also for a choice that a use case does not offer.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise JobError(f"rounds={rounds!r} is not possible; give a whole number of at least 1")
    repository = repository_root()
    folder = (repository / results if not Path(results).is_absolute() else Path(results)) / notebook
    jobs, sources = _with_images(jobs, data_dir, images, strict)
    with Teams() as teams:
        for job in jobs:
            if why_impossible(job) is None:
                teams.team(job)
        info = _described(repository, notebook, parameters, jobs, sources, teams)
        with RunFolder(folder, info) as run:
            for number in range(rounds):
                if number in run.rounds_done:
                    say(f"round {number + 1} of {rounds}: is in {folder.name} already")
                    continue
                _measure_round(run, jobs, sources, teams, number, rounds, traced)
    return folder


def _described(
    repository: Path,
    notebook: str,
    parameters: Mapping[str, Any],
    jobs: Sequence[Job],
    sources: Mapping[str, Source],
    teams: Teams,
) -> dict[str, Any]:
    """The contents of `run.json`: under which conditions this grid is measured."""
    return {
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


def _measure_round(
    run: RunFolder,
    jobs: Sequence[Job],
    sources: Mapping[str, Source],
    teams: Teams,
    number: int,
    rounds: int,
    traced: Callable[[Job], bool],
) -> None:
    """Measure every job once, in an order of this round's own, and write the rows in the order of `jobs`."""
    redone = 0
    rows: list[tuple[int, Row]] = []
    frames_of: dict[str, list[pd.DataFrame]] = {}
    shuffled = np.random.default_rng([number, len(jobs)]).permutation(len(jobs))
    order = teams.in_a_row(jobs, (int(index) for index in shuffled))
    for done, index in enumerate(order, 1):
        job = _of_round(jobs[index], number)
        source = sources.get(job.use_case)
        row, tables, disturbed = measure_job(job, source, teams, traced(job))
        if disturbed and job.experiment not in LEARNING and redone < _REDO_PER_ROUND:
            redone += 1
            say(f"{job.label}: others used the machine meanwhile, measured again")
            again = measure_job(job, source, teams, traced(job))
            if again[0]["status"] == "ok":
                row, tables, _ = again
        rows.append((index, row))
        for name, frame in tables.items():
            frames_of.setdefault(name, []).append(frame)
        say(f"round {number + 1} of {rounds}, {done:2d}/{len(jobs)}: {job.experiment} {job.label}: {one_line(row)}")
    whole = {name: pd.concat(frames) for name, frames in frames_of.items()}
    run.write_round([row for _, row in sorted(rows, key=lambda pair: pair[0])], whole)


def _of_round(job: Job, number: int) -> Job:
    """The job of this round. What is learnt varies from round to round by its seed; a time varies by itself."""
    return job.with_(round=number, **({"seed": number} if job.experiment in LEARNING else {}))


def _with_images(jobs: Sequence[Job], data_dir: str, images: int, strict: bool) -> tuple[list[Job], dict[str, Source]]:
    """The jobs, with the number and the kind of their images filled in, and where each use case's images are."""
    for job in jobs:
        _check_choices(job)
    names = dict.fromkeys(job.use_case for job in jobs if job.use_case != NO_USE_CASE)
    sources = {name: find_images(use_case(name), data_dir or None, images, strict) for name in names}

    def with_count(job: Job) -> Job:
        source = sources.get(job.use_case)
        if source is None:
            return job
        # A job may ask for fewer images than there are, to show what changes with the size of a data set.
        count = min(job.images or source.train_images, source.train_images)
        return job.with_(images=count, data_source=source.kind)

    jobs = [with_count(job) for job in jobs]
    held_out = ((job.use_case, job.images) for job in jobs if job.scored_on == "validation")
    for name, count in dict.fromkeys(held_out):  # DataError for a class that is too small for it
        use_case(name).open("train", sources[name].root, count, sources[name].skipped, part="held_out")
    return jobs, sources


def _check_choices(job: Job) -> None:
    """Raises JobError for a network or framework that the job's use case does not offer."""
    if job.use_case == NO_USE_CASE:
        return
    case = use_case(job.use_case).for_job(job)
    if job.framework == "tensorflow" and case.network is None and depends_on_framework(job):
        raise JobError(
            f"framework='tensorflow' with use_case={job.use_case!r}, whose network is a torch model; give a use case "
            "of small images, or framework='torch'"
        )

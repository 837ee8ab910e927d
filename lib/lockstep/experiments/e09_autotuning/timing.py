"""One list of trials by one engine or by several: a whole study, with its storage and its controller, timed.

    rank 0    run_study ──► engine 0   trial 0   trial 2          timed from the first trial's start to the last one's
    others    wait          engine 1   trial 1   trial 3          end: engines start before, as in a long study
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from lockstep.engine.cores import pin, usable_cores
from lockstep.engine.files import ScratchFolder
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace
from lockstep.experiments.e09_autotuning.stored_pool import read_space
from lockstep.records.places import repository_root
from lockstep.tuning.opening import close_study, found_study
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.study import run_study

STUDIES = "studies"
EPOCHS = 2
ALIKE: dict[str, Any] = {
    "network": "cnn", "convolutions": 3, "learning_rate_decay": "none", "rate_warmup_epochs": 0,
    "global_batch_size": 32, "dropout": 0.2, "weight_decay": 0.0, "augmentation": "none", "standardise": False,
    "batch_norm": False,
}  # fmt: skip
"""What all trials of the list share: they take the same time, so that no engine is left with a long one."""


def run_engine_counts(job: Job, group: Group, site: Site | None = None) -> Trace:
    """`job.steps` trials by `job.workers` engines, on rank 0: seconds of each (`step_seconds`), and table `studies`."""
    group.enter("compute")
    own = [timed_study(job, site or Site())] if group.rank == 0 else []
    (row,) = allgather_object(group, own)[0]
    tables = {STUDIES: [row]} if group.rank == 0 else {}
    return Trace(group.rank, scores={"step_seconds": row["seconds"] / row["trials"]}, tables=tables)


def timed_study(job: Job, site: Site) -> dict[str, Any]:
    """engines, trials, seconds, trial_seconds (sum over trials), storage_seconds of them (storage, sampler, pruner)."""
    shared: dict[str, Any] = {"images": job.images, "memory_format": job.memory_format}
    base = Job.of("sequential", experiment="study", use_case=job.use_case, **shared)
    settings = tuple(ALIKE | {"learning_rate": 1e-4 * (1 + number)} for number in range(job.steps))
    with ScratchFolder("lockstep-study-") as scratch, every_core():
        plan = StudyPlan(
            name="timed", space=read_space(repository_root()), base=base.with_(data_source=job.data_source),
            settings=settings, epochs=EPOCHS, engines=job.workers,
        )  # fmt: skip
        path = scratch / "study.db"
        found = run_study(plan, path, site)
        study, _ = found_study(path)
        try:
            trials = study.get_trials(deepcopy=False)
        finally:
            close_study(study)
    began, ended = (min(each.datetime_start for each in trials), max(each.datetime_complete for each in trials))
    return {
        "engines": job.workers, "trials": len(trials), "seconds": (ended - began).total_seconds(),
        "trial_seconds": float(found.trials["seconds"].sum()),
        "storage_seconds": float(found.trials["storage_seconds"].sum()),
    }  # fmt: skip


@contextlib.contextmanager
def every_core() -> Iterator[None]:
    """A context in which this thread may use all cores: a rank is bound to its own, and would bind the engines."""
    own = usable_cores()
    pin(list(range(os.cpu_count() or 1)))
    try:
        yield
    finally:
        pin(own)

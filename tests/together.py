"""Training a small model in a warm team of workers, and alone, to compare what they reach."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
from torch import Tensor

from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Team
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.usecases import UseCase

# Sums of up to 4 addends in another order: 3e-8 was seen; a dropped or doubled sample gives 1e-3.
TOLERANCE = 3e-7


class Teams:
    """Warm teams, one per launcher and size, started when first asked for: that is most of such a test's time.

    `on_spark`: those of Spark, which start far more slowly than others and are shared by several modules.
    """

    def __init__(self, on_spark: Teams | None = None) -> None:
        self.made: dict[tuple[str, int], Team] = {}
        self.on_spark = on_spark

    def of(self, launcher: str, ranks: int) -> Team:
        if LAUNCHERS[launcher].spark and self.on_spark is not None:
            return self.on_spark.of(launcher, ranks)
        if (launcher, ranks) not in self.made:
            with warnings.catch_warnings(action="ignore"):  # three workers may be more than there are cores
                self.made[launcher, ranks] = LAUNCHERS[launcher](ranks).team
        return self.made[launcher, ranks]

    def run(self, this: Job, case: UseCase, path: Path | None = None, **site: object) -> list[Trace]:
        where = Site(use_case=case, checkpoint=str(path) if path else None, **site)  # type: ignore[arg-type]
        return self.of(this.launcher, this.ranks).run(this, where)

    def together(self, this: Job, case: UseCase, path: Path, **site: object) -> Tensor:
        self.run(this, case, path, **site)
        return checkpoint.read(str(path))["parameters"]

    def close(self) -> None:
        for team in self.made.values():
            team.close()


def small_job(**changes: Any) -> Job:
    """A job of a use case of its own: 12 steps on 8 samples each, nothing discarded; one worker unless told."""
    values: dict[str, Any] = {"global_batch_size": 8, "steps": 12, "warmup_steps": 0, "strategy": "own"}
    return Job(use_case="own", **(values | changes))


def alone(case: UseCase, path: Path, **changes: Any) -> Tensor:
    """Parameters after sequential training, in this process; `path` is its checkpoint afterwards.

    The same job of the same case is trained once in a session, for hundreds of tests compare with the same few.
    """
    job = small_job(**changes)
    kept = _trained_alone(job, case)
    shutil.copy(kept, path)
    return checkpoint.read(str(path))["parameters"]


_folder: list[tempfile.TemporaryDirectory[str]] = []  # one, once something has been trained: it ends with the process


def _trained_alone(job: Job, case: UseCase) -> Path:
    """The checkpoint of that training, kept under what the job and the case are made of, byte by byte."""
    if not _folder:
        _folder.append(tempfile.TemporaryDirectory(prefix="alone-"))
    kept = Path(_folder[0].name, hashlib.sha256(cloudpickle.dumps((job, case))).hexdigest())
    if not kept.exists():
        unfinished = kept.with_suffix(".part")
        run_job(job, ThreadGroup.of(1)[0], Site(use_case=case, checkpoint=str(unfinished)))
        unfinished.rename(kept)
    return kept


def held_bytes(value: Any) -> int:
    """Of all tensors within lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return value.nbytes
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(held_bytes(each) for each in inner)


def served_job(policy: str = "wait_for_all", workers: int = 2, **fields: Any) -> Job:
    """Under delays that last no time worth mentioning, so that the server of policies runs it."""
    shared: dict[str, Any] = {"sync": "parameter_server", "servers": 1, "delays": "exponential:mean=0.0001"}
    return small_job(policy=policy, workers=workers, launcher="threads", **(shared | fields))

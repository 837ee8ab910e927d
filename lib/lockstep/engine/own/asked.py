"""How a reader asks `lockstep.train` to train: checked by name and value, and made a `Job`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lockstep.engine import registry
from lockstep.engine.data.sources import ImageData, are_classes, sample_dtype
from lockstep.engine.job import OF_PIPELINES, Job, JobError, at_least
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.training.finite import ON_NAN

GLOBAL_BATCH_SIZE = 64
_OF_RATES = ("class_weights", "learning_rate_rule", "learning_rate_decay", "rate_warmup_epochs")
_ON_CPU = "shared_memory"


@dataclass(frozen=True)
class TrainingAsked:
    """What `lockstep.train` was asked for, besides a model and data. Raises JobError for names that do not exist, and
    for values that are impossible, whatever the data."""

    sync: str | None
    launcher: str
    workers: int
    threads_per_worker: int
    epochs: int
    global_batch_size: int
    precision: str
    device: Any
    seed: int
    checkpoint: str | os.PathLike[str] | None
    resume: bool
    on_nan: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", _device(self.device))
        if self.sync is None:
            object.__setattr__(self, "sync", self._usual_sync())
        self._check_names()
        self._check_checkpoint()
        if isinstance(self.epochs, bool) or not isinstance(self.epochs, int) or self.epochs < 1:
            raise JobError(f"epochs={self.epochs!r} is not possible; give a whole number of at least 1")
        at_least("workers", self.workers, 1)
        at_least("global_batch_size", self.global_batch_size, 1)

    def _usual_sync(self) -> str:
        if self.device == "cpu":
            return _ON_CPU
        return "local" if self.workers == 1 else "allreduce"

    def _check_names(self) -> None:
        syncs = registry.syncs_and_peers()
        for name, value, known in (
            ("sync", self.sync, [*syncs]), ("launcher", self.launcher, [*LAUNCHERS]), ("on_nan", self.on_nan, ON_NAN)
        ):  # fmt: skip
            if value not in known:
                raise JobError(f"{name}={value!r} does not exist; there are: {', '.join(known)}")
        assert self.sync is not None
        if syncs[self.sync].alone and self.workers != 1 and not self.pipelined:
            together = f"sync={self.sync!r} can't train {self.workers} workers together"
            raise JobError(f"{together}; give workers=1 or another sync")
        if self.device == "cuda" and self.sync == _ON_CPU:
            raise JobError(
                f"device='cuda' with sync={_ON_CPU!r}, which shares the CPU's memory; give sync='allreduce' (or "
                "'local', for one worker)"
            )
        declared = [name for name in Job.options() if name in registry.declared_options()]
        known_options = [*declared, "model_parallel", *OF_PIPELINES, *_OF_RATES]
        if unknown := sorted(set(self.options) - set(known_options)):
            raise JobError(f"unknown option(s) {unknown}; there are: {', '.join(known_options)}")

    def _check_checkpoint(self) -> None:
        path = self.checkpoint
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise JobError(f"checkpoint={str(path)!r}: its folder does not exist; make it first")
        if self.resume and (path is None or not Path(path).is_file()):
            raise JobError(f"resume=True needs the file of an earlier run, and checkpoint={path!r} is none")

    @property
    def pipelined(self) -> bool:
        """Is the model cut into stages?"""
        return self.options.get("model_parallel") == "pipeline"

    def steps_per_epoch(self, data: ImageData) -> int:
        """Global batches of an epoch; the last one may be smaller."""
        return -(-len(data) // self.global_batch_size)

    def job(self, data: ImageData) -> Job:
        """The job of training on `data`. Raises JobError for what can't be run."""
        assert self.sync is not None
        self._check_data(data)
        sync, options = self.sync, {**registry.syncs_and_peers()[self.sync].usual, **self.options}
        if self.pipelined:
            sync, options = _pipelined(sync, self.workers, options)
        return Job(
            experiment="train", use_case="own", strategy="own", data_source=data.source, images=len(data),
            launcher=self.launcher, sync=sync, workers=self.workers, threads_per_worker=self.threads_per_worker,
            cores_per_worker=self.threads_per_worker, global_batch_size=self.global_batch_size,
            per_worker_batch_size=-(-self.global_batch_size // self.workers), precision=self.precision,
            device=self.device, steps=self.steps_per_epoch(data) * self.epochs, warmup_steps=0, seed=self.seed,
            **options,
        )  # fmt: skip

    def _check_data(self, data: ImageData) -> None:
        classes, parallel = are_classes(data.labels), self.options.get("model_parallel", "none")
        if not classes and self.options.get("class_weights", "none") != "none":
            raise JobError("class_weights='balanced' with labels that are no classes; leave it out, or give classes")
        if parallel != "none" and (not classes or sample_dtype(data) != "float32"):
            raise JobError(
                f"model_parallel={parallel!r} is built for float32 inputs and for labels that are classes, not for "
                f"{sample_dtype(data)} inputs and {data.labels.dtype} labels {list(data.labels.shape)}; leave it out"
            )


def one_of(given: dict[str, Any], otherwise: Any) -> Any:
    """The value of two names for one thing; JobError if both are given."""
    found = {name: value for name, value in given.items() if value is not None}
    if len(found) > 1:
        raise JobError(f"{' and '.join(found)} mean the same; give one of them")
    return next(iter(found.values()), otherwise)


def _device(device: Any) -> str:
    """cpu | cuda. Raises JobError for another device, and for GPUs that torch can't use here."""
    name = str(device)
    if name == "cpu":
        return name
    if name != "cuda":
        fix = "give 'cuda': worker r uses GPU r" if name.startswith("cuda:") else "give one of these"
        raise JobError(f"device={name!r} can't be trained on; there are: cpu, cuda; {fix}")
    if not torch.cuda.is_available():
        raise JobError("device='cuda', and torch finds no GPU here (torch.cuda.is_available()); give device='cpu'")
    return name


def _pipelined(sync: str, workers: int, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Sync and options with what a reader left out. Raises JobError for values that are no numbers."""
    per_rank, schedule = options.get("stages_per_rank", 1), options.get("schedule", "1f1b")
    at_least("stages_per_rank", per_rank, 1)
    defaults = {"stages": workers * per_rank, "schedule": schedule, "partition": "balanced"}
    chosen = defaults | {"micro_batches": 1 if schedule == "naive" else max(4, workers)} | options
    at_least("stages", chosen["stages"], 1)
    return ("local" if workers == chosen["stages"] // per_rank else sync), chosen

"""`lockstep.train`: a reader's own model on a reader's own data, with any sync and launcher."""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.engine import registry
from lockstep.engine.cores import usable_cores
from lockstep.engine.data.checking import check_photos
from lockstep.engine.data.folders import SPLITS, open_folder
from lockstep.engine.data.sources import Arrays, ImageData
from lockstep.engine.files import scratch_folder
from lockstep.engine.job import OF_PIPELINES, Job, JobError, at_least
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.models.losses import Loss, cross_entropy
from lockstep.engine.pipelines import partition
from lockstep.engine.replica.pipeline.cut import CutError, flatten
from lockstep.engine.replica.pipeline.profile import static_costs
from lockstep.engine.replica.torch import load_flat
from lockstep.engine.training import checkpoint as checkpoints
from lockstep.engine.training.finite import ON_NAN
from lockstep.engine.training.first_pass import FirstPass, check_first_pass
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import PAPER_SGD, UseCase

_OF_RATES = ("class_weights", "learning_rate_rule", "learning_rate_decay", "rate_warmup_epochs")

Data = ImageData | tuple[Any, Any] | str | os.PathLike[str]


@dataclass
class Trained:
    """What `lockstep.train` gives back."""

    model: nn.Module  # trained, on the CPU, in evaluation mode
    losses: list[float]  # of each step, over the global batch
    images_per_second: float  # median over the steps
    scores: dict[str, float]  # on `test`, empty without it
    traces: list[Trace] = field(repr=False)  # by rank
    cautions: list[str] = field(default_factory=list)  # what was warned about


def train(
    model_factory: Callable[[], nn.Module],
    data: Data,
    *,
    test: Data | None = None,
    sync: str = "shared_memory",
    launcher: str = "processes",
    workers: int = 2,
    threads_per_worker: int = 1,
    epochs: int = 1,
    global_batch_size: int = 64,
    optimiser: Callable[[Iterable[Tensor]], Optimizer] = PAPER_SGD,
    loss: Loss = cross_entropy,
    precision: str = "float32",
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    strict: bool = False,
    on_nan: str = "stop",
    **options: Any,
) -> Trained:
    """Train `model_factory()` on `data` with `workers` workers; the same parameters whatever the workers.

    `data` and `test`: (images [n, channels, height, width], labels [n]) as arrays or tensors, a folder of
    `{train,test}/<class>/*.jpg` (its test half is used unless `test` is given), or an `ImageData`.
    `optimiser(tensors)` must work element by element (SGD, Adam, ...); `loss(output, labels)` gives one value per
    sample. `checkpoint` is a file, written after each epoch; `resume=True` goes on from it. Photos of a folder that
    can't be read are left out with a warning; `strict=True` allows none, and more than 5 % are never allowed. A loss
    that is NaN or infinite ends the training; with on_nan="warn" it goes on, and a warning at its end names step and
    rank. Before any worker starts, two images go through the model once; a warning names each module whose random
    numbers can't be keyed by sample (any dropout but nn.Dropout), and batch normalisation where several workers share
    a batch: then the parameters depend on the workers.
    `options` are what the sync reads (`lockstep strategies` lists them all): bucket="layer", overlap=True,
    compression="topk", density=0.01 for `allreduce`; exchange_every=10 for `local_sgd`; servers=1 or shards=4 for
    `parameter_server`.
    launcher="spark" runs any of them in Spark's barrier mode; launcher="spark_driver" with sync="sparknet" leaves the
    loop to Spark's driver (executor_data="rdd", opt_weight="mean" with exchange_every=10). A warning says when they
    make the parameters others than one worker would reach. For a model that is an `nn.Sequential` also
    model_parallel="pipeline" with stages (as many as workers: one copy of the model, else workers = copies x stages),
    micro_batches (4), schedule ("1f1b") and partition ("balanced"); see `lockstep.engine.job.OF_PIPELINES`. With any
    sync but SparkNet: class_weights="balanced", learning_rate_rule="linear", learning_rate_decay="cosine" and
    rate_warmup_epochs, which change the optimiser's own learning rate step by step (`lockstep.engine.training.rates`).

    Raises JobError, DataError, CheckpointError for what can't be trained, before any worker starts where possible;
    WorkerFailed, with the worker's own traceback, if one fails. No process is left behind.
    """
    syncs = registry.syncs_and_peers()
    for name, value, known in (("sync", sync, [*syncs]), ("launcher", launcher, [*LAUNCHERS])):
        if value not in known:
            raise JobError(f"{name}={value!r} does not exist; there are: {', '.join(known)}")
    if syncs[sync].alone and workers != 1 and options.get("model_parallel") != "pipeline":
        raise JobError(f"sync={sync!r} can't train {workers} workers together; give workers=1 or another sync")
    if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
        raise JobError(f"checkpoint={str(checkpoint)!r}: its folder does not exist; make it first")
    if resume and (checkpoint is None or not Path(checkpoint).is_file()):
        raise JobError(f"resume=True needs the file of an earlier run, and checkpoint={checkpoint!r} is none")
    if on_nan not in ON_NAN:
        raise JobError(f"on_nan={on_nan!r} does not exist; there are: {', '.join(ON_NAN)}")
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise JobError(f"epochs={epochs!r} is not possible; give a whole number of at least 1")
    declared = [name for name in Job.options() if name in registry.declared_options()]
    known_options = [*declared, "model_parallel", *OF_PIPELINES, *_OF_RATES]
    unknown = sorted(set(options) - set(known_options))
    if unknown:
        raise JobError(f"unknown option(s) {unknown}; there are: {', '.join(known_options)}")
    options = {**syncs[sync].usual, **options}
    if options.get("model_parallel") == "pipeline":
        sync, options = _pipelined(sync, workers, options)
    train_data, test_data = _halves(data, test, strict)
    case = UseCase("own", model_factory, optimiser, loss, train=train_data, test=test_data)
    per_epoch = -(-len(train_data) // max(global_batch_size, 1))
    job = Job(
        experiment="train", use_case="own", strategy="own", data_source=train_data.source, images=len(train_data),
        launcher=launcher, sync=sync, workers=workers, threads_per_worker=threads_per_worker,
        cores_per_worker=threads_per_worker, global_batch_size=global_batch_size,
        per_worker_batch_size=max(1, -(-global_batch_size // max(workers, 1))), precision=precision,
        steps=per_epoch * epochs, warmup_steps=0, seed=seed, **options,
    )  # fmt: skip
    first = _check(case, job, str(checkpoint) if resume else None)
    cautions = [*job.cautions(len(usable_cores())), *first.cautions]
    for caution in cautions:
        warnings.warn(caution, stacklevel=2)
    with scratch_folder("lockstep-train-") as scratch:
        path = str(Path(checkpoint) if checkpoint else scratch / "checkpoint.pt")
        site = Site(
            use_case=case, checkpoint=path, checkpoint_every_steps=per_epoch, resume=resume, evaluate=bool(test_data),
            on_nan=on_nan, draws=first.draws,
        )  # fmt: skip
        with warnings.catch_warnings(action="ignore"):  # that workers share cores has just been said
            ready = LAUNCHERS[launcher].of(job)
        with ready as team:
            traces = team.run(job, site)
        final = checkpoints.read(path)
    late = dict.fromkeys(caution for trace in traces for caution in trace.cautions)
    for told in late:
        warnings.warn(told, stacklevel=2)
    model = _initialised(case, seed)
    load_flat(model, final["parameters"], final["buffers"], final["others"])
    return _trained(model.eval(), traces, job.workers, [*cautions, *late])


def _pipelined(sync: str, workers: int, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Sync and options with what a reader left out. Raises JobError for values that are no numbers."""
    per_rank, schedule = options.get("stages_per_rank", 1), options.get("schedule", "1f1b")
    at_least("stages_per_rank", per_rank, 1)
    defaults = {"stages": workers * per_rank, "schedule": schedule, "partition": "balanced"}
    chosen = defaults | {"micro_batches": 1 if schedule == "naive" else max(4, workers)} | options
    at_least("stages", chosen["stages"], 1)
    return ("local" if workers == chosen["stages"] // per_rank else sync), chosen


def _initialised(case: UseCase, seed: int) -> nn.Module:
    """The model as workers begin with it, as far as torch's seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return case.model()


def _check(case: UseCase, job: Job, resumed: str | None) -> FirstPass:
    """What a first pass shows. `resumed`: a checkpoint. Raises JobError, CheckpointError for what can be told now."""
    model = _initialised(case, job.seed)
    if job.model_parallel == "pipeline":
        _check_stages(model, job.stages)
    first = check_first_pass(model, case, job)
    if resumed is not None:
        checkpoints.check_resumable(resumed, job, first.layout, case.optimiser)
    return first


def _check_stages(model: nn.Module, stages: int) -> None:
    """Raises JobError for a model that can't be cut into so many."""
    try:
        partition.equal_layers(static_costs(flatten(model)), stages)
    except (CutError, partition.PartitionError) as error:
        raise JobError(str(error)) from error


def _trained(model: nn.Module, traces: list[Trace], workers: int, cautions: list[str]) -> Trained:
    steps = list(zip(*(trace.steps for trace in traces[:workers]), strict=True))  # servers come last
    seconds = [max(times["step_seconds"] for times in of_ranks) for of_ranks in steps]
    images = [sum(times["images"] for times in of_ranks) for of_ranks in steps]
    rates = [count / spent for count, spent in zip(images, seconds, strict=True)]
    return Trained(
        model=model,
        losses=[sum(times["train_loss"] for times in of_ranks) for of_ranks in steps],
        images_per_second=statistics.median(rates) if rates else 0.0,
        scores=traces[0].scores,
        traces=traces,
        cautions=cautions,
    )


def _halves(data: Data, test: Data | None, strict: bool) -> tuple[ImageData, ImageData | None]:
    """Images to train on and, where there are any, to test on."""
    if test is not None:
        return images_of(data, "train", strict=strict)[0], images_of(test, "test", strict=strict)[0]
    if isinstance(data, str | os.PathLike):
        train_data, test_data = images_of(data, *SPLITS, strict=strict)
        return train_data, test_data
    return images_of(data, "train", strict=strict)[0], None


def images_of(data: Data, *splits: str, strict: bool, level: int = 4) -> list[ImageData]:
    """`data` as images: of each of these splits, if it is a folder. `level`: how far up the line is that a warning
    about photos names."""
    if isinstance(data, str | os.PathLike):
        checked = check_photos(data, splits, strict)
        if checked.caution:
            warnings.warn(checked.caution, stacklevel=level)  # at the line that calls `train`
        return [open_folder(checked.folder, split, checked.skipped) for split in splits]
    if isinstance(data, tuple):
        images, labels = (part.numpy() if isinstance(part, Tensor) else np.asarray(part) for part in data)
        return [Arrays(images, labels)]
    return [data]

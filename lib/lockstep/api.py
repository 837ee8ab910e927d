"""`lockstep.train`: a reader's own model on a reader's own data, with any sync and launcher."""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lockstep.engine.cores import usable_cores
from lockstep.engine.data.sources import Arrays
from lockstep.engine.files import ScratchFolder
from lockstep.engine.job import Job, JobError
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.models.losses import Loss, cross_entropy
from lockstep.engine.own.asked import GLOBAL_BATCH_SIZE, TrainingAsked, one_of
from lockstep.engine.own.data import Data, check_halves, halves_of, images_of
from lockstep.engine.own.identity import content_hash
from lockstep.engine.own.losses import read_loss, takes_numbers
from lockstep.engine.own.models import check_travels, made, read_model, spare
from lockstep.engine.own.optimisers import read_optimiser
from lockstep.engine.own.progress import StepsBar, watched
from lockstep.engine.own.trials import check_room, check_smallest_share, check_stages, try_few
from lockstep.engine.replica.torch import load_flat
from lockstep.engine.training import checkpoint as checkpoints
from lockstep.engine.training.first_pass import FirstPass, check_first_pass
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import PAPER_SGD, UseCase

__all__ = ["Data", "Trained", "images_of", "train"]

_RESTING = (
    "the model is in evaluation mode, and all of it is trained in training mode; to keep some layers in evaluation "
    "mode (frozen batch normalization), call model.train() first, and then layer.eval()"
)
Optimiser = Callable[[Iterable[Tensor]], Optimizer] | Optimizer


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
    model: nn.Module | Callable[[], nn.Module],
    data: Data,
    *,
    test: Data | None = None,
    sync: str | None = None,
    launcher: str = "processes",
    workers: int = 2,
    threads_per_worker: int = 1,
    epochs: int = 1,
    global_batch_size: int | None = None,
    batch_size: int | None = None,
    optimiser: Optimiser | None = None,
    optimizer: Optimiser | None = None,
    lr: float | None = None,
    loss: Loss | nn.Module | str = cross_entropy,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    strict: bool = False,
    on_nan: str = "stop",
    progress: bool | None = None,
    **options: Any,
) -> Trained:
    """Train `model` on `data` with `workers` workers; the same parameters whatever the workers.

    `model`: an nn.Module, which is copied with the weights that it has and stays as it is, or a function that makes
    one.

    `data` and `test`: (inputs [n, ...], labels [n, ...]) as arrays or tensors; a dict of both; a map-style data set of
    torch or a DataLoader, whose data set and batch size are taken; a folder of `{train,test}/<class>/*.jpg` (its test
    half is used unless `test` is given); or an `ImageData`. Inputs are float32 (others are converted), uint8 (scaled to
    0 … 1) or whole numbers (token ids, int64), of any shape; labels are classes (whole numbers [n]), numbers to reach
    ([n] or [n, k]), or several labels of 0 and 1 per sample ([n, k]); docs/train.md has a table. Photos of a folder
    that can't be read are left out with a warning; `strict=True` allows none, and more than 5 % are never allowed.

    `global_batch_size` (or `batch_size`, 64): of all workers together. `optimiser` (or `optimizer`): a function
    (tensors) or a class that makes one working element by element (SGD, Adam, ...), or one over the parameters of
    `model`, whose class and settings are taken; without it SGD with momentum 0.9. `lr`: its learning rate, 0.001.
    `loss`: "cross_entropy", "binary_cross_entropy", "mse", "l1" or "huber", a loss of torch (a module or a function),
    or a function (output, labels) that gives one value per sample.

    `device`: "cpu", or "cuda" where torch can use a GPU. `sync`: one of `lockstep strategies`; "shared_memory" on the
    CPU. `checkpoint`: a file, written after each epoch; `resume=True` goes on from it. Arrays with NaN are refused, and
    a loss that is NaN or infinite ends the training; with on_nan="warn" it goes on, and a warning at its end names step
    and rank. `progress`: show a bar; None: on a terminal and in a notebook.

    Before any worker starts, two samples go through the model once; a warning names each module whose random numbers
    can't be keyed by sample (any dropout but nn.Dropout), and batch normalization where several workers share a batch:
    then the parameters depend on the workers.

    `options` are what the sync reads (`lockstep strategies` lists them all): bucket="layer", overlap=True,
    compression="topk", density=0.01 for `allreduce`; exchange_every=10 for `local_sgd`; servers=1 or shards=4 for
    `parameter_server`. launcher="spark" runs any of them in Spark's barrier mode; launcher="spark_driver" with
    sync="sparknet" leaves the loop to Spark's driver (executor_data="rdd", opt_weight="mean" with exchange_every=10). A
    warning says when they make the parameters others than one worker would reach. For a model that is an
    `nn.Sequential` also model_parallel="pipeline" with stages (as many as workers: one copy of the model, else workers
    = copies x stages), micro_batches (4), schedule ("1f1b") and partition ("balanced"); see
    `lockstep.engine.job.OF_PIPELINES`. With any sync but SparkNet: class_weights="balanced",
    learning_rate_rule="linear", learning_rate_decay="cosine" and rate_warmup_epochs, which change the optimizer's own
    learning rate step by step (`lockstep.engine.training.rates`).

    Raises JobError, DataError, CheckpointError for what can't be trained, before any worker starts where possible;
    WorkerFailed, with the worker's own traceback, if one fails. No process is left behind.
    """
    usual_batch = data.batch_size if isinstance(data, DataLoader) else None
    size = one_of({"global_batch_size": global_batch_size, "batch_size": batch_size}, usual_batch or GLOBAL_BATCH_SIZE)
    asked = TrainingAsked(
        sync, launcher, workers, threads_per_worker, epochs, size, precision, device, seed, checkpoint, resume, on_nan,
        options,
    )  # fmt: skip
    chosen = one_of({"optimiser": optimiser, "optimizer": optimizer}, PAPER_SGD)
    make = read_optimiser(chosen, model if isinstance(model, nn.Module) else None, lr)
    case = UseCase("own", read_model(model), make, read_loss(loss))
    try_few(case, data, asked)
    train_data, test_data = halves_of(data, test, strict, takes_numbers(case.loss))
    case = replace(case, train=train_data, test=test_data)
    broken = check_halves(train_data, test_data, case.loss, on_nan)
    job = asked.job(train_data)
    first = _check(case, job, asked)
    cautions = [*job.cautions(len(usable_cores())), *first.cautions, *broken]
    for caution in cautions:
        warnings.warn(caution, stacklevel=2)
    shown = watched() if progress is None else progress
    traces, final = _run(case, job, asked, first, shown)
    late = dict.fromkeys(caution for trace in traces for caution in trace.cautions)
    for told in late:
        warnings.warn(told, stacklevel=2)
    trained = spare(made(case.model, seed))
    load_flat(trained, final["parameters"], final["buffers"], final["others"])
    return _trained(trained.eval(), traces, job.workers, [*cautions, *late])


def _check(case: UseCase, job: Job, asked: TrainingAsked) -> FirstPass:
    """What a first pass shows. Raises JobError, CheckpointError for what can be told now."""
    model = spare(made(case.model, job.seed))
    resting = [] if model.training else [_RESTING]
    if job.model_parallel == "pipeline":
        check_stages(model, job.stages)
    first = check_first_pass(model, case, job, backward=True, finite=asked.on_nan == "stop")
    first = replace(first, cautions=[*resting, *first.cautions])
    check_smallest_share(case, job)
    if asked.resume:
        checkpoints.check_resumable(str(asked.checkpoint), job, first.layout, case.optimiser, _identity(case, asked))
        if (done := int(checkpoints.read(str(asked.checkpoint))["sync"].get("step", 0))) > job.steps:
            told = f"checkpoint={str(asked.checkpoint)!r} has made {done} steps"
            raise JobError(f"{told}, and epochs={asked.epochs} are {job.steps}; give more epochs")
    for what, value in (("the model", case.model), ("the loss", case.loss), ("the optimizer", case.optimiser)):
        check_travels(what, value)
    halves = (case.train, case.test)
    sent = [each.images.nbytes if isinstance(each, Arrays) else check_travels("the data set", each) for each in halves]
    check_room(sum(sent), job)
    return first


def _identity(case: UseCase, asked: TrainingAsked) -> str:
    """Of the samples, where a checkpoint may be resumed."""
    return content_hash(case.train) if asked.checkpoint and case.train is not None else ""


def _run(
    case: UseCase, job: Job, asked: TrainingAsked, first: FirstPass, shown: bool
) -> tuple[list[Trace], dict[str, Any]]:
    """The traces of all ranks, and the content of the last checkpoint."""
    assert case.train is not None
    per_epoch = asked.steps_per_epoch(case.train)
    with ScratchFolder("lockstep-train-") as scratch:
        path = str(Path(asked.checkpoint) if asked.checkpoint else scratch / "checkpoint.pt")
        site = Site(
            use_case=case, checkpoint=path, checkpoint_every_steps=per_epoch, resume=asked.resume,
            evaluate=bool(case.test), on_nan=asked.on_nan, draws=first.draws, data=_identity(case, asked),
        )  # fmt: skip
        with warnings.catch_warnings(action="ignore"):  # that workers share cores has just been said
            ready: AbstractContextManager[Any] = LAUNCHERS[asked.launcher].of(job)
        with ready as team, StepsBar(team, job.steps, len(case.train) / per_epoch, shown):
            traces: list[Trace] = team.run(job, site)
        return traces, checkpoints.read(path)


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

"""`lockstep.tune`: the best setting of a reader's own model on a reader's own data."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.api import Data, images_of
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.sources import are_classes
from lockstep.engine.files import scratch_folder
from lockstep.engine.job import Job, JobError, at_least
from lockstep.engine.models.losses import Loss, cross_entropy
from lockstep.engine.own.losses import read_loss
from lockstep.engine.replica.torch import load_flat
from lockstep.engine.training import checkpoint
from lockstep.engine.training.first_pass import FirstPass, check_first_pass
from lockstep.engine.training.loop import Site
from lockstep.engine.training.randomness import keeping_generators
from lockstep.engine.usecases import PAPER_ADAM, UseCase
from lockstep.tuning.needed import StudyError
from lockstep.tuning.plan import OWN, StudyPlan
from lockstep.tuning.sampling import training_seed
from lockstep.tuning.space import Space
from lockstep.tuning.study import best_checkpoint, run_study

_TRIED = 3
"""Settings whose models are tried before engines start."""
Build = Callable[[Mapping[str, Any]], nn.Module]


@dataclass
class Tuned:
    """What `lockstep.tune` gives back; the tables are those of `lockstep.tuning.results.Finished`."""

    setting: dict[str, Any]  # of the best trial
    score: float  # of the best trial: exp(-cross-entropy) on the held-out images, unless another objective was named
    model: nn.Module  # of the best trial, trained, on the CPU, in evaluation mode
    trials: pd.DataFrame
    curves: pd.DataFrame
    decisions: pd.DataFrame


def tune(
    build: Build,
    data: Data,
    space: Mapping[str, Any] | str | os.PathLike[str],
    *,
    trials: int = 30,
    epochs: int = 10,
    engines: int = 2,
    pruner: str = "lstm",
    sampler: str = "tpe",
    hours: float | None = None,
    seed: int = 0,
    launcher: str = "engines",
    workers_per_trial: int = 1,
    global_batch_size: int = 32,
    optimiser: Callable[[Iterable[Tensor]], Optimizer] = PAPER_ADAM,
    loss: Loss = cross_entropy,
    objective: str = "likelihood",
    storage: str | os.PathLike[str] | None = None,
    name: str = "tune",
    progress: Callable[[str], None] | None = None,
) -> Tuned:
    """Train `build(setting)` with `trials` settings of `space`, two at a time, and give back the best.

    build: makes the model of a setting, a mapping of the space's names to values. data: as in `lockstep.train`; a fifth
    of each class is held out, by which settings are judged. space: a mapping of names to entries (see
    `lockstep.tuning.space_entries`), or the file of one. Its names may be any; learning_rate, weight_decay,
    global_batch_size, learning_rate_decay, rate_warmup_epochs and class_weights also change the training. `optimiser`
    must know `lr` and `weight_decay` where the space has them.

    Each trial is trained for `epochs` epochs on an engine of its own, unless `pruner` stops it. With `storage`, a file,
    the study outlives this process: after Ctrl-C, a crash or `hours` the same call goes on. Repeatable to the bit with
    engines=1 (see `lockstep.tuning.study.run_study`). `progress=print` shows each epoch.

    Before any worker starts, two samples go through the model of a setting once, or of another one where that fails; a
    warning names each module whose random numbers can't be keyed by sample, and batch normalization where several
    workers share a batch.

    Raises JobError, DataError and StudyError for what can't be tuned, before any worker starts where possible;
    StudyError if no trial has finished; WorkerFailed if engines can't be started. No process is left behind.
    """
    at_least("global_batch_size", global_batch_size, 1)
    found = Space.read(Path(space), None) if isinstance(space, str | os.PathLike) else Space.of(space, None)
    images = images_of(data, "train", strict=False, level=3)[0]
    if not are_classes(images.labels):
        raise DataError(
            f"labels are {images.labels.dtype} {list(images.labels.shape)}, and settings are judged by how well "
            "classes are told apart; give whole numbers from 0, [n]"
        )
    case = UseCase(OWN, _unbuilt, optimiser, loss, train=images)
    base = Job(
        experiment="tuning", use_case=OWN, strategy="tuning", data_source=images.source, images=len(images),
        global_batch_size=global_batch_size, per_worker_batch_size=global_batch_size,
    )  # fmt: skip
    plan = StudyPlan(
        name, found, base, trials, epochs, engines, launcher, workers_per_trial, sampler, pruner=pruner, seed=seed,
        hours=hours, objective=objective,
    )  # fmt: skip
    for caution in _first_pass(build, case, plan).cautions:
        warnings.warn(caution, stacklevel=2)
    # What a model draws by itself can't be keyed by sample; it is drawn anew for each micro-batch.
    site = Site(use_case=case, draws=True)
    with scratch_folder("lockstep-tune-") as scratch:
        where = storage or scratch / "study.db"
        result = run_study(plan, where, site, progress, build=build, keep_best=True)
        best = result.best
        if best is None:
            reasons = result.trials["reason"][result.trials["reason"] != ""]
            why = f"; the last failure: {reasons.iloc[-1]}" if len(reasons) else ""
            raise StudyError(f"none of {len(result.trials)} trials has finished: {result.stopped or 'see trials'}{why}")
        setting = result.setting(int(best["number"]))
        model = _restored(build, setting, seed, int(best["number"]), best_checkpoint(plan, where, int(best["number"])))
    return Tuned(setting, float(best["value"]), model, result.trials, result.curves, result.decisions)


def _first_pass(build: Build, case: UseCase, plan: StudyPlan) -> FirstPass:
    """What a first pass shows of the first of a few settings whose model can be trained and scored. Raises JobError if
    none can: a study of such a space would end with as many failures as trials."""
    case, first = replace(case, test=case.train, loss=read_loss(case.loss)), JobError("")
    for number in range(_TRIED):
        setting = plan.space.draw(plan.seed, number)
        try:
            model = _built(build, setting, plan.seed, number)
        except Exception as error:
            failure = JobError(f"build({setting}) fails with {type(error).__name__}: {error}")
        else:
            try:
                job = plan.job(setting, plan.seed)
                return check_first_pass(model, case.for_job(job), job, backward=True)
            except JobError as error:
                failure = JobError(f"the model of {setting}: {error}")
        first = first if number else failure
    raise first


def _built(build: Build, setting: Mapping[str, Any], seed: int, number: int) -> nn.Module:
    """The model of a trial, with the weights that it begins with."""
    with keeping_generators():
        torch.manual_seed(training_seed(seed, number))
        return build(setting)


def _unbuilt() -> nn.Module:
    raise StudyError("a trial's model is built of its setting, which is not known here")


def _restored(build: Build, setting: Mapping[str, Any], seed: int, number: int, path: Path) -> nn.Module:
    """The model of a setting with the parameters of a checkpoint, in evaluation mode."""
    model = _built(build, setting, seed, number)
    content = checkpoint.read(str(path))
    load_flat(model, content["parameters"], content["buffers"], content["others"])
    return model.eval()

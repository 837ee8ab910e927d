"""`lockstep.tune`: the best setting of a reader's own model on a reader's own data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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
from lockstep.engine.job import Job, at_least
from lockstep.engine.models.losses import Loss, cross_entropy
from lockstep.engine.replica.torch import load_flat
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import PAPER_ADAM, UseCase
from lockstep.tuning.needed import StudyError
from lockstep.tuning.plan import OWN, StudyPlan
from lockstep.tuning.sampling import training_seed
from lockstep.tuning.space import Space
from lockstep.tuning.study import best_checkpoint, run_study

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


def _unbuilt() -> nn.Module:
    raise StudyError("a trial's model is built of its setting, which is not known here")


def _restored(build: Build, setting: Mapping[str, Any], seed: int, number: int, path: Path) -> nn.Module:
    """The model of a setting with the parameters of a checkpoint, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training_seed(seed, number))
        model = build(setting)
    content = checkpoint.read(str(path))
    load_flat(model, content["parameters"], content["buffers"], content["others"])
    return model.eval()

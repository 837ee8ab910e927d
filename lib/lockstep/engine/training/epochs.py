"""What is tracked over the epochs of a training run: losses, validation scores, early stopping, and final scores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.data.small import SmallImages
from lockstep.engine.data.sources import ImageData, Photos
from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job, JobError
from lockstep.engine.replica import Replica
from lockstep.engine.sync import Plan, Sync
from lockstep.engine.sync.plan import OptimiserFactory
from lockstep.engine.training.evaluate import predictions
from lockstep.engine.training.image_scores import SCORED, image_scores
from lockstep.engine.training.rates import Factor
from lockstep.engine.training.scores import accuracy, auc, balanced_accuracy, confusion, mean_cross_entropy
from lockstep.engine.training.stopping import EarlyStopping
from lockstep.engine.usecases import UseCase

Rows = list[dict[str, float | str]]
AfterEpoch = Callable[[dict[str, float | str]], bool]
"""Is given the row of an epoch that has ended, and returns whether training should stop there."""
_VALIDATION = ("validation_loss", "validation_accuracy", "validation_balanced_accuracy", "validation_auc")


@dataclass(frozen=True)
class Images:
    """The images that a job trains on, and those that it is scored on (None: not needed)."""

    train: ImageData
    validation: ImageData | None = None
    test: ImageData | None = None

    @classmethod
    def of(cls, case: UseCase, job: Job, root: str | None, skipped: Collection[str]) -> Images:
        """Opens the images. Raises DataError before training starts, for the test images too."""
        if job.scored_on == "none":
            return cls(case.open("train", root, job.images, skipped))
        test = None if job.scored_on == "held_out" else case.open("test", root, skipped=skipped)
        if not job.holds_out:
            return cls(case.open("train", root, job.images, skipped), test=test)
        kept, held_out = (case.open("train", root, job.images, skipped, part=part) for part in ("kept", "held_out"))
        return cls(kept, held_out, test)


class EpochTracker:
    """Follows a training run on one rank. `team` are all ranks with a replica or a part of one.

    A resumed run has rows only for the epochs since then; its checkpoint's own are `former`. Raises JobError for early
    stopping with a `checkpoint`, because the best epoch's parameters are kept in memory only.
    """

    def __init__(
        self, job: Job, plan: Plan, images: Images, replica: Replica, sync: Sync, team: Group, rate: Rate,
        checkpoint: str | None = None,
    ) -> None:  # fmt: skip
        if job.early_stopping_epochs and checkpoint:
            raise JobError(
                f"early_stopping_epochs={job.early_stopping_epochs} with checkpoint={checkpoint!r}: the best epoch's "
                "parameters are not in it, so such a run can't be resumed; give no checkpoint"
            )
        self.job, self.plan, self.images, self.rate = job, plan, images, rate
        self.replica, self.sync, self.team = replica, sync, team
        self.rows: Rows = []
        self.former: Rows = []
        self.seconds = 0.0  # the time of all steps, without evaluation
        self._done, self._steps, self._loss, self._epoch_seconds = 0, 0, 0.0, 0.0
        self._stopping = EarlyStopping(job.early_stopping_epochs)
        self._best: tuple[Tensor, Tensor, dict[str, Tensor]] | None = None

    def stepped(self, step: int, loss: float, seconds: float) -> bool:
        """Called after each step with this rank's part of the loss. Returns whether an epoch has ended; then
        collective. Workers that take steps of their own have no common epochs."""
        self.add(loss, seconds)
        if not self.sync.in_step:
            return False
        self._steps += 1
        self._done = step + 1
        if self._done % self.plan.steps_per_epoch and self._done != self.plan.steps:
            return False
        self._end_epoch()
        return True

    def add(self, loss: float, seconds: float) -> None:
        """A step of this worker alone."""
        self._loss += loss
        self._epoch_seconds += seconds

    def stopped(self, steps: int) -> None:
        """Called once, when all workers have stopped that took different numbers of steps: a row for all of training,
        whose loss is the mean over workers. Collective."""
        self._done = self.plan.steps
        self._loss /= max(steps, 1) * self.team.size
        self._steps = 1
        self._end_epoch()

    @property
    def known(self) -> Rows:
        """The rows of all epochs, those before a resumed run's among them."""
        return [*self.former, *self.rows]

    def stops(self, after_epoch: AfterEpoch | None) -> bool:
        """Tell `after_epoch` of the last epoch, on rank 0 alone: its answer on every rank. Collective."""
        if after_epoch is None:
            return False
        answer = self.team.rank == 0 and after_epoch(self.rows[-1])
        return bool(allgather_object(self.team, answer)[0])

    @property
    def over(self) -> bool:
        """Whether training should stop early. The same on every rank."""
        return self._stopping.over

    def _end_epoch(self) -> None:
        with self._reached():
            found = self._validated()
            # The loss is the sum of all ranks' parts, and an epoch takes as long as on the slowest rank. Rank 0 decides
            # whether a loss is the lowest, because other machines may round differently.
            everyones = allgather_object(self.team, (self._loss, self._epoch_seconds, found))
            losses, seconds, founds = zip(*everyones, strict=True)
            if founds[0] and self._stopping.improved(founds[0]["validation_loss"]) and self.job.early_stopping_epochs:
                others = {name: each.clone() for name, each in self.replica.others(frozen=False).items()}
                self._best = self.replica.parameters.clone(), self.replica.buffers.clone(), others
        row = {"epoch": -(-self._done // self.plan.steps_per_epoch), "train_loss": sum(losses) / self._steps}
        missing = dict.fromkeys(_VALIDATION, float("nan"))
        more = {"learning_rate": self.rate.at(self._done - 1), "seconds": max(seconds)}
        self.rows.append(row | missing | founds[0] | more)
        self.seconds += max(seconds)
        self._steps, self._loss, self._epoch_seconds = 0, 0.0, 0.0

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """A context in which the replica has the trained parameters, if workers train on others. Collective."""
        model = self.sync.model()
        if model is self.replica.parameters:
            yield
            return
        own = self.replica.parameters.clone()
        self.replica.parameters.copy_(model)
        yield
        self.replica.parameters.copy_(own)

    def _validated(self) -> dict[str, float]:
        if self.images.validation is None:
            return {}
        outputs, labels = self._outputs(self.images.validation), self.images.validation.labels
        measures = (mean_cross_entropy, accuracy, balanced_accuracy, auc)
        return {name: measure(outputs, labels) for name, measure in zip(_VALIDATION, measures, strict=True)}

    def finish(self) -> tuple[dict[str, float], dict[str, Rows]]:
        """Measurements of the whole run, scores among them, and rows of the tables. Collective.

        The replica then has the parameters that are scored: of the best epoch with early stopping, else the last.
        """
        if self._best is None:
            self.replica.parameters.copy_(self.sync.model())
        else:
            self.replica.parameters.copy_(self._best[0])
            self.replica.buffers.copy_(self._best[1])
            self.replica.take_others(self._best[2])
        scores: dict[str, float] = {
            "epochs_trained": self._done // self.plan.steps_per_epoch,
            "updates_done": self._done,
            "training_seconds": self.seconds,
        }
        tables: dict[str, Rows] = {"epochs": self.rows}
        if self.job.scored_on != "none":
            scores |= self._of_training() if self.images.test is not None else {}
            tables["confusion"], found = [], {}
            splits = {"validation": self.images.validation, "test": self.images.test}
            for split, data in splits.items():
                if data is not None:
                    outputs = found[split] = self._outputs(data)
                    scores |= _scores(split, outputs, data)
                    rows = confusion(outputs, data.labels, data.classes)
                    tables["confusion"] += [{"split": split, **row} for row in rows]
            if self.job.experiment in SCORED:
                tables["scores"] = image_scores(self.images.train, splits, found)
        return scores, tables

    def _of_training(self) -> dict[str, float]:
        """Scores on the training images without augmentation; minus the test scores they are the generalization gap."""
        data = unaugmented(self.images.train)
        outputs = self._outputs(data)
        return {
            "train_accuracy": accuracy(outputs, data.labels),
            "train_loss": mean_cross_entropy(outputs, data.labels),
        }

    def _outputs(self, data: ImageData) -> Any:
        return predictions(self.replica, self.sync.group, data, self.job.per_worker_batch_size)


def unaugmented(data: ImageData) -> ImageData:
    """The same images without augmentation; a reader's own kind of data is returned unchanged."""
    if isinstance(data, Photos | SmallImages):
        return data.picked(np.arange(len(data)), augment=False)
    return data


def _scores(split: str, outputs: Any, data: ImageData) -> dict[str, float]:
    found = {
        f"{split}_accuracy": accuracy(outputs, data.labels),
        f"{split}_balanced_accuracy": balanced_accuracy(outputs, data.labels),
        f"{split}_loss": mean_cross_entropy(outputs, data.labels),
    }
    return found | ({"test_auc": auc(outputs, data.labels)} if split == "test" else {})


@dataclass(frozen=True)
class Rate:
    """The learning rate of each step."""

    base: float
    factor: Factor | None = None

    @classmethod
    def of(cls, make: OptimiserFactory, factor: Factor | None) -> Rate:
        """The learning rate of the optimizers that `make` makes; of several parameter groups the first one's."""
        return cls(float(make([torch.nn.Parameter(torch.zeros(1))]).param_groups[0]["lr"]), factor)

    def at(self, step: int) -> float:
        return self.base * (1.0 if self.factor is None else self.factor(step))

"""Training in virtual time as the experiments ask for it: on X-rays, with stand-ins judged, with images that stay."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.policies.base import GradientStandIn
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import use_case
from lockstep.simulate.learner import Problem, SgdLearner
from lockstep.simulate.perceptron import Perceptron, inputs_of
from lockstep.simulate.worker import Course

Floats = NDArray[np.float64]
Images = NDArray[np.float32]
Labels = NDArray[np.int64]

LOOK, LOOKS = 64, 4
"""Samples, at least, between two looks at a loss, and looks whose mean counts."""
JUDGED_EVERY = 4
"""Updates with a stand-in, of which one is judged."""


@lru_cache(maxsize=2)
def _images(
    name: str, root: str, images: int, skipped: tuple[str, ...], standardise: bool
) -> tuple[Images, Labels, Images, Labels]:
    case = replace(use_case(name), standardise=standardise)
    found: list[NDArray[Any]] = []
    for split, count in (("train", images), ("test", 0)):
        data = case.open(split, root, count, skipped)
        found += [np.array(data.load(np.arange(len(data)), 0, 0)), data.labels.astype(np.int64)]
    return found[0], found[1], found[2], found[3]


def images_of(job: Job, site: Site) -> tuple[Images, Labels, Images, Labels]:
    """The job's images [count, channels, height, width] and their labels: of training, then of testing."""
    assert site.data_root is not None
    return _images(job.use_case, site.data_root, job.images, site.skipped, job.standardise)


@lru_cache(maxsize=2)
def _inputs(*asked: Any) -> tuple[Floats, Floats, Floats, Floats]:
    """Of the same images, as `Perceptron` takes them. The labels of two classes are 0 and 1."""
    images, labels, test, test_labels = _images(*asked)
    return inputs_of(images), labels.astype(np.float64), inputs_of(test), test_labels.astype(np.float64)


def problem_of(job: Job, group: Group, site: Site) -> tuple[Perceptron, Floats, Floats]:
    """The small network on the job's images with the job's seed; inputs and labels for testing."""
    del group  # as for networks of the engine, whose replicas ask for it
    assert site.data_root is not None
    inputs, labels, test, test_labels = _inputs(
        job.use_case, site.data_root, job.images, site.skipped, job.standardise
    )  # fmt: skip
    return Perceptron(inputs, labels, seed=job.seed), test, test_labels


class Scored(Problem, Protocol):
    """A problem that also knows which other images it tells right."""

    def accuracy(self, parameters: Floats, inputs: Any, labels: Any) -> float:
        """0 to 1."""


class SparinglyJudged(SgdLearner):
    """Its loss is the mean of the last `LOOKS` looks, one in `LOOK` samples, or in a batch if that has more.

    A loss goes up and down from update to update, so whoever looks more often sees it below a target earlier: a policy
    of many small updates would gain by that alone, and pay for it with most of the time of its simulation.
    """

    _since: int  # samples
    _seen: deque[float]

    def judged(self, samples: int) -> float:
        self._since += samples
        if self._since >= max(self.batch, LOOK):
            self._since = 0
            self._seen.append(super().judged(samples))
        return sum(self._seen) / LOOKS if len(self._seen) == LOOKS else math.inf

    def looking(self) -> SparinglyJudged:
        """The same learner, which has seen nothing yet."""
        self._since, self._seen = 0, deque[float](maxlen=LOOKS)
        return self


class AveragedLearner(SgdLearner):
    """Keeps the mean of its parameters over its last updates (Polyak and Juditsky 1992), which goes up and down less
    than they do: `averaged`, over those from update `after` on."""

    def from_update(self, after: int) -> AveragedLearner:
        """The same learner, whose mean begins there."""
        self._after, self._total = after, np.zeros_like(self.problem.start)
        return self

    def judged(self, samples: int) -> float:
        if self._version > self._after:
            self._total += self.parameters
        return super().judged(samples)

    @property
    def averaged(self) -> Floats:
        """The present parameters where there was no such update."""
        count = self._version - self._after
        return self._total / count if count > 0 else self.parameters


class JudgedLearner(SgdLearner):
    """Keeps how close what stands in for a missing gradient is to the gradient over all images: `cosines`. As a control
    `own_cosines` are those of real contributions to the same updates. Judged is one update of `JUDGED_EVERY`, for a
    gradient over all images costs as much as some hundred contributions."""

    def __init__(
        self, problem: Perceptron, learning_rate: float, workers: int, seed: int = 0, batch: int = 0
    ) -> None:  # fmt: skip
        super().__init__(problem, learning_rate, workers, seed, batch)
        self.cosines: list[float] = []
        self.own_cosines: list[float] = []
        self._full: Floats | None = None  # of the present update, where it is judged
        self._count = 0

    def update(self, used: Sequence[tuple[Course, float]], stand_in: Sequence[GradientStandIn]) -> float:
        if stand_in:
            if self._count % JUDGED_EVERY == 0:
                self._full, _ = self.problem.gradient(self.parameters, np.arange(self.problem.samples))
                self.own_cosines += [cosine(self._kept[one.worker, one.task], self._full) for one, _ in used]
            self._count += 1
        loss = super().update(used, stand_in)
        self._full = None
        return loss

    def made_up(self, one: GradientStandIn) -> Floats:
        found = super().made_up(one)
        if self._full is not None and np.any(found):
            self.cosines.append(cosine(found, self._full))
        return found


def cosine(one: Floats, other: Floats) -> float:
    """Of the angle between two vectors; NaN if one of them is zero."""
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / length if length else float("nan")


def mean_or_nan(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return float(np.mean(values)) if values else math.nan


class PartitionedLearner(AveragedLearner):
    """The images stay with the workers, as partitions of Spark do: whoever computes takes the next of its own.

    `parts`: the ids of each worker's images.
    """

    def with_parts(self, parts: Sequence[NDArray[np.int64]]) -> PartitionedLearner:
        """The same learner with these partitions."""
        self.parts = parts
        self._next = [0] * len(parts)
        return self

    def gradient(self, course: Course) -> tuple[float, float]:
        own, first = self.parts[course.worker], self._next[course.worker]
        self._next[course.worker] += course.samples
        ids = own[(first + np.arange(course.samples)) % len(own)]
        total, loss = self.problem.gradient(self.versions[course.version], ids)
        self._kept[course.worker, course.task] = total
        return loss, float(total @ total)

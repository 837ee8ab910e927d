"""Real gradients in virtual time: parameters by version, kept as long as a worker computes with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.policies.base import GradientStandIn, Policy, Ranges
from lockstep.engine.policies.places import cut_ranges, ids_of, part_of_batch
from lockstep.engine.policies.stand_ins import StandIns
from lockstep.simulate.worker import Course

Floats = NDArray[np.float64]
SURELY = 1e-9
"""More than what rounding may take off a tangent."""


class Learner(Protocol):
    """What a simulated server asks. Gradients are means over samples."""

    square_norm: float
    """Of the weighted sum of the last update."""

    def follow(self, policy: Policy) -> None:
        """Remember from now on what this policy may ask for."""

    def released(self, worker: int, version: int) -> None:
        """`worker` begins a task with the parameters of `version`, the present ones."""

    def gradient(self, course: Course) -> tuple[float, float]:
        """Computes and keeps the gradient of a task; its loss and its squared norm."""

    def dropped(self, worker: int, task: int) -> None:
        """The gradient of a task won't be used."""

    def update(self, used: Sequence[tuple[Course, float]], stand_in: Sequence[GradientStandIn]) -> float:
        """One step with the weighted sum of kept gradients; the loss of the new parameters."""


class Problem(Protocol):
    """A function to be minimised, by samples."""

    samples: int
    start: Floats

    def gradient(self, parameters: Floats, ids: NDArray[np.int64]) -> tuple[Floats, float]:
        """The mean gradient over these samples, float64 [parameters], and their mean loss."""

    def loss(self, parameters: Floats) -> float:
        """Over all samples, or those by which it is judged."""


class Convex(Problem, Protocol):
    """A problem whose loss lies above each of its tangents."""

    def slope(self, parameters: Floats, ids: NDArray[np.int64] | None = None) -> Floats:
        """The mean gradient over these samples alone, float64 [parameters]; without any that of `loss`."""


class SgdLearner:
    """SGD on a problem, with momentum if asked for. `versions` holds the parameters that a worker may still use.

    With a `batch` the learning rate is that of an update of so many samples, and of a smaller one in proportion (the
    linear scaling rule of Goyal et al. 2018, reference 40 of DPro-SM): else a policy would gain by stepping more often.

    With a `target`, losses matter only where they may have come to it: the loss of other updates is NaN, and that of
    contributions unless the policy needs it. That saves most of the time of a run with many small updates, and needs a
    convex problem.
    """

    def __init__(
        self, problem: Problem | Convex, learning_rate: float, workers: int, seed: int = 0, batch: int = 0,
        momentum: float = 0.0, target: float | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.learning_rate, self.seed, self.workers = problem, learning_rate, seed, workers
        self.batch, self.momentum = batch, momentum
        self._way = np.zeros_like(problem.start)  # of the parameters in an update, in units of - learning rate
        self.versions: dict[int, Floats] = {0: problem.start.copy()}
        self._version = 0
        self._held: dict[int, int] = {}  # version by worker
        self._uses: Counter[int] = Counter()
        self._kept: dict[tuple[int, int], Floats] = {}  # by worker and task
        self.target, self._slopes_alone = target, False
        self._tangent: tuple[Floats, float, Floats] | None = None  # where it touches, the loss there, and its slope
        self.remembers = True  # gradients of single workers; without them nothing can stand in for one
        self.square_norm = float("nan")
        self._stand_ins = StandIns(len(problem.start), seed)

    @property
    def parameters(self) -> Floats:
        """The present ones."""
        return self.versions[self._version]

    def follow(self, policy: Policy) -> None:
        self._slopes_alone = self.target is not None and not policy.needs.loss
        self._stand_ins.kinds = policy.stand_in_kinds

    def released(self, worker: int, version: int) -> None:
        before = self._held.get(worker)
        self._held[worker] = version
        self._uses[version] += 1
        if before is not None:
            self._uses[before] -= 1
            self._forget(before)

    def gradient(self, course: Course) -> tuple[float, float]:
        parameters, work = self.versions[course.version], course.work
        if work.parts:
            total, loss = np.zeros_like(parameters), 0.0
            for part, coefficient in work.parts:
                own, own_loss = self._mean(parameters, part_of_batch(work.ranges, work.samples, part, self.workers))
                total += coefficient * own
                loss += own_loss / len(work.parts)
        elif work.local_steps:
            total, loss = self._stepped(parameters, course)
        else:
            total, loss = self._mean(parameters, cut_ranges(work.ranges, 0, course.samples))
        self._kept[course.worker, course.task] = total
        return loss, float(total @ total)

    def _stepped(self, parameters: Floats, course: Course) -> tuple[Floats, float]:
        """The sum of the gradients of a worker that makes a step with each micro-batch; the loss of the first one."""
        total, losses = np.zeros_like(parameters), []
        for start in range(0, course.samples, course.work.micro_batch):
            places = cut_ranges(course.work.ranges, start, min(start + course.work.micro_batch, course.samples))
            own, loss = self._mean(parameters - self.learning_rate * total, places)
            total += own
            losses.append(loss)
        return total, losses[0] if losses else 0.0

    def _mean(self, parameters: Floats, ranges: Ranges) -> tuple[Floats, float]:
        if not ranges:
            return np.zeros_like(parameters), 0.0
        ids = ids_of(ranges, self.problem.samples, self.seed)
        if self._slopes_alone:
            return cast(Convex, self.problem).slope(parameters, ids), float("nan")
        return self.problem.gradient(parameters, ids)

    def dropped(self, worker: int, task: int) -> None:
        del self._kept[worker, task]

    def update(self, used: Sequence[tuple[Course, float]], stand_in: Sequence[GradientStandIn]) -> float:
        total = np.zeros_like(self.parameters)
        for course, weight in used:
            own = self._kept.pop((course.worker, course.task))
            if self.remembers:
                self._stand_ins.seen(course.worker, own)
            total += weight * own
        for one in stand_in:
            total += one.weight * self.made_up(one)
        self.square_norm = float(total @ total)
        self._way = self.momentum * self._way + self._share(used, stand_in) * total
        if self.remembers:
            self._stand_ins.moved(self._way)
        new, old = self.parameters - self.learning_rate * self._way, self._version
        self._version += 1
        self.versions[self._version] = new
        self._forget(old)
        return self.judged(sum(course.samples for course, _ in used))

    def judged(self, samples: int) -> float:
        """The loss of the present parameters, after an update of so many samples."""
        del samples
        return self._loss(self.parameters)

    def made_up(self, one: GradientStandIn) -> Floats:
        """The gradient that stands in for a missing one, of the present parameters."""
        return self._stand_ins.made(one.worker, one.kind)

    def _loss(self, parameters: Floats) -> float:
        """NaN where it is certainly above the target."""
        if self.target is None:
            return self.problem.loss(parameters)
        if self._tangent is not None:
            touched, loss, slope = self._tangent
            if loss + float(slope @ (parameters - touched)) > self.target + SURELY:
                return float("nan")
        loss = self.problem.loss(parameters)
        self._tangent = parameters, loss, cast(Convex, self.problem).slope(parameters)
        return loss

    def _share(self, used: Sequence[tuple[Course, float]], stand_in: Sequence[GradientStandIn]) -> float:
        """Of the learning rate, by the samples of the update."""
        if not self.batch:
            return 1.0
        return min(1.0, sum(course.samples for course, _ in used) / self.batch + sum(one.weight for one in stand_in))

    def _forget(self, version: int) -> None:
        if version != self._version and not self._uses[version]:
            self.versions.pop(version, None)

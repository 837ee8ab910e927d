"""What notebook 11's cells simulate of training, in one process and in virtual time; and all its probes.

Every policy of a cell meets the same delays, worker by worker and task by task, and the same order of images.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import make_delays
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.options import JobError
from lockstep.engine.policies import POLICIES, Setting
from lockstep.engine.training.loop import Site, Trace
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CONTENDERS,
    DROP_ONE,
    LEARNERS,
    OF_FIGURE_4,
    RIVALS,
    SHUFFLED,
    STAND_INS,
    STAY,
    WAIT,
    Contender,
)
from lockstep.experiments.e11_straggler_mitigation.learners import (
    AveragedLearner,
    JudgedLearner,
    PartitionedLearner,
    Scored,
    SparinglyJudged,
    mean_or_nan,
    problem_of,
)
from lockstep.experiments.e11_straggler_mitigation.paper_network import paper_problem_of
from lockstep.experiments.e11_straggler_mitigation.timing import (
    LINK,
    cluster_of,
    made,
    measured,
    row_of,
    run_advice,
    run_scale,
    run_throughput,
    trace_of,
)
from lockstep.measure.probes.probe import Probe, Probes
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import SimulatedRun, Until, simulate
from lockstep.simulate.learner import SgdLearner

BUSY_LINK = AlphaBeta(alpha_seconds=1e-4, beta_seconds_per_byte=1e-3)
MOMENTUM = 0.9
_CELL = ("delays", "seed", "per_worker_batch_size", "learning_rate")

def run_time_to_loss(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Simulated seconds until the loss of `TARGET_LOSS` is reached, by every policy; NaN where it is not."""
    assert site is not None
    return _trained(job, group, problem_of(job, group, site), LEARNERS)


def run_slow_nodes(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The same by the policies of Figure 4."""
    assert site is not None
    return _trained(job, group, problem_of(job, group, site), OF_FIGURE_4)


def run_paper_network(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The same with the convolutional network of Table 2, until `PAPER_TARGET_LOSS` is reached."""
    assert site is not None
    return _trained(job, group, paper_problem_of(job, group, site), OF_FIGURE_4, target=PAPER_TARGET_LOSS)


def run_rivals(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The same with momentum, behind a server that has much to receive."""
    assert site is not None
    return _trained(job, group, problem_of(job, group, site), RIVALS, BUSY_LINK, MOMENTUM)


TARGET_LOSS, PAPER_TARGET_LOSS = 0.2, 0.3
"""Of the small network and of the paper's on training images, the mean of the last looks. The second takes several
hundred times as long to train."""


def _trained(
    job: Job, group: Group, given: tuple[Scored, Any, Any], contenders: Mapping[str, Contender],
    link: AlphaBeta = LINK, momentum: float = 0.0, target: float = 0.0,
) -> Trace:  # fmt: skip
    """`given`: the problem, and what it is tested on. `target`: a loss other than `TARGET_LOSS`."""
    (problem, test, labels), target = given, target or TARGET_LOSS
    rows = []
    for name, contender in contenders.items():
        group.enter("compute")
        setting = _setting(job, problem.samples, contender.standby)
        learner = SparinglyJudged(
            problem, job.learning_rate, setting.workers, job.seed, job.global_batch_size, momentum
        ).looking()  # fmt: skip
        learner.remembers = POLICIES[contender.policy].needs.single_gradients
        until = Until(samples=job.steps * job.global_batch_size, loss=target)
        row = row_of(name, contender, job) | {"target_loss": target}
        try:
            run = _simulated(job, contender, setting, link, until, learner)
        except (JobError, AnalysisError) as error:
            rows.append(row | {"reason": str(error)})
            continue
        loss = float(run.updates["loss"].iloc[-1]) if len(run.updates) else math.inf
        reached = loss <= target
        why = "" if reached else f"a loss of {loss:.3g} after {run.samples} images"
        row |= measured(run, job) | {"loss": loss, "accuracy": problem.accuracy(learner.parameters, test, labels)}
        rows.append(row | {"reason": why, "seconds_to_loss": run.total_seconds if reached else math.nan})
    return trace_of(group, rows)


def _setting(job: Job, samples: int, standby: int = 0) -> Setting:
    return Setting(
        job.workers + standby, samples, job.global_batch_size, job.values["micro_batch"], standby, job.seed
    )  # fmt: skip


def _simulated(
    job: Job, contender: Contender, setting: Setting, link: AlphaBeta, until: Until, learner: SgdLearner
) -> SimulatedRun:
    cluster = cluster_of(job, link, setting.workers, setting.standby)
    delays = _delays(job.values["delays"], setting.workers, job.seed)
    return simulate(made(contender, job, setting), cluster, delays, until, learner=learner)


_delays = functools.lru_cache(maxsize=1)(make_delays)
"""One object for all policies of a cell: what it says depends on nobody who has asked before, and it says it sooner."""


def _settled_loss(run: SimulatedRun) -> float:
    """The mean after each of the last quarter of the updates."""
    return float(run.updates["loss"].iloc[-max(1, len(run.updates) // 4) :].mean())


def run_stand_ins(job: Job, group: Group, site: Site | None = None) -> Trace:
    """After the same number of updates: the loss, and how close the stand-ins were to the gradient over all images."""
    assert site is not None
    problem, test, labels = problem_of(job, group, site)
    rows = []
    for name, contender in STAND_INS.items():
        group.enter("compute")
        setting = _setting(job, problem.samples)
        learner = JudgedLearner(problem, job.learning_rate, job.workers, job.seed, job.global_batch_size)
        row = row_of(name, contender, job)
        try:
            run = _simulated(job, contender, setting, LINK, Until(updates=job.steps), learner)
        except (JobError, AnalysisError) as error:
            rows.append(row | {"reason": str(error)})
            continue
        made = len(run.updates)
        row |= measured(run, job) | {"loss": _settled_loss(run) if made == job.steps else math.nan}
        row["reason"] = "" if made == job.steps else f"waits for ever after {made} updates"
        row |= {"accuracy": problem.accuracy(learner.parameters, test, labels), "stand_ins": len(learner.cosines)}
        rows.append(row | {"cosine": mean_or_nan(learner.cosines), "own_cosine": mean_or_nan(learner.own_cosines)})
    return trace_of(group, rows)


def run_partitions(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The loss on worker 0's own images and on the others', after the same number of images, with the parameters of the
    last half averaged, where the slowest worker of each update is left out. Images are in a fixed order of classes, so
    that a partition has one class."""
    assert site is not None
    problem, test, _ = problem_of(job, group, site)
    parts = np.array_split(np.arange(problem.samples), job.workers)
    rows = []
    for how in (SHUFFLED, STAY):
        for name in (WAIT, DROP_ONE):
            group.enter("compute")
            contender, setting = CONTENDERS[name], _setting(job, problem.samples)
            given = (problem, job.learning_rate, job.workers, job.seed, job.global_batch_size)
            learner = AveragedLearner(*given) if how == SHUFFLED else PartitionedLearner(*given).with_parts(parts)
            learner.from_update(job.steps // 2)
            until = Until(samples=job.steps * job.global_batch_size)
            run = _simulated(job, contender, setting, LINK, until, learner)
            row = row_of(name, contender, job) | measured(run, job) | {"data": how, "reason": ""}
            row |= {"train_images": problem.samples, "test_images": len(test)}
            row["loss_of_worker_0"] = problem.loss_over(learner.averaged, parts[0])
            row["loss_of_others"] = problem.loss_over(learner.averaged, np.concatenate(parts[1:]))
            rows.append(row)
    return trace_of(group, rows)


_OF_TRAINING = (run_time_to_loss, run_slow_nodes, run_paper_network, run_rivals, run_stand_ins, run_partitions)
_RUNS = (run_throughput, run_scale, run_advice, *_OF_TRAINING)
PROBES: Probes = {run.__name__.removeprefix("run_"): Probe(run, tables={"policies": _CELL}) for run in _RUNS}

"""What notebook 11's cells simulate, each in one process and in virtual time.

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
from lockstep.engine.sync.emulation import SleepCosts, sleep_costs
from lockstep.engine.training.loop import Site, Trace
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CONTENDERS,
    DROP_ONE,
    LEARNERS,
    OF_FIGURE_4,
    RIVALS,
    ROUND_BY_ROUND,
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
from lockstep.measure.probes.probe import Probe, Probes
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, SimulatedRun, Until, simulate
from lockstep.simulate.comparison import (
    Trial,
    bound_seconds_per_sample,
    ideal_seconds_per_sample,
    seconds_per_sample,
    share_of_way,
    unfinished,
    wasted_share,
)
from lockstep.simulate.learner import SgdLearner

LINK = AlphaBeta(alpha_seconds=1e-4, beta_seconds_per_byte=5e-4)
"""Of a gradient of one byte, so that the second number is the seconds of a message: half a percent of the computing
of a share of 0.1 s, and the server takes one message after the other."""
NO_LINK = AlphaBeta(0.0, 0.0)
BUSY_LINK = AlphaBeta(alpha_seconds=1e-4, beta_seconds_per_byte=1e-3)
UPDATE_SECONDS = 5e-4
MOMENTUM = 0.9
_CELL = ("delays", "seed", "per_worker_batch_size", "learning_rate")

Row = dict[str, Any]


def run_throughput(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The time of the same number of images by every policy."""
    del site
    return _timed(job, group, CONTENDERS, LINK)


def run_scale(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The same for policies that decide round by round, on a server whose link costs nothing."""
    del site
    return _timed(job, group, ROUND_BY_ROUND, NO_LINK)


def _timed(job: Job, group: Group, contenders: Mapping[str, Contender], link: AlphaBeta) -> Trace:
    base = _trial(job, link)
    ideal, bound = ideal_seconds_per_sample(base), bound_seconds_per_sample(base)
    waiting, rows = math.nan, []
    for name, contender in contenders.items():
        group.enter("compute")
        trial = _trial(job, link, contender.standby)
        row = _row(name, contender, job)
        try:
            run = trial.run(functools.partial(_made, contender, job))
        except (JobError, AnalysisError) as error:
            rows.append(row | {"reason": str(error)})
            continue
        why = unfinished(run, trial)
        own = math.nan if why else seconds_per_sample(run)
        waiting = own if name == WAIT else waiting
        row |= _measured(run, job) | {"reason": why, "seconds_per_sample": own}
        row |= {"ideal_seconds_per_sample": ideal, "bound_seconds_per_sample": bound}
        row["mitigation"] = share_of_way(waiting, own, ideal)
        row["of_the_bound"] = share_of_way(waiting, own, bound)
        rows.append(row)
    return _trace(group, rows)


def _trial(job: Job, link: AlphaBeta, standby: int = 0) -> Trial:
    workers = job.workers + standby
    batch = job.global_batch_size
    setting = Setting(workers, 100 * batch, batch, job.values["micro_batch"], standby, job.seed)
    return Trial(setting, _cluster(job, link, workers, standby), job.values["delays"], job.steps)


def _cluster(job: Job, link: AlphaBeta, workers: int, standby: int = 0) -> Cluster:
    costs = _sleep(job)
    priced = Costs(costs.fixed_seconds, costs.image_seconds, 0.0, gradient_bytes=1.0)
    return Cluster(workers, priced, link, UPDATE_SECONDS if link.beta_seconds_per_byte else 0.0, standby)


def _sleep(job: Job) -> SleepCosts:
    costs = sleep_costs(job.values["compute"])
    assert costs is not None
    return costs


def _share_seconds(job: Job) -> float:
    """Of computing a worker's share of an update."""
    return _sleep(job).fixed_seconds + _sleep(job).image_seconds * job.per_worker_batch_size


def _made(contender: Contender, job: Job, setting: Setting) -> Any:
    return contender.made(setting, _share_seconds(job))


def _row(name: str, contender: Contender, job: Job) -> Row:
    options = contender.options_for(job.workers, _share_seconds(job))
    return {"contender": name, "policy": contender.policy, "policy_options": options, "standby": contender.standby}


def _measured(run: SimulatedRun, job: Job) -> Row:
    """`computed`: all computing of all workers, relative to that of the samples that updates used: 1 is nothing twice
    and nothing in vain."""
    needed = _sleep(job).image_seconds * run.samples
    return {
        "updates": len(run.updates), "samples": run.samples, "seconds": run.total_seconds,
        "step_seconds": run.step_seconds, "wasted_share": wasted_share(run), "events": run.sums.get("events", math.nan),
        "computed": run.sums["compute_seconds"] / needed if needed else math.nan,
    }  # fmt: skip


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
        row = _row(name, contender, job) | {"target_loss": target}
        try:
            run = _simulated(job, contender, setting, link, until, learner)
        except (JobError, AnalysisError) as error:
            rows.append(row | {"reason": str(error)})
            continue
        loss = float(run.updates["loss"].iloc[-1]) if len(run.updates) else math.inf
        reached = loss <= target
        why = "" if reached else f"a loss of {loss:.3g} after {run.samples} images"
        row |= _measured(run, job) | {"loss": loss, "accuracy": problem.accuracy(learner.parameters, test, labels)}
        rows.append(row | {"reason": why, "seconds_to_loss": run.total_seconds if reached else math.nan})
    return _trace(group, rows)


def _setting(job: Job, samples: int, standby: int = 0) -> Setting:
    return Setting(
        job.workers + standby, samples, job.global_batch_size, job.values["micro_batch"], standby, job.seed
    )  # fmt: skip


def _simulated(
    job: Job, contender: Contender, setting: Setting, link: AlphaBeta, until: Until, learner: SgdLearner
) -> SimulatedRun:
    cluster = _cluster(job, link, setting.workers, setting.standby)
    delays = _delays(job.values["delays"], setting.workers, job.seed)
    return simulate(_made(contender, job, setting), cluster, delays, until, learner=learner)


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
        row = _row(name, contender, job)
        try:
            run = _simulated(job, contender, setting, LINK, Until(updates=job.steps), learner)
        except (JobError, AnalysisError) as error:
            rows.append(row | {"reason": str(error)})
            continue
        made = len(run.updates)
        row |= _measured(run, job) | {"loss": _settled_loss(run) if made == job.steps else math.nan}
        row["reason"] = "" if made == job.steps else f"waits for ever after {made} updates"
        row |= {"accuracy": problem.accuracy(learner.parameters, test, labels), "stand_ins": len(learner.cosines)}
        rows.append(row | {"cosine": mean_or_nan(learner.cosines), "own_cosine": mean_or_nan(learner.own_cosines)})
    return _trace(group, rows)


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
            row = _row(name, contender, job) | _measured(run, job) | {"data": how, "reason": ""}
            row |= {"train_images": problem.samples, "test_images": len(test)}
            row["loss_of_worker_0"] = problem.loss_over(learner.averaged, parts[0])
            row["loss_of_others"] = problem.loss_over(learner.averaged, np.concatenate(parts[1:]))
            rows.append(row)
    return _trace(group, rows)


def _trace(group: Group, rows: list[Row]) -> Trace:
    """A row of records with the step of the first policy, which waits for all, and the table of all policies."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    whole = [{name: _stored(row.get(name, "" if name in _TEXTS else math.nan)) for name in names} for row in rows]
    step = next((row["step_seconds"] for row in whole if row["contender"] == WAIT and "step_seconds" in row), math.nan)
    scores = {} if step != step else {"step_seconds": float(step)}
    return Trace(group.rank, scores=scores, tables={"policies": whole})


def _stored(value: float | str) -> float | str:
    """Eight digits, for the table has tens of thousands of numbers."""
    return float(f"{value:.8g}") if isinstance(value, float) else value


_TEXTS = ("contender", "policy", "policy_options", "data", "reason")

_OF_TRAINING = (run_time_to_loss, run_slow_nodes, run_paper_network, run_rivals, run_stand_ins, run_partitions)
_RUNS = (run_throughput, run_scale, *_OF_TRAINING)
PROBES: Probes = {run.__name__.removeprefix("run_"): Probe(run, tables={"policies": _CELL}) for run in _RUNS}

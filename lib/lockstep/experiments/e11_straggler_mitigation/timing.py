"""What notebook 11's cells simulate of time alone: how long the same images take, and what a replay says of that.

Every policy of a cell meets the same delays, worker by worker and task by task.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays.traces import read_trace
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.options import JobError
from lockstep.engine.policies import Setting
from lockstep.engine.sync.emulation import SleepCosts, sleep_costs
from lockstep.engine.training.loop import Site, Trace
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    ADVISED,
    CONTENDERS,
    ROUND_BY_ROUND,
    WAIT,
    Contender,
)
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, SimulatedRun, simulate
from lockstep.simulate.comparison import (
    Trial,
    bound_seconds_per_sample,
    ideal_seconds_per_sample,
    seconds_per_sample,
    unfinished,
    wasted_share,
)

LINK = AlphaBeta(alpha_seconds=1e-4, beta_seconds_per_byte=5e-4)
"""Of a gradient of one byte, so that the second number is the seconds of a message: half a percent of the computing
of a share of 0.1 s, and the server takes one message after the other."""
NO_LINK = AlphaBeta(0.0, 0.0)
UPDATE_SECONDS = 5e-4

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
    base = trial_of(job, link)
    ideal, bound = ideal_seconds_per_sample(base), bound_seconds_per_sample(base)
    rows = []
    for name, contender in contenders.items():
        group.enter("compute")
        row = _tried(name, contender, job, trial_of(job, link, contender.standby))
        if name == WAIT:  # of the cell: what shares of the way are taken from (`rows.with_shares`)
            row |= {"ideal_seconds_per_sample": ideal, "bound_seconds_per_sample": bound}
        rows.append(row)
    return trace_of(group, rows)


def _tried(name: str, contender: Contender, job: Job, trial: Trial) -> Row:
    """NaN seconds and a reason where there is no number."""
    row = row_of(name, contender, job)
    try:
        run = trial.run(functools.partial(made, contender, job))
    except (JobError, AnalysisError) as error:
        return row | {"reason": str(error), "seconds_per_sample": math.nan}
    row |= measured(run, job) | {"reason": unfinished(run, trial)}
    return row | {"seconds_per_sample": math.nan if row["reason"] else seconds_per_sample(run)}


def run_advice(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Waits for all, records its tasks as a run on real ranks does, and replays that recording under other policies."""
    del site
    group.enter("compute")
    base = trial_of(job, LINK)
    wait = functools.partial(made, CONTENDERS[WAIT], job)
    run = simulate(wait(base.setting), base.cluster, base.made_delays, base.until, keep_tasks=True)
    assert run.tasks is not None
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        file = Path(folder) / "tasks.csv"
        run.tasks.to_csv(file, index=False)
        median = float(np.median(read_trace(file).step_seconds(0)))
        costs = Costs(0.0, median / job.per_worker_batch_size, 0.0, gradient_bytes=1.0)
        trial = replace(base, cluster=replace(base.cluster, costs=costs), delays=f"trace:file={file},median=trace")
        rows = [_tried(name, contender, job, trial) for name, contender in ADVISED.items()]
    return trace_of(group, rows)


def trial_of(job: Job, link: AlphaBeta, standby: int = 0) -> Trial:
    workers = job.workers + standby
    batch = job.global_batch_size
    setting = Setting(workers, 100 * batch, batch, job.values["micro_batch"], standby, job.seed)
    return Trial(setting, cluster_of(job, link, workers, standby), job.values["delays"], job.steps)


def cluster_of(job: Job, link: AlphaBeta, workers: int, standby: int = 0) -> Cluster:
    costs = _sleep(job)
    priced = Costs(costs.fixed_seconds, costs.image_seconds, 0.0, gradient_bytes=1.0)
    return Cluster(workers, priced, link, UPDATE_SECONDS if link.beta_seconds_per_byte else 0.0, standby)


def _sleep(job: Job) -> SleepCosts:
    costs = sleep_costs(job.values["compute"])
    assert costs is not None
    return costs


def share_seconds(job: Job) -> float:
    """Of computing a worker's share of an update."""
    return _sleep(job).fixed_seconds + _sleep(job).image_seconds * job.per_worker_batch_size


def made(contender: Contender, job: Job, setting: Setting) -> Any:
    return contender.made(setting, share_seconds(job))


def row_of(name: str, contender: Contender, job: Job) -> Row:
    options = contender.options_for(job.workers, share_seconds(job))
    return {"contender": name, "policy": contender.policy, "policy_options": options, "standby": contender.standby}


def measured(run: SimulatedRun, job: Job) -> Row:
    """`computed`: all computing of all workers, relative to that of the samples that updates used: 1 is nothing twice
    and nothing in vain."""
    needed = _sleep(job).image_seconds * run.samples
    return {
        "updates": len(run.updates), "samples": run.samples, "seconds": run.total_seconds,
        "wasted_share": wasted_share(run), "events": run.sums.get("events", math.nan),
        "computed": run.sums["compute_seconds"] / needed if needed else math.nan,
    }  # fmt: skip


def trace_of(group: Group, rows: list[Row]) -> Trace:
    """A row of records with the step of the first policy, which waits for all, and the table of all policies."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    whole = [{name: _stored(row.get(name, "" if name in _TEXTS else math.nan)) for name in names} for row in rows]
    wait = next((row for row in whole if row["contender"] == WAIT and float(row.get("updates", 0)) > 0), None)
    scores = {} if wait is None else {"step_seconds": float(wait["seconds"]) / float(wait["updates"])}
    return Trace(group.rank, scores=scores, tables={"policies": whole})


def _stored(value: float | str) -> float | str:
    """Eight digits, for the table has tens of thousands of numbers."""
    return float(f"{value:.8g}") if isinstance(value, float) else value


_TEXTS = ("contender", "policy", "policy_options", "data", "reason")

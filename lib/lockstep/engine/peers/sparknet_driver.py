"""SparkNet: Spark's driver owns the loop, and executors train between a broadcast and a `treeAggregate`.

    driver      | broadcast |                                        | sum | update |
    executor 0              | read | steps: tau, or one gradient | -->|
    executor 1              | read | steps: tau, or one gradient | -->|

- `opt_weight="none"`: executors send gradients, and the driver steps: the parameters of sequential training.
- `opt_weight="mean"`: executors take `exchange_every` (tau) steps of their own and send parameters, whose mean goes
  on (Moritz et al. 2015; *Single-to-Multi*, section 3.3.2, says of its Spark only that it maps and reduces in memory).
  Their optimiser's state is averaged with `state_averaged`, else it begins anew with each window.
- `executor_data="rdd"`: encoded images are a cached RDD, sample i in partition i mod workers. Spark brings all of a
  partition to the Python worker in each window, whatever the window needs. `"files"`: executors read files themselves.

A window is measured as a whole; one that begins within the warm-up steps is not counted.

If a task is lost with its executor, Spark runs it again: windows need no state that an executor has kept.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import cloudpickle
import torch
from torch import Tensor, nn

from lockstep.engine.data.encoded import encoded
from lockstep.engine.data.sources import ImageData
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.peers.sparknet_worker import (
    Assignment,
    Record,
    Result,
    State,
    add,
    forget,
    restore,
    state_of,
    window,
)
from lockstep.engine.replica import Replica
from lockstep.engine.replica.layout import agreed
from lockstep.engine.sync import Plan, StepCost
from lockstep.engine.sync.local import LocalSync
from lockstep.engine.training import checkpoint
from lockstep.engine.training.evaluate import evaluate
from lockstep.engine.training.finite import FiniteWatch
from lockstep.engine.training.loop import STEP_COLUMNS, Site, Trace
from lockstep.engine.training.replicas import torch_replica
from lockstep.engine.usecases import use_case

CORES_SETTING = "spark.lockstep.cores"
"""A setting of the Spark application: the cores of each partition's worker as JSON; absent for remote executors."""

_HEAP_FULL = ("exited with code 52", "OutOfMemoryError")
"""How Spark reports that an executor's heap was full (`SparkExitCode.OOM`), and a JVM that its own was."""
_KILLED = "exited with code 137"
_FULL = "if its heap was full, give LOCKSTEP_SPARK_MEMORY a larger value (one for both; docs/cluster.md)"


class ExecutorFailed(RuntimeError):
    """Spark gave a job up; the message holds the executor's own traceback, as far as there is one."""


class DriverSync(LocalSync):
    """The optimiser of the whole model, on the driver."""

    def attach(self, replica: Replica, group: Group) -> None:
        self.replica, self.group = replica, group
        self.leaf = nn.Parameter(replica.parameters)
        self.optimiser = self.make_optimiser([self.leaf])

    def update(self, gradient: Tensor) -> StepCost:
        """One step with this gradient, float32 [length]."""
        self.leaf.grad = gradient
        return self.step()

    def adopt(self, mean: State, steps: int) -> None:
        """Continue from `mean`, the result of `steps` steps of the executors."""
        self.replica.parameters.copy_(torch.from_numpy(mean.parameters))
        restore(self.optimiser, self.leaf, mean)
        self.done += steps


def run_sparknet(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Train as `job` says, from Spark's driver, which is rank 0 of one; the trace's table `spark` has a row per window
    and partition. Raises ExecutorFailed if Spark gives up."""
    from pyspark.sql import SparkSession

    site, began = site or Site(), time.perf_counter()
    case = site.use_case or use_case(job.use_case)
    data = case.open("train", site.data_root, job.images, site.skipped)
    case = case.fitting(data)
    plan = Plan(len(data), job.global_batch_size, job.warmup_steps + job.steps, job.seed)
    replica = torch_replica(case, job, group)
    sync = DriverSync(plan, case.optimiser_of(job.optimiser))
    sync.attach(replica, group)
    if site.resume and site.checkpoint:
        checkpoint.load(site.checkpoint, job, replica, sync)
    context = SparkSession.builder.getOrCreate().sparkContext
    cores = json.loads(context.getConf().get(CORES_SETTING, "[]"))
    assigned = Assignment(uuid.uuid4().hex, job, case, data, plan, cores, replica.others(), site.draws)
    spark = _Windows(context, assigned)
    try:
        trace = Trace(group.rank, startup_seconds=time.perf_counter() - began)
        _train(job, site, group, sync, spark, trace)
        spark.forget()
    finally:
        spark.close()
    if site.checkpoint:
        checkpoint.save(site.checkpoint, job, group, replica, sync, data=site.data)
    if site.evaluate:
        test = case.open("test", site.data_root, skipped=site.skipped)
        trace.scores = evaluate(replica, group, test, job.per_worker_batch_size, case.loss)
    group.enter("idle")
    return trace


def _train(job: Job, site: Site, group: Group, sync: DriverSync, spark: _Windows, trace: Trace) -> None:
    every, last = job.exchange_every or sync.plan.steps_per_epoch, job.warmup_steps + job.steps
    rows: list[dict[str, float | str]] = []
    watch = FiniteWatch(group.rank, site.on_nan)
    while sync.done < last:
        steps = range(sync.done, min(sync.done + every, last))
        group.at_step(steps.start)
        group.enter("exchange")
        start = time.perf_counter()
        result, phases = spark.run(_state(job, sync), steps)
        for times in result[1]:
            for step, loss in zip(steps, times.losses, strict=True):
                watch.see_loss(loss, step, times.partition)
        group.enter("update")
        middle = time.perf_counter()
        _update(job, sync, result[0], steps)
        watch.see_parameters(sync.replica.parameters, steps[-1])
        for _ in steps:
            sync.next()  # the plan's position, for a checkpoint
        ended = time.perf_counter()
        if steps.start >= job.warmup_steps:
            trace.began, trace.ended = trace.began or start, ended
            trace.steps += _step_rows(job, sync.plan, steps, result, ended - start, ended - middle)
            update = {"window": len(rows) // job.workers, "steps": len(steps), "driver_update_seconds": ended - middle}
            rows += [phases | update | _numbers(each) for each in sorted(result[1], key=lambda each: each.partition)]
        each = site.checkpoint_every_steps
        if site.checkpoint and each and sync.done // each > steps.start // each:  # a window may end after it
            checkpoint.save(site.checkpoint, job, group, sync.replica, sync, data=site.data)
    trace.cautions = watch.cautions
    trace.tables["spark"] = rows


def _state(job: Job, sync: DriverSync) -> State:
    """The state with which executors start a window."""
    averaged = sync.optimiser if job.averages_parameters and job.state_averaged else None
    return state_of(sync.replica, averaged)


def _update(job: Job, sync: DriverSync, total: State, steps: range) -> None:
    sync.replica.buffers.copy_(torch.from_numpy(total.buffers / job.workers))
    sync.replica.take_others(agreed([total.others[partition] for partition in sorted(total.others)]))
    if not job.averages_parameters:
        sync.update(torch.from_numpy(total.parameters))
        return
    total.parameters /= job.workers
    for values in total.held.values():
        values /= job.workers
    sync.adopt(total, len(steps))


def _step_rows(
    job: Job, plan: Plan, steps: range, result: Result, window_seconds: float, update_seconds: float
) -> list[dict[str, float]]:
    """A row of STEP_COLUMNS per step; a window's seconds are divided among its steps."""
    windows, count = result[1], len(steps)
    slowest = max(windows, key=lambda each: each.task_seconds)
    times = {
        "step_seconds": window_seconds / count,
        "input_seconds": (slowest.read_seconds + slowest.input_seconds) / count,
        "compute_seconds": slowest.compute_seconds / count,
        "update_seconds": (update_seconds + slowest.update_seconds) / count,
        "bytes_sent": 2 * result[0].nbytes / count,  # of one executor: the state there and the result back
    }
    times["exchange_seconds"] = times["step_seconds"] - sum(
        times[name] for name in ("input_seconds", "compute_seconds", "update_seconds")
    )
    rows = []
    for index, step in enumerate(steps):
        images = len(plan.shares(step, 0, 1)[0].sample_ids)
        loss = sum(each.losses[index] for each in windows)
        rows.append(dict.fromkeys(STEP_COLUMNS, 0.0) | times | {"train_loss": loss, "images": float(images)})
    return rows


def _numbers(times: Any) -> dict[str, float | str]:
    return {name: value for name, value in vars(times).items() if name != "losses"}


class _Windows:
    """The partitions of a run: an RDD with one per worker, held by the executors."""

    def __init__(self, context: Any, assigned: Assignment) -> None:
        from pyspark import StorageLevel

        self.context, self.workers, self.name = context, assigned.job.workers, assigned.run
        # Pickled here by cloudpickle, because a reader's model may be a lambda, which Spark could not pickle.
        pickled = cloudpickle.dumps(assigned)
        self.assigned = _done(lambda: context.broadcast(pickled))
        numbers = context.parallelize(range(self.workers), self.workers)
        if assigned.job.executor_data == "rdd":
            numbers = numbers.flatMap(_reader(self.assigned, self.workers))
        # Cached even where a partition is only a number, because Spark then gives it to the same executor each time.
        self.partitions = numbers.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            _done(self.partitions.count)
        except BaseException:
            self.close()
            raise

    def run(self, state: State, steps: range) -> tuple[Result, dict[str, float | str]]:
        """The sum over partitions, and the driver's seconds: until the state was handed to Spark, and of the job."""
        start = time.perf_counter()
        broadcast = _done(lambda: self.context.broadcast(state))
        middle = time.perf_counter()
        job = self.partitions.mapPartitionsWithIndex(_windower(self.name, self.assigned, broadcast, steps))
        try:
            result: Result = _done(lambda: job.treeAggregate(None, add, add, depth=2))
            # A JVM that is ending may send only some of the results, without an error.
            if len(result[1]) != self.workers:
                raise ExecutorFailed(f"results of {len(result[1])} of {self.workers} partitions have come")
        finally:
            end = time.perf_counter()
            with contextlib.suppress(Exception):  # Spark itself may have gone, which `_done` says better
                broadcast.destroy(blocking=True)  # otherwise the next one arrives while executors still hold this one
        phases: dict[str, float | str] = {"broadcast_seconds": middle - start, "job_seconds": end - middle}
        return result, phases | {"state_bytes": float(state.nbytes), "result_bytes": float(result[0].nbytes)}

    def forget(self) -> None:
        """Release what the executors' Python workers hold of the run."""
        _done(lambda: self.partitions.foreachPartition(forget))

    def close(self) -> None:
        """Release what Spark itself holds of the run."""
        with contextlib.suppress(Exception):  # Spark itself may have gone
            self.partitions.unpersist()
            self.assigned.destroy()


def _reader(assigned: Any, workers: int) -> Any:
    """For flatMap: the number of a partition -> its images, read by the executor that holds it."""

    def read(number: int) -> Iterator[Record]:
        data: ImageData = cloudpickle.loads(assigned.value).data
        return ((sample_id, encoded(data, sample_id)) for sample_id in range(number, len(data), workers))

    return read


def _windower(name: str, assigned: Any, state: Any, steps: range) -> Any:
    def run_window(partition: int, records: Any) -> Any:
        return window(name, assigned, partition, records, state, steps)

    return run_window


def _done(action: Any) -> Any:
    """What `action` of Spark's returns. Raises ExecutorFailed with the executor's words in place of the JVM's."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return action()
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage())
    except (Py4JError, PySparkException, ConnectionError) as error:
        raise ExecutorFailed(f"the driver's JVM does not answer ({error}); {_FULL}") from error
    except ValueError as error:  # it went before any result had come: there is nothing to add up
        raise ExecutorFailed(f"no result has come ({error}); {_FULL}") from error
    found = re.search(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)", said)
    reason = found[1] if found else reason_of(said)
    raise ExecutorFailed(f"{reason}\n\n--- executor ---\n{found[0] if found else said}")


def reason_of(said: str) -> str:
    """The first line of a JVM's message, and the remedy where one is known."""
    first = (said.splitlines() or ["Spark gives no reason"])[0]
    if any(sign in said for sign in _HEAP_FULL):
        return f"{first}; {_FULL}"
    if _KILLED in said:
        return f"{first}; if the machine's memory was full, give LOCKSTEP_SPARK_MEMORY a smaller value"
    return first

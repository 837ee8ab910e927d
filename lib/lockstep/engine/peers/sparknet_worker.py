"""SparkNet's executor side: one window of a partition, on a replica that stays warm in its Python worker.

    state (parameters ...) --- broadcast ---> replica --- steps of the window ---> its gradient, or its parameters
    images: records of the partition (`rdd`), or files that the executor reads itself (`files`)

A window receives everything it needs, so that a lost task can be run again on any executor, with the same result.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.encoded import received
from lockstep.engine.data.loader import Loader
from lockstep.engine.data.sources import ImageData
from lockstep.engine.groups.memory import release_memory
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.replica import Replica
from lockstep.engine.sync import Plan, Share
from lockstep.engine.thread_names import name_training_thread
from lockstep.engine.training.randomness import seed_micro_batch
from lockstep.engine.training.replicas import torch_replica
from lockstep.engine.usecases import UseCase

Array = np.ndarray
Record = tuple[int, bytes]  # sample id, encoded image


@dataclass(frozen=True)
class Assignment:
    """What all windows of a run have in common. It is broadcast once."""

    run: str  # a name of its own
    job: Job
    case: UseCase
    data: ImageData
    plan: Plan
    cores: list[list[int]]  # of each partition's worker; empty: not bound
    others: dict[str, Tensor]  # of the driver's replica: frozen parameters, which no window changes, and buffers
    draws: bool = False  # as in `Site`


@dataclass
class State:
    """The state at the start of a window and, summed over partitions, at its end. Flat, float32."""

    parameters: Array  # of a window that sends gradients: their sum
    buffers: Array
    others: dict[int, dict[str, Tensor]]  # buffers of other types than float32, by partition; the driver's by 0
    held: dict[str, Array] = field(default_factory=dict)  # of the optimiser: an entry per parameter
    counts: dict[str, Any] = field(default_factory=dict)  # of the optimiser: the rest, the same everywhere

    def add(self, other: State) -> State:
        """In place."""
        self.parameters += other.parameters
        self.buffers += other.buffers
        self.others |= other.others
        for name, values in other.held.items():
            self.held[name] += values
        return self

    @property
    def nbytes(self) -> int:
        others = sum(each.nbytes for buffers in self.others.values() for each in buffers.values())
        held = sum(each.nbytes for each in self.held.values())
        return int(self.parameters.nbytes + self.buffers.nbytes + others + held)


@dataclass
class WindowTimes:
    """How the time of one partition's window was spent, and its losses."""

    partition: int
    state_seconds: float = 0.0  # until this process had the broadcast state
    read_seconds: float = 0.0  # until all records of the partition had been read
    input_seconds: float = 0.0  # waiting for decoded images
    compute_seconds: float = 0.0  # forward and backward passes
    update_seconds: float = 0.0  # local steps of the optimiser, and taking the result out
    task_seconds: float = 0.0
    losses: list[float] = field(default_factory=list)  # a step each: the share of the global loss


Result = tuple[State, list[WindowTimes]]


def add(one: Result | None, other: Result | None) -> Result | None:
    """For treeAggregate, which begins with None."""
    if one is None or other is None:
        return other if one is None else one
    return one[0].add(other[0]), one[1] + other[1]


def shares(plan: Plan, step: int, partition: int, workers: int, by_place: bool) -> Share:
    """The samples that a partition trains on in `step`. `by_place`: the images that it holds, whose ids modulo
    `workers` are `partition`; otherwise an equal share of the global batch."""
    if not by_place:
        return plan.shares(step, partition, workers)[0]
    whole = plan.shares(step, 0, 1)[0]
    mine = whole.sample_ids % workers == partition
    return Share(step, whole.epoch, whole.sample_ids[mine], whole.weights[mine])


_here: dict[str, PartitionWorker] = {}  # of this process, by run: at most one


def window(
    run: str, assigned: Any, partition: int, records: Iterable[Record], state: Any, steps: range
) -> Iterator[Result]:
    """The steps of a window of `run` on one partition: one result. Of Spark's broadcast variables, `assigned` holds a
    pickled `Assignment` and `state` a `State`."""
    began = time.perf_counter()
    if run not in _here:
        _let_go()
        _here[run] = PartitionWorker(cloudpickle.loads(assigned.value), partition)
    yield _here[run].window(partition, records, state, steps, began)


def forget(records: Iterable[object]) -> None:
    """For foreachPartition after a run: this Python worker releases what it held of it."""
    deque(records, maxlen=0)  # Spark does not reuse a Python worker that has left records unread
    _let_go()
    release_memory()


def _let_go() -> None:
    for old in list(_here.values()):
        old.loader.close()
    _here.clear()


class PartitionWorker:
    """A replica and its loader, for as long as this Python worker lives."""

    def __init__(self, assigned: Assignment, partition: int) -> None:
        name_training_thread("rank")
        self.assigned, self.job = assigned, assigned.job
        _set_up(assigned, partition)
        self.come = received(assigned.data) if self.job.executor_data == "rdd" else None
        self.loader = Loader(
            assigned.data if self.come is None else self.come, self.job.seed, threads=self.job.cores_per_worker
        )
        self.replica = torch_replica(assigned.case, self.job, ThreadGroup.of(1)[0])
        self.replica.take_others(assigned.others)
        self.gradients = torch.zeros_like(self.replica.parameters)
        self.replica.rebind(gradients=self.gradients)
        self.replica.clear_gradients()

    def window(self, partition: int, records: Iterable[Record], state: Any, steps: range, began: float) -> Result:
        times = WindowTimes(partition)
        start = time.perf_counter()
        given: State = state.value
        self.replica.parameters.copy_(torch.from_numpy(given.parameters))
        self.replica.buffers.copy_(torch.from_numpy(given.buffers))
        self.replica.take_others(given.others[0])
        times.state_seconds = time.perf_counter() - start
        by_place = self.come is not None
        work = [shares(self.assigned.plan, step, partition, self.job.workers, by_place) for step in steps]
        if self.come is not None:
            times.read_seconds = _take(records, work, self.come.contents)
        for _ in records:
            pass  # Spark ends a Python worker, and with it the replica, that leaves anything of its partition unread
        made = self._local_steps(given, work, times) if self.job.averages_parameters else self._gradient(work, times)
        made.others[partition] = made.others.pop(0)
        # Decoded while the driver adds up; after the last step too, so that every step pays for one batch.
        if not by_place:
            following = shares(self.assigned.plan, steps.stop, partition, self.job.workers, False)
            self.loader.prefetch(following.epoch, following.sample_ids)
        times.task_seconds = time.perf_counter() - began
        return made, [times]

    def _gradient(self, work: list[Share], times: WindowTimes) -> State:
        """The gradient of this partition's share, without an update."""
        (share,) = work
        self._backward(share, share.weights, times)
        start = time.perf_counter()
        made = State(self.gradients.numpy().copy(), *_buffers(self.replica))
        self.replica.clear_gradients()
        times.update_seconds += time.perf_counter() - start
        return made

    def _local_steps(self, given: State, work: list[Share], times: WindowTimes) -> State:
        """As in `lockstep.engine.sync.private`, this partition's gradient is multiplied by the number of partitions."""
        leaf = nn.Parameter(self.replica.parameters)
        leaf.grad = self.gradients
        optimiser = self.assigned.case.optimiser_of(self.job.optimiser)([leaf])
        restore(optimiser, leaf, given)
        for place, share in enumerate(work):
            if place + 1 < len(work):
                self.loader.prefetch(work[place + 1].epoch, work[place + 1].sample_ids)
            self._backward(share, share.weights * np.float32(self.job.workers), times, self.job.workers)
            start = time.perf_counter()
            optimiser.step()
            self.replica.clear_gradients()
            times.update_seconds += time.perf_counter() - start
        start = time.perf_counter()
        made = state_of(self.replica, optimiser if self.job.state_averaged else None)
        times.update_seconds += time.perf_counter() - start
        return made

    def _backward(self, share: Share, weights: Array, times: WindowTimes, scale: float = 1.0) -> None:
        start = time.perf_counter()
        batch = self.loader.take(share.epoch, share.sample_ids)
        if self.assigned.draws:
            seed_micro_batch(self.job.seed, batch)
        middle = time.perf_counter()
        times.losses.append(self.replica.backward(batch, weights) / scale)
        times.input_seconds += middle - start
        times.compute_seconds += time.perf_counter() - middle


def _take(records: Iterable[Record], work: list[Share], contents: dict[int, bytes]) -> float:
    """Read all records of the partition and put those that this window needs into `contents`. Returns the seconds."""
    start = time.perf_counter()
    wanted = {int(sample_id) for share in work for sample_id in share.sample_ids}
    kept = {sample_id: content for sample_id, content in records if sample_id in wanted}
    contents.clear()
    contents.update(kept)
    return time.perf_counter() - start


def state_of(replica: Replica, optimiser: torch.optim.Optimizer | None) -> State:
    """A copy of everything that is averaged; the optimizer's state only if `optimiser` is given."""
    held: dict[str, Array] = {}
    counts: dict[str, Any] = {}
    for values in optimiser.state.values() if optimiser is not None else ():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == replica.parameters.shape:
                held[name] = value.detach().numpy().copy()
            else:
                counts[name] = value
    return State(replica.parameters.detach().numpy().copy(), *_buffers(replica), held, counts)


def _buffers(replica: Replica) -> tuple[Array, dict[int, dict[str, Tensor]]]:
    """A copy of the buffers: those that are summed, and the others."""
    replica.adopt_buffers()
    others = {name: each.clone() for name, each in replica.others(frozen=False).items()}
    return replica.buffers.numpy().copy(), {0: others}


def restore(optimiser: torch.optim.Optimizer, leaf: nn.Parameter, state: State) -> None:
    """Give the optimizer of `leaf` the averaged state, if there is one."""
    if state.held or state.counts:
        held = {name: torch.from_numpy(np.array(values)) for name, values in state.held.items()}
        optimiser.state[leaf] = {**state.counts, **held}


def _set_up(assigned: Assignment, partition: int) -> None:
    """Set up this process like every worker: its core, its number of threads, and denormals flushed."""
    if assigned.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, assigned.cores[partition])
    torch.set_num_threads(assigned.job.threads_per_worker)
    torch.set_flush_denormal(True)

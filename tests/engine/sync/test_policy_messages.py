"""What the server of policies and its workers tell each other, on threads of this process."""

from __future__ import annotations

import threading
import time
from typing import Any

import pandas as pd
import pytest
import torch

import tiny
from failing import END_SECONDS
from lockstep.engine.groups import Group, GroupError
from lockstep.engine.job import Job
from lockstep.engine.policies import Work
from lockstep.engine.replica import Replica
from lockstep.engine.sync import orders
from lockstep.engine.sync.orders import Note, Order
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.training.replicas import replica_for
from lockstep.engine.usecases import UseCase
from steps import on_ranks
from together import served_job


class LateWorker:
    """Worker 1 computes for so long that the others are through meanwhile: until it is recalled from every task.

    Seen, beside other tests: its 0.3 s were over before the others had made their second update; and it was
    recalled from its first task before it had begun, so that the second was the one that it computed.
    """

    def __init__(self) -> None:
        self._both_have_begun = threading.Barrier(2)  # worker 0 and worker 1, their first tasks

    def __call__(self, case: UseCase, job: Job, group: Group) -> Replica:
        made = replica_for(case, job, group)
        backward, begun = made.backward, []

        def slow(*arguments: Any) -> float:
            if not begun:
                begun.append(self._both_have_begun.wait(END_SECONDS))
            if group.rank == 1:
                self._wait_for_recalls(group, job.updates)
            return backward(*arguments)

        made.backward = slow  # type: ignore[method-assign]
        return made

    @staticmethod
    def _wait_for_recalls(group: Any, wanted: int) -> None:
        waiting, end = group._boxes[1]._messages, time.monotonic() + END_SECONDS
        while [tag for _, tag, _ in list(waiting)].count(orders.RECALL) < wanted:
            assert time.monotonic() < end, "worker 1 was not recalled from every task"
            time.sleep(0.01)


def test_nothing_waits_for_the_next_run_of_the_team() -> None:
    """Bug: the end of worker 0 was the end of all. What a slower worker still sent was read by the next run."""
    this = served_job("k_sync", 2, policy_options="k=1", updates=3, steps=1, warmup_steps=1)
    late = LateWorker()

    def act(group: Any) -> tuple[list[Trace], int]:
        traces = [run_job(this, group, Site(use_case=tiny.case()), late) for _ in range(2)]
        group.barrier()
        return traces, len(group._boxes[group.rank]._messages)

    found = on_ranks(3, act)
    assert [left for _, left in found] == [0, 0, 0]
    for trace in found[-1][0]:
        tasks = pd.DataFrame(trace.tables["tasks"])
        own = tasks.query("worker == 1").sort_values("task")
        assert own["fate"].tolist() == ["recalled"] * 3
        assert own["compute_seconds"].tolist()[1:] == [0.0, 0.0], "bug: it computed all that it had been recalled from"
        assert len(tasks.query("worker == 0 and fate == 'applied'")) == 3


def test_a_recall_that_crosses_a_contribution_is_heard_before_the_end() -> None:
    """Bug: it stayed in the mailbox, and called off the same task of the team's next run, for which all waited."""

    def act(group: Any) -> int:
        if group.rank == 0:
            run_job(this, group, Site(use_case=tiny.case()))
            return len(group._boxes[0]._messages)
        group.receive(0, "plan")
        group.split(1)
        parameters = group.receive(0, orders.START)[1]
        assert Note.of(group.receive(0, orders.NOTE)[1]).kind == orders.READY
        group.send(Order(0, 0.0, 0, Work(((0, 4),), 4, 4)).tensor(), 0, orders.ORDER)
        group.send(parameters, 0, orders.PARAMETERS)
        assert Note.of(group.receive(0, orders.NOTE)[1]).kind == orders.CONTRIBUTES
        group.receive(0, orders.GRADIENT)
        group.send(torch.tensor([0]), 0, orders.RECALL)
        group.send(Order(1, 0.1, 1).tensor(), 0, orders.ORDER)
        group.send(parameters, 0, orders.PARAMETERS)
        assert Note.of(group.receive(0, orders.NOTE)[1]).kind == orders.END
        return 0

    this = served_job(workers=1)
    assert on_ranks(2, act) == [0, 0]



def test_notes_and_orders_arrive_as_they_were() -> None:
    note = Note(orders.CONTRIBUTES, 7, 3, 20, 1.5, 2.5, 0.75, 0.25, 0.5, 4.0, (12.5, 0.5))
    assert Note.of(note.tensor()) == note
    assert note.contribution(2, ("credits", "load")).system == {"credits": 12.5, "load": 0.5}
    assert Note.of(Note(orders.READY).tensor()).system == () and Note(orders.READY).contribution(0).system is None
    for work in (
        Work(((0, 4), (2**40, 3)), 7, 2, 0.5, 0.1),
        Work(((8, 12),), 12, 12, None, 0.0, ((0, 1.0), (2, -0.5))),
        Work((), 0, 0),
    ):
        order = Order(5, 1.25, 9, work)
        assert Order.of(order.tensor()) == order
    assert Order.of(Order(3, 0.5).tensor()).work is None


def test_a_contribution_to_a_task_that_was_never_given_is_refused() -> None:
    """A worker that lies about its task: the server says so, and everybody ends."""

    def lie(group: Group) -> None:
        if group.rank == 1:
            run_job(this, group, Site(use_case=tiny.case()))
            return
        data = torch.tensor([tiny.SAMPLES, 3])
        group.send(data, 1, "plan")
        group.split(0)
        group.send(torch.zeros(871), 1, orders.START)
        group.send(Note(orders.READY).tensor(), 1, orders.NOTE)
        order = Order.of(group.receive(1, orders.ORDER)[1])
        group.send(Note(orders.CONTRIBUTES, order.task + 99, samples=4).tensor(), 1, orders.NOTE)
        group.send(torch.zeros(871), 1, orders.GRADIENT)
        group.receive(1, orders.ORDER)

    this = served_job(workers=1)
    with pytest.raises(GroupError, match="worker 0 contributes to task 99, and was given 1 tasks"):
        on_ranks(2, lie)

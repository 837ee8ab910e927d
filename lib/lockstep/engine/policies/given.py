"""Which task each worker is at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.engine.policies.base import Contribution, Work


@dataclass
class Tasks:
    """Numbers each worker's tasks and remembers which one is under way, so that nothing strange is ever applied."""

    workers: int
    given: list[int] = field(init=False)  # tasks that each worker has been given
    under_way: list[Work | None] = field(init=False)

    def __post_init__(self) -> None:
        self.given = [0] * self.workers
        self.under_way = [None] * self.workers

    def give(self, worker: int, work: Work) -> tuple[int, Work]:
        """An entry of `Decision.release`. Raises ValueError for a worker that has a task already."""
        if self.under_way[worker] is not None:
            raise ValueError(f"worker {worker} can't be given a task: its task {self.given[worker] - 1} is under way")
        self.given[worker] += 1
        self.under_way[worker] = work
        return worker, work

    def finish(self, contribution: Contribution) -> Work:
        """The work of a contribution. Raises ValueError for a task that is not under way or too many samples."""
        worker, task = contribution.worker, contribution.task
        if not 0 <= worker < self.workers:
            raise ValueError(f"worker {worker} does not exist; there are 0 to {self.workers - 1}")
        work = self.under_way[worker]
        if work is None or task != self.given[worker] - 1:
            raise ValueError(
                f"worker {worker} contributes to task {task}, which it was never given or which is over; "
                f"it has been given {self.given[worker]} tasks"
            )
        if not 0 <= contribution.samples <= work.samples:
            raise ValueError(
                f"worker {worker} contributes {contribution.samples} samples to task {task}, which has {work.samples}"
            )
        self.under_way[worker] = None
        return work

    def recall(self, worker: int) -> Work:
        """The work that a worker is called off. Raises ValueError if it has none."""
        work = self.under_way[worker]
        if work is None:
            raise ValueError(f"worker {worker} has no task to be recalled from")
        self.under_way[worker] = None
        return work

    def is_free(self, worker: int) -> bool:
        return self.under_way[worker] is None

    def state(self, waiting: Sequence[int] = ()) -> dict[str, Any]:
        """For a checkpoint. Tasks under way, and those of the workers whose contribution is `waiting`, are given anew,
        with the same numbers: nobody who was there before comes back with one."""
        again = [work is not None for work in self.under_way]
        given = [number - one for number, one in zip(self.given, again, strict=True)]
        for worker in waiting:
            given[worker] -= 1
        return {"given": given}

    def load(self, state: dict[str, Any]) -> None:
        self.given = [int(number) for number in state["given"]]
        self.under_way = [None] * self.workers

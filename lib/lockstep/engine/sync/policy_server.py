"""The server that runs any policy on real ranks: it keeps the parameters, and does what the policy decides.

    worker                                  server                                        policy
      | -- note: contributes, gradient ---->  |  receives both                              |
      |                                       | -- on(Arrived(...), now) -----------------> |
      |                                       | <- Decision(drop, recall, apply, release) - |
      | <-- recall (late workers) ----------- |  update: sum of weight x mean gradient      |
      | <-- order: work; parameters --------- |                                             |

It refuses a contribution to a task that it never gave, discards one that has crossed its recall, and does one thing at
a time. A timer of the policy that is due comes before a message. While it waits it sleeps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups import ANY, Group, GroupError, GroupTimeout
from lockstep.engine.policies import Arrived, Decision, Policy, Progressed, Updated, Work
from lockstep.engine.policies.places import part_sizes
from lockstep.engine.policies.stand_ins import StandIns
from lockstep.engine.sync import orders
from lockstep.engine.sync.base import StepCost
from lockstep.engine.sync.orders import Note, Order
from lockstep.engine.sync.owner import pack, unpack
from lockstep.engine.sync.plan import OptimiserFactory

Row = dict[str, float | str]
POLL_SECONDS = 0.001
"""Long enough for every kind of group to look for a message once."""
IDLE_SECONDS = 0.02
"""What forecasters may take to learn, once per update, while nobody waits."""


class PolicyServer:
    """Serves ranks 0 ... policy.workers - 1 of `group`. `updates`: after so many it tells everybody to stop.
    `readings`: the names of what workers tell of their state (`Delays.readings`)."""

    def __init__(
        self, group: Group, parameters: Tensor, make_optimiser: OptimiserFactory, policy: Policy, updates: int,
        readings: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.group, self.parameters, self.policy, self.updates = group, parameters, policy, updates
        self._readings = tuple(readings)
        self._sum = torch.zeros_like(parameters)
        leaf = torch.nn.Parameter(parameters)
        leaf.grad = self._sum
        self.optimiser = make_optimiser([leaf])
        self.version = 0
        self.tasks: list[Row] = []
        self._given: list[int] = [0] * policy.workers
        self._recalls = [0] * policy.workers  # sent to each
        self._under_way: dict[int, int] = {}  # worker -> task
        self._works: dict[tuple[int, int], Work] = {}  # (worker, task) -> what it was given, until its fate is known
        self._here: dict[tuple[int, int], tuple[Note, Tensor]] = {}  # (worker, task) -> a contribution that waits
        kinds = policy.stand_in_kinds
        self._stand_ins = StandIns(parameters.numel(), policy.setting.seed, kinds, True) if kinds else None
        self._zero = time.monotonic()
        self._stopped = self._idled = False

    @property
    def now(self) -> float:
        """Seconds since the first order."""
        return time.monotonic() - self._zero

    def wait_until_ready(self) -> None:
        """Serves checkpoints until every worker is ready for its first order, and begins. Raises GroupError."""
        ready = 0
        while ready < self.policy.workers:
            self.group.enter("wait")
            _, note = self._note(None)
            if note.kind == orders.READY:
                ready += 1
            elif not self._command(note):
                raise GroupError("training ended before it began")
        self._zero = time.monotonic()
        self._act(self.policy.begin(0.0), StepCost())

    def update(self) -> StepCost | None:
        """Serve until one update has been made; None when all were made and every worker has ended."""
        cost, before = StepCost(), self.version
        while not self._stopped:
            self.group.enter("wait")
            start = time.perf_counter()
            decision = self._decision()
            cost.wait_seconds += time.perf_counter() - start
            self._act(decision, cost)
            if self.version > before:
                return cost
        self._serve_the_end()
        return None

    def _decision(self) -> Decision:
        while True:
            wake = self.policy.wake_at()
            if wake is not None and wake <= self.now:
                return self.policy.woke(self.now)
            left = None if wake is None else wake - self.now
            try:
                worker, note = self._note(left if self._idled else POLL_SECONDS)
            except GroupTimeout:
                if not self._idled:  # nobody is waiting for an answer
                    self.policy.idle(IDLE_SECONDS if left is None else min(left, IDLE_SECONDS))
                    if self._stand_ins is not None:
                        self._stand_ins.idle()
                    self._idled = True
                continue
            if note.kind == orders.CONTRIBUTES:
                gradient = self.group.receive(worker, orders.GRADIENT)[1]
                if self._expects(worker, note):
                    del self._under_way[worker]
                    self._here[worker, note.task] = note, gradient
                    return self.policy.on(Arrived(note.contribution(worker, self._readings)), self.now)
                self._log(worker, note, "recalled")
            elif note.kind == orders.PROGRESS:
                if self._expects(worker, note):
                    seconds = note.ended - note.began
                    return self.policy.on(Progressed(worker, note.task, note.samples, seconds), self.now)
            elif note.kind == orders.GAVE_UP:
                self._expects(worker, note)
                self._log(worker, note, "recalled")
            else:
                raise GroupError(f"worker {worker} sent a note of kind {note.kind} while training goes on")

    def _expects(self, worker: int, note: Note) -> bool:
        """Is this about the task under way? False for one that was recalled. Raises GroupError for one that was never
        given."""
        if not 0 <= note.task < self._given[worker]:
            raise GroupError(
                f"worker {worker} contributes to task {note.task}, and was given {self._given[worker]} tasks"
            )
        return self._under_way.get(worker) == note.task

    def _act(self, decision: Decision, cost: StepCost) -> None:
        start, updating = time.perf_counter(), 0.0
        for which in decision.drop:
            self._log(which[0], self._here.pop(which)[0], "dropped")
        for worker in decision.recall:
            self._recall(worker)
            del self._under_way[worker]
        if decision.apply or decision.stand_in:
            self.group.enter("update")
            before = time.perf_counter()
            self._apply(decision)
            updating = time.perf_counter() - before
        self.group.enter("exchange")
        if decision.stop or self.version >= self.updates:
            self._stop()
        else:
            for worker, work in decision.release:
                cost.bytes_sent += self._release(worker, work)
        cost.update_seconds += updating
        cost.exchange_seconds += time.perf_counter() - start - updating

    def _apply(self, decision: Decision) -> None:
        self._sum.zero_()
        samples = 0
        for worker, task, weight in decision.apply:
            note, gradient = self._here.pop((worker, task))
            if self._stand_ins is not None:
                self._stand_ins.seen(worker, gradient.double().numpy())
            self._sum.add_(gradient.to(self._sum.device), alpha=weight)
            samples += note.samples
            fate = "applied" if note.version == self.version else "late"
            self._log(worker, note, fate, self.version, self.version - note.version)
        for one in decision.stand_in:
            assert self._stand_ins is not None, "the policy has said which kinds it needs"
            made = torch.from_numpy(self._stand_ins.made(one.worker, one.kind))
            self._sum.add_(made.to(self._sum), alpha=one.weight)
        norm = float(self._sum.square().sum()) if self.policy.needs.square_norm else 0.0
        before = None if self._stand_ins is None else self.parameters.clone()
        self.optimiser.step()
        if self._stand_ins is not None and before is not None:  # with momentum they go another way than the sum
            way = (before - self.parameters).double() / self.optimiser.param_groups[0]["lr"]
            self._stand_ins.moved(way.cpu().numpy())
        self.version += 1
        self._idled = False
        if self.policy.needs.square_norm:
            self.policy.on(Updated(samples, norm), self.now)

    def _recall(self, worker: int) -> None:
        self._recalls[worker] += 1
        self.group.send(torch.tensor([self._under_way[worker]]), worker, orders.RECALL)

    def _release(self, worker: int, work: Work) -> float:
        task = self._given[worker]
        self._given[worker] += 1
        self._under_way[worker], self._works[worker, task] = task, work
        order = Order(self.version, self.now, task, work).tensor()
        self.group.send(order, worker, orders.ORDER)
        self.group.send(self.parameters, worker, orders.PARAMETERS)
        return float(order.nbytes + self.parameters.nbytes)

    def _stop(self) -> None:
        """Everybody gets the last parameters; who still computes is called off."""
        self._stopped = True
        for (worker, _), (note, _) in self._here.items():
            self._log(worker, note, "unfinished")
        for worker in range(self.policy.workers):
            if worker in self._under_way:
                self._recall(worker)
            self.group.send(Order(self.version, self.now, self._recalls[worker]).tensor(), worker, orders.ORDER)
            self.group.send(self.parameters, worker, orders.PARAMETERS)

    def _serve_the_end(self) -> None:
        """What workers still say, until each has said that it will say no more."""
        working = self.policy.workers
        while working:
            self.group.enter("wait")
            worker, note = self._note(None)
            if note.kind == orders.CONTRIBUTES:
                self.group.receive(worker, orders.GRADIENT)
            if note.kind in (orders.CONTRIBUTES, orders.GAVE_UP):
                self._log(worker, note, "unfinished" if self._expects(worker, note) else "recalled")
            else:
                working -= not self._command(note)

    def _note(self, deadline_seconds: float | None) -> tuple[int, Note]:
        worker, message = self.group.receive(ANY, orders.NOTE, deadline_seconds)
        return worker, Note.of(message)

    def _command(self, note: Note) -> bool:
        """What worker 0 asks for checkpoints. False where a worker says that it has ended."""
        if note.kind == orders.ASK:
            self.group.send(pack(self.state()), 0, orders.STATE)
        elif note.kind == orders.LOAD:
            self.parameters.copy_(self.group.receive(0, orders.STATE)[1])
            self.load(unpack(self.group.receive(0, orders.STATE)[1]))
        return note.kind != orders.END

    def state(self) -> dict[str, Any]:
        """The optimiser's and the policy's state, and the number of updates."""
        policy = _converted(self.policy.state(), np.ndarray, torch.from_numpy)
        # Who computes or waits begins anew, with the same numbers of its tasks, as the policy has it.
        lost = [*self._under_way, *(worker for worker, _ in self._here)]
        given = [number - lost.count(worker) for worker, number in enumerate(self._given)]
        return {
            "optimiser": self.optimiser.state_dict(), "policy": policy, "version": self.version, "given": given,
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.optimiser.load_state_dict(state["optimiser"])
        self.policy.load(_converted(state["policy"], Tensor, Tensor.numpy))
        self.version, self._given = int(state["version"]), [int(number) for number in state["given"]]

    def _log(self, worker: int, note: Note, fate: str, update: int = -1, staleness: int = -1) -> None:
        """A row of `tasks.csv`: see `lockstep.simulate.tasks`."""
        work = self._works.pop((worker, note.task))
        sent = update >= 0 or fate == "dropped"
        self.tasks.append(
            {
                "worker": worker,
                "task": note.task,
                "version": note.version,
                "samples": note.samples if sent else sum(part_sizes(work, self.policy.workers)),
                "began_seconds": note.began,
                "ended_seconds": note.ended,
                "compute_seconds": note.compute_seconds,
                "delay_seconds": note.delay_seconds,
                "forecast_seconds": work.micro_batch_seconds or math.nan,
                "fate": fate,
                "update": update,
                "staleness": staleness,
            }
        )


def _converted(value: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
    """A copy of nested dicts and lists with every `kind` converted: a checkpoint holds tensors, a policy arrays."""
    if isinstance(value, kind):
        return convert(value)
    if isinstance(value, dict):
        return {name: _converted(inner, kind, convert) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_converted(inner, kind, convert) for inner in value]
    return value.item() if isinstance(value, np.generic) else value

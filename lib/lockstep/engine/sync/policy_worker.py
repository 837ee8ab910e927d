"""A worker of a server that decides by a policy: it computes what it is told, listens for a recall, and contributes.

    order: work, parameters        micro-batch   delay         micro-batch   delay        note, gradient
    ------------------------->    |-----------|~~~~~~~~~~~~~~|-----------|~~~~~~~~~~~~~| ------------------> order ...
                                               listens                    listens

While it computes it can't listen; while a delay holds it up it does nothing else, so a recall ends the delay at once. A
recalled worker says how long it was at it, and waits for its next order. One that was so slow that orders and recalls
have queued up begins nothing that it was called off. Nobody who waits spins: delays are slept by waiting for a recall
until they are over.

With `emulated` costs a micro-batch takes what the cost model says: the real gradient, of a small model, is computed
within that time, and the rest is slept. So more workers than cores can run as if each had its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.engine.sync import orders
from lockstep.engine.sync.base import StepCost, Sync, group_error
from lockstep.engine.sync.orders import Note, Order

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.engine.delays import Delays
    from lockstep.engine.groups import Group
    from lockstep.engine.policies import MakePolicy, Policy
    from lockstep.engine.replica import Replica
    from lockstep.engine.sync.plan import OptimiserFactory, Plan, Share

LISTEN_SECONDS = 60.0
"""A worker that a delay holds for longer listens in pieces, and so hears that another rank has failed."""

ComputeSeconds = Callable[[int], float]


class PolicySync(Sync):
    """One server, the last rank. `delays` hold this worker up; `emulated(images)` are the seconds of a micro-batch."""

    in_step = False  # workers contribute when they are done, each as often as the policy lets it

    def __init__(
        self, plan: Plan, optimiser: OptimiserFactory, policy: MakePolicy, delays: Callable[[int], Delays],
        emulated: ComputeSeconds | None = None, standby: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(plan, optimiser)
        self.policy, self.make_delays, self.emulated, self.standby = policy, delays, emulated, standby

    def _policy_for(self, workers: int) -> Policy:
        return self.policy(self.plan.setting(workers, self.plan.micro_batch_size, self.standby))

    def attach_server(self, group: Group) -> None:
        from lockstep.engine.sync.policy_server import PolicyServer

        self.group = group.split(1)
        parameters = group.receive(0, orders.START)[1].clone()
        policy = self._policy_for(group.size - 1)
        delays = self.make_delays(group.size - 1)
        policy.hear_of_gaps(delays.begins_anew)
        self.owner = PolicyServer(group, parameters, self.make_optimiser, policy, self.plan.steps, delays.readings)
        self._begun = False

    def serve(self) -> tuple[int, StepCost] | None:
        if not self._begun:
            self.owner.wait_until_ready()
            self._begun = True
        cost = self.owner.update()
        return None if cost is None else (self.owner.version - 1, cost)

    def tables(self) -> dict[str, list[dict[str, float | str]]]:
        """Of a server: a row per task, as `lockstep.simulate.tasks` has them, and the policy's own facts."""
        if not hasattr(self, "owner"):
            return {}
        facts: list[dict[str, float | str]] = [
            {"fact": name, "value": value} for name, value in self.owner.policy.facts().items()
        ]
        return {"tasks": self.owner.tasks, "facts": facts}

    def attach(self, replica: Replica, group: Group) -> None:
        self._check_all_common(replica)
        self.team, self.group = group, group.split(0)
        self.server = group.size - 1
        if self.group.size != group.size - 1:
            raise group_error(f"policies need one server, and this team of {group.size} has none; give servers=1")
        self.replica = replica
        self.group.broadcast(replica.parameters)
        if replica.buffers.numel():
            self.group.broadcast(replica.buffers)
        self.gradients = replica.parameters.new_zeros(replica.length)
        replica.rebind(gradients=self.gradients)
        replica.clear_gradients()
        self.delays = self.make_delays(self.group.size)
        self.tells_progress = self._policy_for(self.group.size).needs.progress
        if self.group.rank == 0:
            self.team.send(replica.parameters, self.server, orders.START)
        self._order: Order | None = None
        self._pieces: list[Share] = []
        self._ready = self.over = False
        self._heard = 0  # recalls
        self._zero: float | None = None  # when the server began, on this worker's clock

    def next(self) -> Share | None:
        """The next micro-batch. Waits for an order where the last one is done; None when the server ends training."""
        while not self._pieces and not self.over:
            if not self._ready:
                self.team.send(Note(orders.READY).tensor(), self.server, orders.NOTE)
                self._ready = True
            if self._order is None:
                self._await_order()
            if not self._begin():
                return None
            if self._held_up(self._began):  # it was so late that it has been called off before it could begin
                self._give_up()
            elif not self._pieces:
                self.step()  # it has no sample, and comes along all the same
        return self._pieces.pop(0) if self._pieces else None

    def preview(self) -> Share | None:
        return self._pieces[0] if self._pieces else None

    def _await_order(self) -> None:
        self.team.enter("wait")
        self._order = Order.of(self.team.receive(self.server, orders.ORDER)[1])
        self.replica.parameters.copy_(self.team.receive(self.server, orders.PARAMETERS)[1])
        self.version = self._position = self._order.version

    def _begin(self) -> bool:
        """Follow the order. False when training is over."""
        order, self._order = self._order, None
        assert order is not None
        if order.work is None:
            self.over = True
            while self._heard < order.task:  # they crossed a contribution; the next run must not hear them
                self._hear(None)
            return False
        self._work, self._task = order.work, order.task
        self._zero = time.monotonic() - order.now if self._zero is None else self._zero
        self._began = time.monotonic()
        self._done, self._place, self._loss = 0, 0, 0.0
        self._compute_seconds = self._delay_seconds = 0.0
        self._pieces = self.plan.micro_batches(self._work, self.version, self.group.size)
        self._count = len(self._pieces)
        self._at = self._began
        return True

    def observe(self, loss: float, weight: float) -> None:
        self._loss += loss

    def contributes(self, share: Share) -> bool:
        """Sleeps what emulation and delays add to this micro-batch. False after a recall, whose task counts nothing."""
        assert self._zero is not None
        computed, start = time.monotonic() - self._at, self._at - self._zero
        own = computed if self.emulated is None else max(computed, self.emulated(len(share.sample_ids)))
        ends = self.delays.end(self.group.rank, self._task, start, own, self._place, self._count)
        if ends < start + own:  # a trace has workers that are faster than the median
            own = max(computed, ends - start)
        _sleep_until(self._at + own)
        self._compute_seconds += own
        self._done += len(share.sample_ids)
        self._place += 1
        recalled = self._held_up(self._zero + ends)
        now = time.monotonic()
        self._delay_seconds += now - self._at - own
        self._at = now
        if recalled:
            self._give_up()
            return False
        if self.tells_progress and self._pieces:
            self.team.send(self._note(orders.PROGRESS, self._done).tensor(), self.server, orders.NOTE)
        return not self._pieces or self._too_late(now)

    def _too_late(self, now: float) -> bool:
        """Would the next micro-batch begin after the deadline, or end after it as forecast?"""
        deadline, margin = self._work.deadline_seconds, self._work.micro_batch_seconds
        if deadline is None:
            return False
        elapsed = now - self._began
        return elapsed >= deadline or elapsed + margin > deadline

    def _held_up(self, until: float) -> bool:
        """Sleep until then, on the monotonic clock; True as soon as this task is recalled."""
        from lockstep.engine.groups import GroupTimeout

        while True:
            left = max(0.0, until - time.monotonic())
            try:
                if self._hear(min(left, LISTEN_SECONDS)) == self._task:
                    return True
            except GroupTimeout:
                if until - time.monotonic() <= 0:
                    return False

    def _hear(self, seconds: float | None) -> int:
        """The task of the next recall. Raises GroupTimeout."""
        task = int(self.team.receive(self.server, orders.RECALL, seconds)[1].item())
        self._heard += 1
        return task

    def _give_up(self) -> None:
        self._pieces = []
        self.replica.clear_gradients()
        self.team.send(self._note(orders.GAVE_UP, 0).tensor(), self.server, orders.NOTE)

    def _note(self, kind: int, samples: int, square_norm: float = math.nan) -> Note:
        assert self._zero is not None
        began, ended = self._began - self._zero, self._at - self._zero
        loss = self._loss * self._work.samples / samples if samples else math.nan
        system = self.delays.system(self.group.rank, ended) or {}
        return Note(
            kind, self._task, self.version, samples, began, ended, self._compute_seconds, self._delay_seconds, loss,
            square_norm, tuple(system.values()),
        )  # fmt: skip

    def step(self) -> StepCost:
        """Contribute, and wait for the next order."""
        self.team.enter("exchange")
        start = time.perf_counter()
        self._pieces = []
        if self._done and self._done != self._work.samples and not self._work.parts:
            self.gradients *= self._work.samples / self._done  # the mean over what was computed
        norm = float(self.gradients.square().sum())
        note = self._note(orders.CONTRIBUTES, self._done, norm).tensor()
        self.team.send(note, self.server, orders.NOTE)
        self.team.send(self.gradients, self.server, orders.GRADIENT)
        self.replica.clear_gradients()
        self.done += 1
        sent = time.perf_counter()
        self._await_order()
        cost = StepCost(time.perf_counter() - sent, sent - start)
        cost.bytes_sent = float(note.nbytes + self.gradients.nbytes)
        return cost

    def model(self) -> Tensor:
        """The server's parameters, which came with the order to stop."""
        if not self.over:
            raise group_error("with a policy that lets workers differ, the model is known when training is over")
        return self.replica.parameters

    def parts_of_state(self) -> dict[str, int]:
        return {"workers": self.group.size}

    def optimiser_state(self) -> Any:
        """The server's: its optimiser and its policy."""
        from lockstep.engine.groups import allgather_object
        from lockstep.engine.sync.owner import unpack

        state = None
        if self.group.rank == 0:
            self.team.send(Note(orders.ASK).tensor(), self.server, orders.NOTE)
            state = unpack(self.team.receive(self.server, orders.STATE)[1])
        return allgather_object(self.group, state)[0]

    def load_optimiser_state(self, state: Any) -> None:
        from lockstep.engine.sync.owner import pack

        if self.group.rank == 0:
            self.team.send(Note(orders.LOAD).tensor(), self.server, orders.NOTE)
            self.team.send(self.replica.parameters, self.server, orders.STATE)
            self.team.send(pack(state), self.server, orders.STATE)

    def close(self) -> None:
        """Say that nothing more will come. A worker that fails says nothing: it ends the team."""
        if getattr(self, "over", False):
            self.team.send(Note(orders.END).tensor(), self.server, orders.NOTE)


def _sleep_until(moment: float) -> None:
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)

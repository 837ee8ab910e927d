"""How replicas agree: the type behind every sync."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep.engine.declared import DeclaredSync

if TYPE_CHECKING:  # what a sync declares is read without torch: see lockstep.engine.registry
    from torch import Tensor, nn

    from lockstep.engine.groups import Group
    from lockstep.engine.job import Job
    from lockstep.engine.replica import Replica
    from lockstep.engine.sync.codecs import Codec
    from lockstep.engine.sync.plan import OptimiserFactory, Plan, Share


@dataclass
class StepCost:
    """What agreeing cost one rank in one step."""

    wait_seconds: float = 0.0
    exchange_seconds: float = 0.0
    update_seconds: float = 0.0
    bytes_sent: float = 0.0


class Sync(DeclaredSync, ABC):
    """Owns the optimiser and its state, and decides what to train on next and how replicas agree.

    One training step, as `lockstep.engine.training.loop` drives it:

        next() -> Share ... backward(share, on_ready=layer_ready) ... after the last micro-batch: step()

    `group` are the ranks with a replica; a server is none of them.

    The class attributes and class methods of `DeclaredSync` say what other code must know about a sync: its options,
    when it equals sequential training, what an exchange costs, where it runs.
    """

    codec: Codec | None = None  # of the gradients that are sent

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
        """The sync with the options that `job` gives: each option that it declares, as the argument of that name."""
        return cls(plan, optimiser, **{option.name: getattr(job, option.name) for option in cls.options})

    def __init__(self, plan: Plan, optimiser: OptimiserFactory) -> None:
        self.plan, self.make_optimiser = plan, optimiser
        self._position = 0  # the step whose shares are handed out next
        self._waiting: list[Share] = []
        self.done = 0  # calls of `step`, those before the checkpoint included

    @abstractmethod
    def attach(self, replica: Replica, group: Group) -> None:
        """Same start everywhere (rank 0's parameters), memory, optimiser. Collective."""

    def _check_all_common(self, replica: Replica) -> None:
        """Raises GroupError for a replica with parameters of its own: this sync would take them for common ones."""
        own = replica.length - replica.common.stop
        if own:
            raise group_error(
                f"{type(self).__name__} needs the same parameters on every rank, and {own} of this replica's "
                f"{replica.length} are its own (model_parallel='head'); use sync='allreduce'"
            )

    def next(self) -> Share | None:
        """The next micro-batch of this rank; None when the plan has ended."""
        share = self.preview()
        if share is not None:
            self._waiting.pop(0)
        return share

    def preview(self) -> Share | None:
        """What `next` will return, as far as that is known: a hint for the loader."""
        if not self._waiting and self._position < self.plan.steps:
            self._waiting = self.shares(self._position)
            self._position += 1
        return self._waiting[0] if self._waiting else None

    def shares(self, step: int) -> list[Share]:
        """This rank's micro-batches of `step`."""
        return self.plan.shares(step, self.group.rank, self.group.size)

    def observe(self, loss: float, weight: float) -> None:
        """A micro-batch had this loss: the sum over its samples of weight x loss, and of the weights alone."""

    def layer_ready(self, layer: int) -> None:
        """Called when the gradient of this layer is complete, in the last micro-batch of a step."""

    def give_up(self) -> bool:
        """Asked between micro-batches: shall this rank leave the rest of the step?"""
        return False

    @abstractmethod
    def step(self) -> StepCost:
        """Wait for the others, exchange, update. Collective."""

    def model(self) -> Tensor:
        """The parameters that this training has reached, float32 [length], the same on every rank. Collective."""
        return self.replica.parameters

    def attach_server(self, group: Group) -> None:
        """`attach`, for a rank without a replica. Collective with the others' `attach`."""
        raise group_error(f"{type(self).__name__} has no servers; give servers=0 or sync='parameter_server'")

    def serve(self) -> tuple[int, StepCost] | None:
        """On a rank without a replica, again and again: one update, of which step; None when training has ended."""
        raise group_error(f"{type(self).__name__} has no servers; give servers=0 or sync='parameter_server'")

    @abstractmethod
    def optimiser_state(self) -> Any:
        """The optimiser's state of all ranks, on every rank. Collective."""

    @abstractmethod
    def load_optimiser_state(self, state: Any) -> None:
        """Raises ValueError if `state` was saved by another number of ranks that each hold a slice."""

    def state_dict(self) -> dict[str, Any]:
        """Optimiser state and position, the same on every rank. Collective; call it between steps."""
        step = self._position - (1 if self._waiting else 0)
        state = {"step": step, "optimiser": self.optimiser_state()}
        if self.codec is not None:
            state["codec"] = gather(self.group, self.codec.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError if `state` is of another number of workers, where each holds a part of it."""
        self.done = self._position = int(state["step"])
        self._waiting = []
        self.load_optimiser_state(state["optimiser"])
        if self.codec is not None:
            self.codec.load(of_worker(state["codec"], self.group, "what compression held back"))

    def close(self) -> None:
        """Let go of what `attach` took."""

    replica: Replica
    group: Group


def of_worker(states: list[Any], group: Group, what: str) -> Any:
    """This worker's of `states`, one per worker. Raises ValueError if there are more or fewer workers now."""
    if len(states) != group.size:
        raise ValueError(
            f"this checkpoint holds {what} of {len(states)} workers; resume it with workers={len(states)}, "
            f"not {group.size}"
        )
    return states[group.rank]


def cut(length: int, pieces: int) -> list[slice]:
    """`length` numbers in `pieces` slices, as equal as can be; some are empty if there are more pieces."""
    return [slice(length * i // pieces, length * (i + 1) // pieces) for i in range(pieces)]


def leaf_of(parameters: Tensor, gradients: Tensor) -> nn.Parameter:
    """What an optimiser steps on: `parameters` [n] with `gradients` [n] as its gradient, both in place."""
    from torch import nn

    leaf = nn.Parameter(parameters)
    leaf.grad = gradients
    return leaf


def gather(group: Group, thing: Any) -> list[Any]:
    """`thing` of every rank, by rank. Collective."""
    from lockstep.engine.groups import allgather_object

    return allgather_object(group, thing)


def group_error(message: str) -> Exception:
    """A GroupError with this message, to be raised."""
    from lockstep.engine.groups import GroupError

    return GroupError(message)

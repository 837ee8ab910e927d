"""The base class of every sync: how replicas exchange gradients or parameters."""

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
    """What the exchange and the update of one step cost one rank."""

    wait_seconds: float = 0.0
    exchange_seconds: float = 0.0
    update_seconds: float = 0.0
    bytes_sent: float = 0.0


class Sync(DeclaredSync, ABC):
    """Owns the optimizer and its state, and decides what to train on next and how replicas exchange.

    One training step, as `lockstep.engine.training.loop` drives it:

        next() -> Share ... backward(share, on_ready=layer_ready) ... after the last micro-batch: step()

    `group` holds the ranks with a replica. Servers do not belong to it.

    The class attributes and class methods of `DeclaredSync` declare what other code must know about a sync: its
    options, when it equals sequential training, what an exchange costs, where it runs.
    """

    codec: Codec | None = None  # compresses the gradients that are sent
    in_step = True  # all workers take the same steps, at the same time

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
        """The sync with the options that `job` gives: each option that it declares and reads itself, as the argument
        of that name."""
        own = {option.name: getattr(job, option.name) for option in cls.options if not option.of_replica}
        return cls(plan, optimiser, **own)

    def __init__(self, plan: Plan, optimiser: OptimiserFactory) -> None:
        self.plan, self.make_optimiser = plan, optimiser
        self._position = 0  # the step whose shares `next` returns
        self._waiting: list[Share] = []
        self.done = 0  # completed steps, including those before the checkpoint

    @abstractmethod
    def attach(self, replica: Replica, group: Group) -> None:
        """Give every rank the parameters of rank 0, its memory and its optimizer. Collective."""

    def _check_all_common(self, replica: Replica) -> None:
        """Raises GroupError for a replica with parameters of its own, which this sync would treat as common ones."""
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
        """What `next` will return, as far as it is known already, so that the loader can prefetch it."""
        if not self._waiting and self._position < self.plan.steps:
            self._waiting = self.shares(self._position)
            self._position += 1
        return self._waiting[0] if self._waiting else None

    def shares(self, step: int) -> list[Share]:
        """This rank's micro-batches of `step`."""
        return self.plan.shares(step, self.group.rank, self.group.size)

    def observe(self, loss: float, weight: float) -> None:
        """Called with the sum of weight x loss over each micro-batch's samples, and the sum of their weights."""

    def contributes(self, share: Share) -> bool:
        """Called after each micro-batch: is `step` to be called now?"""
        return share.last

    def tables(self) -> dict[str, list[dict[str, float | str]]]:
        """Rows that a server has collected, by the name of their table."""
        return {}

    def layer_ready(self, layer: int) -> None:
        """Called when the gradient of this layer is complete, in the last micro-batch of a step."""

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
        """On a rank without a replica: serve one update. Returns its step and cost; None at the end of training."""
        raise group_error(f"{type(self).__name__} has no servers; give servers=0 or sync='parameter_server'")

    @abstractmethod
    def optimiser_state(self) -> Any:
        """The optimiser's state of all ranks, on every rank. Collective."""

    @abstractmethod
    def load_optimiser_state(self, state: Any) -> None:
        """Raises ValueError if `state` was saved by another number of ranks that each hold a slice."""

    def parts_of_state(self) -> dict[str, int]:
        """What the state is divided among, if only as many can go on from it: workers, slices (of the workers of each
        node) or shards."""
        return {} if self.codec is None else {"workers": self.group.size}

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
        """Release the resources that `attach` has taken."""

    replica: Replica
    group: Group


def of_worker(states: list[Any], group: Group, what: str) -> Any:
    """The entry of this worker in `states`. Raises ValueError if the number of workers has changed."""
    if len(states) != group.size:
        raise ValueError(
            f"this checkpoint holds {what} of {len(states)} workers; resume it with workers={len(states)}, "
            f"not {group.size}"
        )
    return states[group.rank]


def cut(length: int, pieces: int) -> list[slice]:
    """Divide `length` numbers into `pieces` slices of nearly equal size; some are empty if `length` is smaller."""
    return [slice(length * i // pieces, length * (i + 1) // pieces) for i in range(pieces)]


def leaf_of(parameters: Tensor, gradients: Tensor) -> nn.Parameter:
    """The tensor that an optimizer steps on: `parameters` [n] with `gradients` [n] as its gradient, without copies."""
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

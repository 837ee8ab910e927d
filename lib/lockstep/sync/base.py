"""How replicas agree: the type behind every strategy, and the plan of who trains on what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from lockstep.data.sampling import global_batch, share_of, steps_per_epoch
from lockstep.groups import Group, GroupError, allgather_object
from lockstep.job import Job
from lockstep.replica import Replica
from lockstep.sync.codecs import Codec

OptimiserFactory = Callable[[Iterable[Tensor]], Optimizer]


@dataclass(frozen=True)
class Share:
    """A micro-batch of one worker."""

    step: int
    epoch: int
    sample_ids: np.ndarray  # int64 [samples], may be empty
    weights: np.ndarray  # float32 [samples]; over all workers of a step they sum to `scale`
    last: bool = True  # of this worker's micro-batches in this step
    scale: float = 1.0  # the loss is a sum with these weights, divided by it


@dataclass
class StepCost:
    """What agreeing cost one rank in one step."""

    wait_seconds: float = 0.0
    exchange_seconds: float = 0.0
    update_seconds: float = 0.0
    bytes_sent: float = 0.0


@dataclass(frozen=True)
class Plan:
    """Which samples a step trains on: a function of (seed, step, global batch), never of the worker count.

    `micro_batch_size` splits a worker's share of a step (0: one micro-batch). `sample_weights`, float64 [samples], say
    what each sample counts (None: all the same). A step's weights then sum to 1 as ever, as in torch's weighted
    cross-entropy: batches count alike, whatever classes they hold. Keras divides the weighted sum by the number of
    samples instead, so that a batch with many rare samples takes a longer step.
    """

    samples: int
    global_batch_size: int
    steps: int
    seed: int = 0
    micro_batch_size: int = 0
    sample_weights: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)

    def lasting(self, steps: int) -> Plan:
        """The same plan for so many steps."""
        return replace(self, steps=steps)

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.samples, self.global_batch_size)

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def shares(self, step: int, rank: int, workers: int) -> list[Share]:
        """The micro-batches of `rank` in `step`. An uneven last batch is split as evenly as can be."""
        epoch = self.epoch_of(step)
        ids = global_batch(self.seed, epoch, step % self.steps_per_epoch, self.samples, self.global_batch_size)
        own = share_of(ids, rank, workers)
        size = self.micro_batch_size or max(len(own), 1)
        pieces = [own[i : i + size] for i in range(0, max(len(own), 1), size)]
        weigh = self._weigher(ids)
        return [Share(step, epoch, piece, weigh(piece), last=i == len(pieces) - 1) for i, piece in enumerate(pieces)]

    def _weigher(self, ids: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Weights, float32, of samples of the global batch `ids`, whose weights sum to 1."""
        if self.sample_weights is None:
            weight = np.float32(1.0 / len(ids))
            return lambda piece: np.full(len(piece), weight, np.float32)
        weights = self.sample_weights
        total = weights[ids].sum()
        return lambda piece: (weights[piece] / total).astype(np.float32)


class Sync(ABC):
    """Owns the optimiser and its state, and decides what to train on next and how replicas agree.

    One training step, as `lockstep.loop` drives it:

        next() -> Share ... backward(share, on_ready=part_ready) ... after the last micro-batch: step()

    `group` are the ranks with a replica; a server is none of them.
    """

    codec: Codec | None = None  # of the gradients that are sent

    @classmethod
    def of(cls, job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
        """The sync with the options that `job` gives."""
        del job
        return cls(plan, optimiser)

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
            raise GroupError(
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

    def observe(self, loss: float, weight: float) -> None:  # noqa: B027 - most syncs don't look at the loss
        """A micro-batch had this loss: the sum over its samples of weight x loss, and of the weights alone."""

    def part_ready(self, part: int) -> None:  # noqa: B027 - a sync that does not overlap has nothing to do
        """Part `part` of this replica's gradient stands, for the last micro-batch of the step."""

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
        raise GroupError(f"{type(self).__name__} has no servers; give servers=0 or sync='parameter_server'")

    def serve(self) -> tuple[int, StepCost] | None:
        """On a rank without a replica, again and again: one update, of which step; None when training has ended."""
        raise GroupError(f"{type(self).__name__} has no servers; give servers=0 or sync='parameter_server'")

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
            state["codec"] = allgather_object(self.group, self.codec.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises ValueError if `state` is of another number of workers, where each holds a part of it."""
        self.done = self._position = int(state["step"])
        self._waiting = []
        self.load_optimiser_state(state["optimiser"])
        if self.codec is not None:
            self.codec.load(of_worker(state["codec"], self.group, "what compression held back"))

    def close(self) -> None:  # noqa: B027
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

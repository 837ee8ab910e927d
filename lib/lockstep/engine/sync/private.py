"""Every worker updates parameters of its own; from time to time the workers' parameters are mixed.

worker 0   step step step | mix | step step step | mix |        exchange_every=3
worker 1   step step step | mix | step step step | mix |
"""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from lockstep.engine.declared import Equality, Values
from lockstep.engine.options import Option
from lockstep.engine.sync.base import StepCost, Sync, gather, leaf_of, of_worker

if TYPE_CHECKING:
    from torch import Tensor

    from lockstep.engine.groups import Group
    from lockstep.engine.replica import Replica
    from lockstep.engine.sync.plan import OptimiserFactory, Plan, Share

EXCHANGE_EVERY = Option(
    "exchange_every", 1, "local steps between two exchanges of parameters; 0: one exchange per epoch", least=0
)
STATE_AVERAGED = Option(
    "state_averaged", False, "the optimiser's state (momentum) is averaged together with the parameters"
)


def equality_of_averages(values: Values) -> Equality:
    """The equality of a sync that averages all workers' parameters after each has stepped with its own share."""
    if values["workers"] == 1:
        return Equality("exact", "one worker")
    if values["exchange_every"] == 1:
        return Equality("linear", "the mean of the stepped parameters is one step with the mean of the gradients")
    return Equality("no", "between two exchanges the workers' parameters drift apart")


class PrivateSync(Sync):
    """`exchange_every`: local steps between two exchanges; 0: one exchange at the end of each epoch.

    The shares are those of the global plan. A worker multiplies the gradient of its share by the number of workers; for
    equal shares this is the mean over its own batch. With exchange_every=1, averaging the stepped parameters is then
    the same as stepping once with the sum of all gradients, for uneven and empty shares too, if the optimiser is linear
    in the gradient (SGD, with or without momentum and weight decay; not Adam).
    """

    preserves = (
        "equal where parameters are averaged in every step (exchange_every=1) and the optimiser is linear in the "
        "gradient (SGD)"
    )
    meets = True

    def __init__(self, plan: Plan, optimiser: OptimiserFactory, exchange_every: int = 1) -> None:
        super().__init__(plan, optimiser)
        self.every = exchange_every or plan.steps_per_epoch

    @classmethod
    def averages_parameters(cls, values: Values) -> bool:
        return True

    def attach(self, replica: Replica, group: Group) -> None:
        self._check_all_common(replica)
        self.replica, self.group = replica, group
        group.broadcast(replica.parameters)
        if replica.buffers.numel():
            group.broadcast(replica.buffers)
        gradients = replica.parameters.new_zeros(replica.length)
        replica.rebind(gradients=gradients)
        self.optimiser = self.make_optimiser([leaf_of(replica.parameters, gradients)])
        replica.clear_gradients()

    def shares(self, step: int) -> list[Share]:
        workers = self.group.size
        return [
            dataclasses.replace(share, weights=share.weights * share.weights.dtype.type(workers), scale=float(workers))
            for share in super().shares(step)
        ]

    def step(self) -> StepCost:
        self.group.enter("update")
        start = time.perf_counter()
        self.optimiser.step()
        self.replica.clear_gradients()
        self.done += 1
        cost = StepCost(update_seconds=time.perf_counter() - start)
        if self.done % self.every == 0:
            mixed = self.mix()
            cost = dataclasses.replace(mixed, update_seconds=mixed.update_seconds + cost.update_seconds)
        return cost

    @abstractmethod
    def mix(self) -> StepCost:
        """Mix the parameters of the workers. Collective."""

    def meet(self) -> float:
        """Wait for all workers. Returns the seconds of waiting."""
        self.group.enter("wait")
        start = time.perf_counter()
        self.group.barrier()
        self.group.enter("exchange")
        return time.perf_counter() - start

    @property
    def agreed(self) -> bool:
        """Whether all workers hold the same parameters now."""
        return self.done % self.every == 0

    def model(self) -> Tensor:
        """The mean over the workers, if their parameters differ."""
        if self.agreed:
            return self.replica.parameters
        return self.mean_of(self.replica.parameters)

    def mean_of(self, tensor: Tensor) -> Tensor:
        """A new tensor: the mean over workers, the same bits on all of them. Collective."""
        mean = tensor.detach().clone()
        if self.group.size > 1:
            self.group.allreduce(mean)
            mean /= self.group.size
        return mean

    def parts_of_state(self) -> dict[str, int]:
        return {"workers": self.group.size}

    def optimiser_state(self) -> Any:
        return gather(self.group, self.optimiser.state_dict())

    def load_optimiser_state(self, state: Any) -> None:
        self.optimiser.load_state_dict(of_worker(state, self.group, "the optimiser's state"))

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["parameters"] = [] if self.agreed else [p.clone() for p in self.group.allgather(self.replica.parameters)]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["parameters"]:
            self.replica.parameters.copy_(of_worker(state["parameters"], self.group, "the parameters"))

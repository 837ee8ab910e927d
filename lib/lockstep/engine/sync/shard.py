"""A slice of the parameters, and what its owner does with the contributions of the workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lockstep.engine.sync.codecs import Codec
from lockstep.engine.sync.plan import OptimiserFactory

Fetch = Callable[[int], Tensor]


class Shard(ABC):
    """`parameters`: float32 [any], a slice of the whole, changed in place by `take`."""

    parameters: Tensor
    in_rank_order = False  # whether contributions must be received in rank order

    @abstractmethod
    def take(self, workers: tuple[int, ...], fetch: Fetch, losses: Mapping[int, float]) -> Callable[[], None]:
        """Receive what `workers` sent, in this order, by `fetch(worker)`; the returned call updates `parameters`."""

    @abstractmethod
    def state(self) -> Any:
        """What a checkpoint must keep beside the parameters, so that a resumed run is exactly the same."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Restore what `state` returned."""


class GradientShard(Shard):
    """Sums gradients and steps once with the sum (ConvLSTM-D-Accel 3, steps 3 and 4 of the parameter server)."""

    def __init__(self, parameters: Tensor, make_optimiser: OptimiserFactory, codec: Codec | None) -> None:
        self.parameters, self.codec = parameters, codec
        self._sum = torch.zeros_like(parameters)
        leaf = torch.nn.Parameter(parameters)
        leaf.grad = self._sum
        self.optimiser = make_optimiser([leaf])

    def take(self, workers: tuple[int, ...], fetch: Fetch, losses: Mapping[int, float]) -> Callable[[], None]:
        del losses  # gradients are weighted already
        self._sum.zero_()
        for worker in workers:
            if self.codec is None:
                self._sum += fetch(worker).to(self._sum.device)
            else:
                self.codec.add(fetch(worker), self._sum)
        return self.optimiser.step  # type: ignore[return-value]

    def state(self) -> Any:
        return self.optimiser.state_dict()

    def load(self, state: Any) -> None:
        self.optimiser.load_state_dict(state)


class WeightShard(Shard):
    """Algorithm 1's `Func_OptWeight` of the weights that workers send: their mean, or those with the lowest loss."""

    in_rank_order = True

    def __init__(self, parameters: Tensor, opt_weight: str) -> None:
        self.parameters, self.opt_weight = parameters, opt_weight

    def take(self, workers: tuple[int, ...], fetch: Fetch, losses: Mapping[int, float]) -> Callable[[], None]:
        best = best_worker({worker: losses[worker] for worker in workers})
        result = torch.zeros_like(self.parameters)
        for worker in workers:
            weights = fetch(worker).to(result.device)
            if self.opt_weight == "mean":
                result += weights
            elif worker == best:
                result = weights
        if self.opt_weight == "mean":
            result /= len(workers)

        def update() -> None:
            self.parameters.copy_(result)

        return update

    def state(self) -> Any:
        return None

    def load(self, state: Any) -> None:
        """Does nothing: there is no state beside the parameters."""


def best_worker(losses: Mapping[int, float]) -> int:
    """The worker with the lowest loss, the first of several. A loss of NaN counts as the highest."""
    return min(sorted(losses), key=lambda worker: losses[worker] if losses[worker] == losses[worker] else float("inf"))

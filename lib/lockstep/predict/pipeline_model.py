"""How long a step of a pipeline should take: its order played through with the seconds of each action.

An action starts when its rank has ended the one before, and what it needs has arrived:

    forward           of stage s    the activation:  forward of stage s-1
    backward,         of stage s    the gradient:    backward or input_backward of stage s+1, and its own forward
    input_backward
    weight_backward   of stage s    its own input_backward

    rank 0  | F0 | F1 |                | B0     |    | B1     | update |
                 \\ transfer          /              /
    rank 1          | F0 | B0     | F1 | B1     | update |              each rank updates when its last action has ended

Messages take time between two ranks and none within one; they keep neither of them from computing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.engine.pipelines.order import BACKWARD, FORWARD, INPUT_BACKWARD, WEIGHT_BACKWARD, Action, Order

_SHOWN = 4  # stuck actions in a message


@dataclass(frozen=True)
class Prediction:
    """A step: from the start of the first action to the end of the last rank's update."""

    step_seconds: float
    idle_seconds: dict[int, float]  # by rank: neither computing nor updating
    starts: dict[Action, float]  # seconds since the step began

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they wait: mean idle seconds / step seconds."""
        if not self.step_seconds:
            return 0.0
        return sum(self.idle_seconds.values()) / len(self.idle_seconds) / self.step_seconds


def predict(
    order: Order,
    seconds: Callable[[Action], float],
    transfer_seconds: float | Mapping[int, float] = 0.0,
    update_seconds: float | Mapping[int, float] = 0.0,
) -> Prediction:
    """Play `order` through. `seconds(action)`: how long it takes, once it starts.

    `transfer_seconds`: of an activation, or of its gradient, between ranks; a mapping gives it for each stage that
    sends its activation on: {0: 0.01} between stages 0 and 1, both ways. `update_seconds`: of each rank, or by rank.

    Raises ValueError for an order that can never end, naming the actions that wait for ever and what they wait for.
    """
    rank_of = {action: rank for rank, actions in order.items() for action in actions}
    if not rank_of:
        raise ValueError("this order holds no action: there is nothing to predict")
    last = max(action.stage for action in rank_of)
    ends: dict[Action, float] = {}
    starts: dict[Action, float] = {}
    free = dict.fromkeys(order, 0.0)
    waiting = {rank: list(reversed(actions)) for rank, actions in order.items()}
    while any(waiting.values()):
        before = len(ends)
        for rank, actions in waiting.items():
            while actions and all(need in ends for need in _needs(actions[-1], last, rank_of)):
                action = actions.pop()
                arrivals = (
                    ends[need] + _transfer(need, action, rank_of, transfer_seconds)
                    for need in _needs(action, last, rank_of)
                )
                starts[action] = max(free[rank], *arrivals, 0.0)
                free[rank] = ends[action] = starts[action] + seconds(action)
        if len(ends) == before:
            raise ValueError(_stuck(waiting, ends, last, rank_of))
    busy = {rank: sum(ends[each] - starts[each] for each in actions) for rank, actions in order.items()}
    updates = {rank: _seconds_for(update_seconds, rank) for rank in order}
    step = max(free[rank] + updates[rank] for rank in order)
    return Prediction(step, {rank: step - busy[rank] - updates[rank] for rank in order}, starts)


def _needs(action: Action, last: int, rank_of: Mapping[Action, int]) -> list[Action]:
    stage, micro_batch = action.stage, action.micro_batch
    if action.kind == FORWARD:
        return [Action(stage - 1, micro_batch, FORWARD)] if stage else []
    if action.kind == WEIGHT_BACKWARD:
        return [Action(stage, micro_batch, INPUT_BACKWARD)]
    own = Action(stage, micro_batch, FORWARD)
    if stage == last:
        return [own]
    halves = Action(stage + 1, micro_batch, INPUT_BACKWARD)
    return [own, halves if halves in rank_of else Action(stage + 1, micro_batch, BACKWARD)]


def _transfer(
    sent: Action, needed: Action, rank_of: Mapping[Action, int], seconds: float | Mapping[int, float]
) -> float:
    """Seconds from the end of `sent` until its result has reached `needed`."""
    return 0.0 if rank_of[sent] == rank_of[needed] else _seconds_for(seconds, min(sent.stage, needed.stage))


def _seconds_for(seconds: float | Mapping[int, float], key: int) -> float:
    return seconds[key] if isinstance(seconds, Mapping) else seconds


def _stuck(
    waiting: Mapping[int, list[Action]], ends: Mapping[Action, float], last: int, rank_of: Mapping[Action, int]
) -> str:
    stuck = []
    for rank, actions in waiting.items():
        if actions:
            missing = [str(need) for need in _needs(actions[-1], last, rank_of) if need not in ends]
            stuck.append(f"rank {rank} at {actions[-1]}, for want of {' and '.join(missing)}")
    more = f"; and {len(stuck) - _SHOWN} more ranks" if len(stuck) > _SHOWN else ""
    return f"this order never ends; it waits for ever: {'; '.join(stuck[:_SHOWN])}{more}"


def ideal_bubble(stages: int, micro_batches: int) -> float:
    """The idle share (S-1)/(M+S-1) of gpipe and 1f1b with equal stages, free messages and no update.

    Of the M + S - 1 turns that a step takes, a rank works in M (Huang et al. 2019, section 2.3). Raises ValueError for
    less than one stage or micro-batch.
    """
    for name, value in (("stages", stages), ("micro_batches", micro_batches)):
        if value < 1:
            raise ValueError(f"{name}={value} is no pipeline; give at least 1")
    return (stages - 1) / (micro_batches + stages - 1)


def ideal_speedup(stages: int, micro_batches: int, imbalance: float = 1.0) -> float:
    """How much faster than one stage after another (naive), which is as fast as one device: S (1 - bubble) / imbalance.

    `imbalance`: seconds of the slowest stage / mean seconds (see `lockstep.engine.pipelines.partition.imbalance`); all
    are as slow as the slowest then. An uneven pipeline can be a little faster than that: its quick stages pass their
    first micro-batch on sooner. `predict` plays it through. Raises ValueError as `ideal_bubble` does, and for an
    imbalance below 1.
    """
    if imbalance < 1:
        raise ValueError(f"imbalance={imbalance}: the slowest stage can't be quicker than the mean; give at least 1")
    return stages * (1 - ideal_bubble(stages, micro_batches)) / imbalance

"""The order in which every rank of a pipeline works on its micro-batches.

A digit is the forward pass of that micro-batch, a letter its backward pass (a: of micro-batch 0, b: of 1, ...). Three
ranks with a stage each, four micro-batches, a backward pass as long as a forward pass; a dot is a rank that waits:

    naive   rank 0   0 . . . . a 1 . . . . b ...       one micro-batch goes there and back before the next one starts;
            rank 1   . 0 . . a . . 1 . . b . ...       one rank works at a time, and micro-batches gain nothing
            rank 2   . . 0 a . . . . 1 b . . ...

    gpipe   rank 0   0 1 2 3 . . . . a b c d           all forward, then all backward, so every rank holds the
            rank 1   . 0 1 2 3 . . a b c d .           activations of all micro-batches; waits 2 (S-1) of 2 (M+S-1)
            rank 2   . . 0 1 2 3 a b c d . .           (Huang et al. 2019)

    1f1b    rank 0   0 1 2 . . a 3 b . c . d           S-r forward on rank r, then one backward and one forward in turn:
            rank 1   . 0 1 . a 2 b 3 c . d .           as long as gpipe, but rank r holds only S-r micro-batches
            rank 2   . . 0 a 1 b 2 c 3 d . .           (Narayanan et al. 2019, PipeDream-Flush of 2021)

S: stages, M: micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

FORWARD, BACKWARD, INPUT_BACKWARD, WEIGHT_BACKWARD = "forward", "backward", "input_backward", "weight_backward"
KINDS = (FORWARD, BACKWARD, INPUT_BACKWARD, WEIGHT_BACKWARD)
_COLUMNS = ("rank", "stage", "micro_batch", "action", "start_seconds")


@dataclass(frozen=True, order=True)
class Action:
    """A pass of one micro-batch through one stage. `kind`: one of KINDS.

    A backward pass is one action, or two: `input_backward` makes the gradient that the stage before waits for,
    `weight_backward` those of the stage's own parameters, for which nobody waits (Qi et al. 2023, "Zero Bubble").
    """

    stage: int
    micro_batch: int
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} of micro-batch {self.micro_batch} on stage {self.stage}"


Order = Mapping[int, Sequence[Action]]
"""Rank -> its actions, in order."""


def order(schedule: str, stages: int, stages_per_rank: int, micro_batches: int) -> dict[int, list[Action]]:
    """The order of `naive`, `gpipe` or `1f1b`: rank r has stage r.

    Raises ValueError, which names the value, for other schedules, for stages_per_rank other than 1, and for less than
    one stage or micro-batch. Torch runs `1f1b` with at least as many micro-batches as stages only; here fewer may be.
    """
    if schedule not in _OF_RANK:
        raise ValueError(
            f"schedule={schedule!r} has no order here; there are: {', '.join(_OF_RANK)}. What a run did is read with "
            "from_table"
        )
    if stages_per_rank != 1:
        raise ValueError(f"schedule={schedule!r} has one stage on each rank, not stages_per_rank={stages_per_rank}")
    for name, value in (("stages", stages), ("micro_batches", micro_batches)):
        if value < 1:
            raise ValueError(f"{name}={value} is no pipeline; give at least 1")
    return {rank: list(_OF_RANK[schedule](rank, stages, micro_batches)) for rank in range(stages)}


def _naive(rank: int, stages: int, micro_batches: int) -> Iterable[Action]:
    return _one_forward_one_backward(rank, rank + 1, micro_batches)  # never more than one micro-batch under way


def _gpipe(rank: int, stages: int, micro_batches: int) -> Iterable[Action]:
    return (Action(rank, index, kind) for kind in (FORWARD, BACKWARD) for index in range(micro_batches))


def _one_forward_one_backward(rank: int, stages: int, micro_batches: int) -> Iterable[Action]:
    ahead = min(stages - rank, micro_batches)
    for index in range(micro_batches + ahead):
        if index >= ahead:
            yield Action(rank, index - ahead, BACKWARD)
        if index < micro_batches:
            yield Action(rank, index, FORWARD)


_OF_RANK: dict[str, Callable[[int, int, int], Iterable[Action]]] = {
    "naive": _naive,
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
}


def from_table(actions: pd.DataFrame) -> dict[int, list[Action]]:
    """The order that really ran, from the rows of `actions.csv` of one replica in one round of one cell.

    Raises ValueError if a column is missing, or if an action occurs twice because rows of several cells are mixed.
    """
    missing = [name for name in _COLUMNS if name not in actions]
    if missing:
        raise ValueError(f"actions have no column {', '.join(missing)}; there are: {', '.join(actions.columns)}")
    computed = actions.loc[actions["action"].isin(KINDS), list(_COLUMNS)].sort_values(["rank", "start_seconds"])
    order: dict[int, dict[Action, None]] = {}
    for rank, stage, micro_batch, kind, _ in computed.itertuples(index=False):
        action = Action(int(stage), int(micro_batch), str(kind))
        if any(action in others for others in order.values()):
            raise ValueError(f"{action} stands there twice: give the rows of one replica in one round of one cell")
        order.setdefault(int(rank), {})[action] = None
    return {rank: list(own) for rank, own in order.items()}


def in_flight(order: Order) -> dict[int, int]:
    """Stage -> most micro-batches whose activations it holds at once.

    From the forward pass until the whole backward pass has ended: with a backward pass in two halves, the second one.
    """
    most: dict[int, int] = {}
    for actions in order.values():
        held: Counter[int] = Counter()
        for each in actions:
            held[each.stage] += (each.kind == FORWARD) - (each.kind in (BACKWARD, WEIGHT_BACKWARD))
            most[each.stage] = max(most.get(each.stage, 0), held[each.stage])
    return dict(sorted(most.items()))

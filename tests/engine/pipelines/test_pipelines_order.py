"""The order of passes on every rank: as drawn, as torch's own schedules run them, as a table of what ran tells it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from lockstep.engine.pipelines import order as module
from lockstep.engine.pipelines.order import Action, from_table, in_flight, order
from lockstep.predict.pipeline_model import predict

LETTERS = {"F": "forward", "B": "backward", "I": "input_backward", "W": "weight_backward"}  # as torch writes them
TORCH = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
SIZES = st.tuples(st.integers(1, 5), st.integers(1, 9))


class Stage:
    """What torch's schedules ask of a stage, without a process group: nothing comes, nothing goes, passes are noted."""

    has_backward = True
    submod = nn.Identity()

    def __init__(self, index: int, stages: int, ranks: int, rank: int) -> None:
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, stages, ranks, rank
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.passes: list[Action] = []

    def forward_one_chunk(self, number: int, *_: Any, **__: Any) -> None:
        self.passes.append(Action(self.stage_index, number, "forward"))

    def backward_one_chunk(self, number: int, **_: Any) -> None:
        self.passes.append(Action(self.stage_index, number, "backward"))

    def _no_messages(self, number: int) -> list[Any]:
        return []

    get_fwd_recv_ops = get_bwd_recv_ops = get_fwd_send_ops = get_bwd_send_ops = _no_messages

    def perform_reduce_grad(self, factor: int) -> None:
        pass


def from_torch(pipeline_order: Mapping[int, Iterable[Any]]) -> dict[int, list[Action]]:
    """The order in one of torch's schedules, from its `pipeline_order`, without entries that are no pass."""
    return {
        rank: [
            Action(each.stage_index, each.microbatch_index, LETTERS[each.computation_type.value])
            for each in actions
            if each is not None and each.computation_type.value in LETTERS
        ]
        for rank, actions in pipeline_order.items()
    }


def torchs(schedule: Any, stages: int, ranks: int, micro_batches: int) -> dict[int, list[Action]]:
    """The order of one of torch's schedules with several stages per rank."""
    own = [Stage(index, stages, ranks, 0) for index in range(0, stages, ranks)]
    return from_torch(schedule(own, micro_batches).pipeline_order)


def drawn(name: str) -> list[str]:
    """The rows of a schedule's picture in the module's own text."""
    lines = (module.__doc__ or "").splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{name} "))
    pictures = [re.search(r"rank \d   ((?:[.\da-d] )+)", line + " ") for line in lines[start : start + 3]]
    return [picture.group(1).strip() for picture in pictures if picture]


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b"])
def test_the_pictures_are_what_the_orders_do(name: str) -> None:
    played = predict(order(name, 3, 1, 4), lambda action: 1.0)
    for rank, picture in enumerate(drawn(name)):
        slots = ["."] * round(played.step_seconds)
        for action, start in played.starts.items():
            if action.stage == rank:
                slots[round(start)] = (
                    str(action.micro_batch) if action.kind == "forward" else "abcd"[action.micro_batch]
                )
        assert " ".join(slots).startswith(picture), (name, rank)
        assert len(picture.split()) >= 11, "the picture shows most of it"


@pytest.mark.parametrize(("name", "stages", "micro_batches"), [
    ("gpipe", 1, 1), ("gpipe", 2, 4), ("gpipe", 4, 3), ("1f1b", 1, 3), ("1f1b", 2, 2), ("1f1b", 3, 8), ("1f1b", 4, 4),
])  # fmt: skip
def test_orders_are_those_that_torch_runs(name: str, stages: int, micro_batches: int) -> None:
    for rank, expected in order(name, stages, 1, micro_batches).items():
        stage = Stage(rank, stages, stages, rank)
        schedule = TORCH[name](stage, micro_batches)
        schedule._initialize_stage = lambda *_, **__: None
        schedule._step_microbatches([()] * micro_batches, [{}] * micro_batches)
        assert stage.passes == expected


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (3, 3), (4, 9)])
def test_orders_are_those_that_torch_states(stages: int, micro_batches: int) -> None:
    ours, theirs = order("gpipe", stages, 1, micro_batches), ScheduleGPipe(Stage(0, stages, stages, 0), micro_batches)
    assert from_torch(theirs.pipeline_order) == ours
    # Of 1F1B torch states the forward passes first where it runs the backward pass first, and numbers those of its last
    # rank from 1: what it runs is compared above.
    stated = from_torch(Schedule1F1B(Stage(0, stages, stages, 0), micro_batches).pipeline_order)
    for rank, actions in order("1f1b", stages, 1, micro_batches).items():
        for kind in ("forward", "backward"):
            shift = int(kind == "forward" and rank == stages - 1)
            numbers = [each.micro_batch + shift for each in actions if each.kind == kind]
            assert numbers == [each.micro_batch for each in stated[rank] if each.kind == kind]


@settings(deadline=None)
@given(name=st.sampled_from(["naive", "gpipe", "1f1b"]), size=SIZES)
def test_every_micro_batch_goes_forward_and_back_once(name: str, size: tuple[int, int]) -> None:
    stages, micro_batches = size
    made = order(name, stages, 1, micro_batches)
    assert list(made) == list(range(stages))
    for rank, actions in made.items():
        expected = {Action(rank, m, kind) for m in range(micro_batches) for kind in ("forward", "backward")}
        assert set(actions) == expected and len(actions) == len(expected)


@settings(deadline=None)
@given(size=SIZES)
def test_how_many_micro_batches_are_held_at_once(size: tuple[int, int]) -> None:
    stages, micro_batches = size
    held = {name: in_flight(order(name, stages, 1, micro_batches)) for name in ("naive", "gpipe", "1f1b")}
    assert held["naive"] == dict.fromkeys(range(stages), 1)
    assert held["gpipe"] == dict.fromkeys(range(stages), micro_batches)
    assert held["1f1b"] == {stage: min(stages - stage, micro_batches) for stage in range(stages)}


def test_a_split_backward_pass_holds_until_its_second_half() -> None:
    passes = [
        *(Action(0, 0, "forward"), Action(0, 1, "forward"), Action(0, 0, "input_backward"), Action(0, 2, "forward")),
        *(Action(0, 0, "weight_backward"), Action(0, 1, "input_backward"), Action(0, 1, "weight_backward")),
    ]
    assert in_flight({0: passes}) == {0: 3}
    whole = [Action(each.stage, each.micro_batch, "backward") if "input" in each.kind else each for each in passes]
    assert in_flight({0: [each for each in whole if each.kind != "weight_backward"]}) == {0: 2}


@pytest.mark.parametrize(
    ("schedule", "stages", "ranks", "kinds"),
    [
        (ScheduleInterleaved1F1B, 4, 2, {"forward", "backward"}),
        (ScheduleInterleavedZeroBubble, 2, 2, {"forward", "input_backward", "weight_backward"}),
        (ScheduleZBVZeroBubble, 4, 2, {"forward", "input_backward", "weight_backward"}),
    ],
)
def test_torchs_other_schedules_can_be_played(schedule: Any, stages: int, ranks: int, kinds: set[str]) -> None:
    found = torchs(schedule, stages, ranks, 4)
    assert {action.kind for actions in found.values() for action in actions} == kinds
    assert sum(map(len, found.values())) == len(kinds) * stages * 4
    played = predict(found, lambda action: 1.0)
    assert played.step_seconds >= len(kinds) * stages * 4 / ranks
    assert max(in_flight(found).values()) <= 4


def rows(orders: dict[int, list[Action]], replica: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {"rank": rank, "replica": replica, "stage": each.stage, "micro_batch": each.micro_batch, "action": each.kind,
         "start_seconds": 0.5 * number, "seconds": 0.4}
        for rank, actions in orders.items()
        for number, each in enumerate(actions)
    )  # fmt: skip


def with_others(table: pd.DataFrame, names: Iterable[str] = ("receive", "send", "exchange", "update")) -> pd.DataFrame:
    others = [{"rank": 0, "replica": 0, "action": name, "start_seconds": 0.1, "seconds": 0.1} for name in names]
    return pd.concat([pd.DataFrame(others), table])


def test_what_ran_is_read_back_whatever_the_order_of_its_rows() -> None:
    made = order("1f1b", 3, 1, 4)
    assert from_table(with_others(rows(made)).sample(frac=1, random_state=1)) == made


def test_rows_of_two_replicas_are_refused() -> None:
    made = order("gpipe", 2, 1, 2)
    with pytest.raises(ValueError, match="forward of micro-batch 0 on stage 0 stands there twice: give the"):
        from_table(with_others(pd.concat([rows(made), rows(made, replica=1)])))


def test_a_table_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="no column micro_batch, action; there are: rank, replica"):
        from_table(rows(order("gpipe", 2, 1, 2)).drop(columns=["micro_batch", "action"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("zero_bubble", 2, 1, 4), "schedule='zero_bubble' has no order here; there are: naive, gpipe, 1f1b"),
        (("1f1b", 4, 2, 4), "schedule='1f1b' has one stage on each rank, not stages_per_rank=2"),
        (("gpipe", 0, 1, 4), "stages=0"),
        (("gpipe", 2, 1, 0), "micro_batches=0"),
    ],
)
def test_impossible_orders_say_why(arguments: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        order(*arguments)

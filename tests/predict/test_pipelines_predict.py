"""A pipeline's step, played through: worked examples, and laws that hold for all sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.pipelines.order import Action, order
from lockstep.predict.pipeline_model import ideal_bubble, ideal_speedup, predict

SIZES = st.tuples(st.integers(1, 5), st.integers(1, 9))
SECONDS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5)  # of forward, backward


def uneven(each: list[tuple[int, int]]) -> Callable[[Action], float]:
    """Seconds of every stage's forward and backward pass."""
    return lambda action: each[action.stage][action.kind == "backward"]


def there_and_back(*stages: int) -> list[Action]:
    forward = [Action(stage, 0, "forward") for stage in stages]
    return forward + [Action(stage, 0, "backward") for stage in reversed(stages)]


def test_two_stages_two_micro_batches_by_hand() -> None:
    """Forward 1 s, backward 2 s, a message 0.5 s; the update takes 3 s on rank 0 and 1 s on rank 1.

    rank 0  | F0 | F1 | . . . . . . . . . . | B0       | B1       | update |     at 0 1 6 8 10, until 13
    rank 1      . | F0 | F1 | B0       | B1       | update |                     at 1.5 2.5 3.5 5.5 7.5
    """
    played = predict(order("gpipe", 2, 1, 2), uneven([(1, 2), (1, 2)]), 0.5, {0: 3, 1: 1})
    starts = {(each.stage, each.kind[0], each.micro_batch): at for each, at in played.starts.items()}
    assert starts[0, "f", 0] == 0 and starts[0, "f", 1] == 1
    assert starts[1, "f", 0] == 1.5 and starts[1, "f", 1] == 2.5
    assert starts[1, "b", 0] == 3.5 and starts[1, "b", 1] == 5.5
    assert starts[0, "b", 0] == 6 and starts[0, "b", 1] == 8
    assert played.step_seconds == 13, "rank 0 ends its last backward pass at 10, then updates for 3"
    assert played.idle_seconds == {0: 13 - 6 - 3, 1: 13 - 6 - 1}
    assert played.bubble == pytest.approx((4 + 6) / 2 / 13)


def test_a_message_within_a_rank_takes_no_time() -> None:
    """A V of two ranks: stages 0 and 3 on rank 0, 1 and 2 on rank 1."""
    both = {0: there_and_back(0, 3), 1: there_and_back(1, 2)}
    played = predict(both, lambda action: 1.0, transfer_seconds={0: 10.0, 1: 1000.0, 2: 100.0})
    assert played.step_seconds == 8 + 2 * (10 + 100), "between stages 1 and 2 nothing is sent"


def test_the_second_half_of_a_backward_pass_fills_the_gap() -> None:
    """Backward 1 + 1: rank 0 gets its gradient 1 s earlier than with a whole backward pass of 2."""
    halves = {
        0: [Action(0, 0, "forward"), Action(0, 0, "input_backward"), Action(0, 0, "weight_backward")],
        1: [Action(1, 0, "forward"), Action(1, 0, "input_backward"), Action(1, 0, "weight_backward")],
    }
    played = predict(halves, lambda action: 1.0)
    assert played.starts[Action(0, 0, "input_backward")] == 3
    assert played.starts[Action(1, 0, "weight_backward")] == 3
    whole = predict(order("gpipe", 2, 1, 1), uneven([(1, 2), (1, 2)]))
    assert (whole.step_seconds, played.step_seconds) == (6, 5)


@settings(deadline=None)
@given(size=SIZES, name=st.sampled_from(["gpipe", "1f1b"]), ratio=st.integers(0, 5), forward=st.integers(1, 7))
def test_equal_stages_wait_as_the_ideal_says(size: tuple[int, int], name: str, ratio: int, forward: int) -> None:
    stages, micro_batches = size
    played = predict(order(name, stages, 1, micro_batches), uneven([(forward, ratio * forward)] * stages))
    assert played.step_seconds == (micro_batches + stages - 1) * (1 + ratio) * forward
    for idle in played.idle_seconds.values():
        assert idle / played.step_seconds == pytest.approx(ideal_bubble(stages, micro_batches))
    assert played.bubble == pytest.approx(ideal_bubble(stages, micro_batches))


@settings(deadline=None)
@given(each=SECONDS, micro_batches=st.integers(1, 7))
def test_gpipe_with_uneven_stages_is_two_assembly_lines(each: list[tuple[int, int]], micro_batches: int) -> None:
    """Identical work through a line of stages: the sum of all, then the slowest once more for each that follows."""
    played = predict(order("gpipe", len(each), 1, micro_batches), uneven(each))
    lines = [[stage[way] for stage in each] for way in (0, 1)]
    assert played.step_seconds == sum(sum(line) + (micro_batches - 1) * max(line) for line in lines)


@settings(deadline=None)
@given(each=SECONDS, micro_batches=st.integers(1, 7), message=st.integers(0, 3))
def test_naive_does_one_thing_at_a_time(each: list[tuple[int, int]], micro_batches: int, message: int) -> None:
    played = predict(order("naive", len(each), 1, micro_batches), uneven(each), message)
    round_trip = sum(map(sum, each)) + 2 * message * (len(each) - 1)
    assert played.step_seconds == micro_batches * round_trip


@settings(deadline=None)
@given(each=SECONDS, micro_batches=st.integers(1, 7), name=st.sampled_from(["gpipe", "1f1b"]))
def test_no_rank_starts_before_it_may_nor_ends_before_it_could(
    each: list[tuple[int, int]], micro_batches: int, name: str
) -> None:
    orders = order(name, len(each), 1, micro_batches)
    played = predict(orders, uneven(each), 1, 2)
    for rank, actions in orders.items():
        own = [played.starts[action] for action in actions]
        ends = [start + each[rank][action.kind == "backward"] for start, action in zip(own, actions, strict=True)]
        assert all(end <= start for end, start in zip(ends, own[1:], strict=False)), "a rank does one thing at a time"
        assert played.step_seconds >= ends[-1] + 2
        busy = micro_batches * sum(each[rank])
        assert played.idle_seconds[rank] == pytest.approx(played.step_seconds - busy - 2)
        if rank:
            for m in range(micro_batches):
                sent = played.starts[Action(rank - 1, m, "forward")] + each[rank - 1][0]
                assert played.starts[Action(rank, m, "forward")] >= sent + 1


def test_an_order_that_never_ends_says_what_is_stuck() -> None:
    late = {0: there_and_back(0)[::-1], 1: there_and_back(1)}
    with pytest.raises(ValueError) as told:
        predict(late, lambda action: 1.0)
    first, second = str(told.value).split("; ")[1:]
    assert first == (
        "it waits for ever: rank 0 at backward of micro-batch 0 on stage 0, for want of forward of micro-batch 0 on "
        "stage 0 and backward of micro-batch 0 on stage 1"
    )
    assert second == "rank 1 at forward of micro-batch 0 on stage 1, for want of forward of micro-batch 0 on stage 0"


def test_an_order_without_its_forward_pass_never_ends() -> None:
    with pytest.raises(ValueError, match="for want of forward of micro-batch 3 on stage 0"):
        predict({0: [Action(0, 3, "backward")]}, lambda action: 1.0)


def test_nothing_to_do_is_nothing_to_predict() -> None:
    with pytest.raises(ValueError, match="no action"):
        predict({0: []}, lambda action: 1.0)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "bubble", "speedup"),
    [(2, 4, 1 / 5, 1.6), (4, 4, 3 / 7, 16 / 7), (1, 3, 0, 1), (2, 1, 1 / 2, 1)],
)
def test_the_ideal_by_hand(stages: int, micro_batches: int, bubble: float, speedup: float) -> None:
    assert ideal_bubble(stages, micro_batches) == pytest.approx(bubble)
    assert ideal_speedup(stages, micro_batches) == pytest.approx(speedup)


def test_the_ideal_of_uneven_stages() -> None:
    """3 s and 1 s: the slowest is 1.5 times the mean. Four micro-batches: 5 turns of 3 s against 4 x 4 s in turn."""
    assert ideal_speedup(2, 4, imbalance=1.5) == pytest.approx(4 * 4 / (5 * 3))


@settings(deadline=None)
@given(size=SIZES)
def test_the_ideal_speedup_is_that_of_gpipe_over_naive(size: tuple[int, int]) -> None:
    stages, micro_batches = size
    naive, gpipe = (predict(order(name, stages, 1, micro_batches), lambda _: 1.0) for name in ("naive", "gpipe"))
    assert naive.step_seconds / gpipe.step_seconds == pytest.approx(ideal_speedup(stages, micro_batches))


def test_impossible_ideals_say_why() -> None:
    with pytest.raises(ValueError, match="stages=0"):
        ideal_bubble(0, 4)
    with pytest.raises(ValueError, match="micro_batches=0"):
        ideal_speedup(2, 0)
    with pytest.raises(ValueError, match=r"imbalance=0\.5"):
        ideal_speedup(2, 4, imbalance=0.5)

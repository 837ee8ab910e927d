"""Where a model is cut: against every possible cut, and by hand for AlexNet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.pipelines.partition import (
    LayerCost,
    Memory,
    PartitionError,
    balanced,
    equal_layers,
    equal_parameters,
    imbalance,
    sent_bytes,
    slowest_stage_seconds,
    spans,
    stage_seconds,
)

LAYERS = st.lists(
    st.builds(
        LayerCost,
        name=st.just("Linear"),
        parameters=st.integers(0, 5),
        seconds=st.integers(0, 6).map(float),
        output_bytes=st.integers(0, 4),
        saved_bytes=st.integers(0, 4),
        cuttable=st.booleans() | st.just(True),
        in_place=st.booleans(),
        output_saved=st.booleans(),
    ),
    min_size=1,
    max_size=8,
)
STAGES = st.integers(1, 4)


def every_cut(costs: list[LayerCost], stages: int, memory: Memory | None = None) -> Iterator[list[int]]:
    """All that is allowed, one by one."""
    for later in combinations(range(1, len(costs)), stages - 1):
        cuts = [0, *later]
        if not all(costs[first - 1].cuttable for first in later):
            continue
        parts = spans(cuts, len(costs))
        if not all(any(cost.parameters for cost in costs[first:end]) for first, end in parts):
            continue
        if memory is not None and any(
            memory.needed(costs, stage, *part) > memory.bound_bytes for stage, part in enumerate(parts)
        ):
            continue
        yield cuts


def line(*parameters: int, seconds: float = 1.0) -> list[LayerCost]:
    return [LayerCost("Linear" if each else "ReLU", each, seconds) for each in parameters]


@settings(deadline=None)
@given(costs=LAYERS, stages=STAGES)
def test_balanced_is_the_best_of_all_cuts(costs: list[LayerCost], stages: int) -> None:
    allowed = list(every_cut(costs, stages))
    if not allowed:
        with pytest.raises(PartitionError):
            balanced(costs, stages)
        return
    found = balanced(costs, stages)
    assert found in allowed
    best = min((slowest_stage_seconds(costs, cuts), sent_bytes(costs, cuts)) for cuts in allowed)
    assert (slowest_stage_seconds(costs, found), sent_bytes(costs, found)) == best


@settings(deadline=None)
@given(costs=LAYERS, stages=STAGES, bound=st.integers(0, 40), held=st.integers(1, 3), recomputed=st.booleans())
def test_balanced_keeps_to_the_bound_on_memory(
    costs: list[LayerCost], stages: int, bound: int, held: int, recomputed: bool
) -> None:
    memory = Memory(bound, 3, [held + stages - stage for stage in range(stages)], input_bytes=2, recomputed=recomputed)
    without, allowed = list(every_cut(costs, stages)), list(every_cut(costs, stages, memory))
    if not without:
        return
    if allowed:
        found = balanced(costs, stages, memory)
        assert found in allowed
        assert slowest_stage_seconds(costs, found) == min(slowest_stage_seconds(costs, cuts) for cuts in allowed)
        return
    # Not possible: the message names the least bound with which it is, and with that it is.
    with pytest.raises(PartitionError) as told:
        balanced(costs, stages, memory)
    needs = [
        max(memory.needed(costs, stage, *part) for stage, part in enumerate(spans(cuts, len(costs))))
        for cuts in without
    ]
    assert f"fits {bound} bytes a stage: even at best stage " in str(told.value)
    assert f"stage_memory_bytes of at least {math.ceil(min(needs))}," in str(told.value)
    assert balanced(costs, stages, replace(memory, bound_bytes=math.ceil(min(needs)))) in without


@settings(deadline=None)
@given(costs=LAYERS, stages=STAGES)
def test_balanced_is_never_worse_than_the_rules_of_thumb(costs: list[LayerCost], stages: int) -> None:
    for rule in (equal_layers, equal_parameters):
        try:
            cuts = rule(costs, stages)
        except PartitionError:
            continue
        assert cuts in every_cut(costs, stages)
        assert slowest_stage_seconds(costs, balanced(costs, stages)) <= slowest_stage_seconds(costs, cuts)


@settings(deadline=None)
@given(parameters=st.lists(st.integers(0, 9), min_size=1, max_size=9), stages=STAGES)
def test_equal_parameters_has_the_smallest_largest_stage(parameters: list[int], stages: int) -> None:
    costs = line(1, *parameters)
    parameters, stages = [1, *parameters], min(stages, 1 + sum(each > 0 for each in parameters))

    def largest(cuts: list[int]) -> int:
        return max(sum(parameters[first:end]) for first, end in spans(cuts, len(costs)))

    assert largest(equal_parameters(costs, stages)) == min(map(largest, every_cut(costs, stages)))


@settings(deadline=None)
@given(with_parameters=st.lists(st.booleans(), min_size=1, max_size=12), stages=STAGES)
def test_equal_layers_shares_out_layers_with_parameters(with_parameters: list[bool], stages: int) -> None:
    with_parameters = [*with_parameters, True]
    costs, stages = line(*map(int, with_parameters)), min(stages, sum(with_parameters))
    counts = [sum(with_parameters[first:end]) for first, end in spans(equal_layers(costs, stages), len(costs))]
    each, more = divmod(sum(with_parameters), stages)
    assert counts == [each + (stage < more) for stage in range(stages)]


# AlexNet's layers with parameters (3 classes), each with what follows it: ReLU, pooling, dropout.
ALEXNET = [
    *(LayerCost("Conv2d", 23_296, 8.0), LayerCost("MaxPool2d", 0, 1.0)),
    *(LayerCost("Conv2d", 307_392, 12.0), LayerCost("MaxPool2d", 0, 1.0)),
    *(LayerCost("Conv2d", 663_936, 6.0), LayerCost("Conv2d", 884_992, 8.0), LayerCost("Conv2d", 590_080, 5.0)),
    *(LayerCost("Flatten", cuttable=False, seconds=0.0), LayerCost("Linear", 37_752_832, 9.0)),
    *(LayerCost("Linear", 16_781_312, 4.0), LayerCost("Linear", 12_291, 0.5)),
]  # fmt: skip


def test_two_stages_of_alexnet_by_hand() -> None:
    """Half of its time goes by in the first two convolutions, nearly all of its parameters are in the last layers."""
    assert balanced(ALEXNET, 2) == [0, 5], "8 1 12 1 6 | 8 5 0 9 4 0.5: 28 and 26.5 s"
    assert stage_seconds(ALEXNET, [0, 5]) == [28.0, 26.5]
    assert imbalance(ALEXNET, [0, 5]) == pytest.approx(28 / 27.25)
    assert equal_layers(ALEXNET, 2) == [0, 6], "four layers with parameters each"
    assert equal_parameters(ALEXNET, 2) == [0, 9], "40.2 million and 16.8 million"


def test_three_stages_begin_before_what_can_not_be_cut_off() -> None:
    """2.5, 37.8 and 16.8 million parameters: the flattening goes with the linear layer behind it."""
    assert equal_parameters(ALEXNET, 3) == [0, 7, 9]


def test_of_equally_quick_cuts_the_one_that_sends_least() -> None:
    costs = [
        LayerCost("Linear", 1, seconds, output_bytes=size) for seconds, size in ((1.0, 8), (0.0, 5), (1.0, 9), (1.0, 7))
    ]
    assert balanced(costs, 2) == [0, 2], "2 s for the slowest stage wherever it is cut; 8, 5 or 9 bytes"
    assert sent_bytes(costs, [0, 2]) == 5
    assert balanced([replace(cost, seconds=0.0) for cost in costs], 3) == [0, 1, 2], "8 + 5 bytes"


def test_memory_by_hand() -> None:
    """10 bytes a parameter; stage 1 receives 5 bytes per micro-batch, and holds 3 of them."""
    costs = [
        LayerCost("Conv2d", 2, 1.0, output_bytes=5, saved_bytes=7, output_saved=True),
        LayerCost("ReLU", 0, 1.0, output_bytes=5, saved_bytes=0, in_place=True, output_saved=True),
        LayerCost("Linear", 4, 1.0, output_bytes=1, saved_bytes=6),
    ]
    memory = Memory(0, 10, [2, 3], input_bytes=11)
    assert memory.needed(costs, 0, 0, 2) == 10 * 2 + 2 * (11 + 7)
    assert memory.needed(costs, 1, 2, 3) == 10 * 4 + 3 * (5 + 6 + 1), "its output is held, though nothing saves it"
    assert memory.needed(costs, 1, 1, 3) == 10 * 4 + 3 * (5 + 5 + 6 + 1), "a layer in place can't be in place there"
    assert replace(memory, recomputed=True).needed(costs, 1, 2, 3) == 10 * 4 + 3 * (5 + 1) + 6


def test_a_tight_bound_moves_the_cut() -> None:
    costs = [LayerCost("Linear", each, seconds) for each, seconds in ((1, 3.0), (9, 1.0), (1, 1.0), (1, 1.0))]
    assert balanced(costs, 2) == [0, 1], "3 and 3 s"
    assert balanced(costs, 2, Memory(10, 1, [1, 1])) == [0, 2], "11 parameters no longer fit: 10 and 2"
    with pytest.raises(PartitionError, match="fits 8 bytes a stage: even at best stage 0 needs 10 bytes"):
        balanced(costs, 2, Memory(8, 1, [1, 1]))


@pytest.mark.parametrize("rule", [balanced, equal_layers, equal_parameters])
def test_more_stages_than_layers_to_train(rule: Callable[..., list[int]]) -> None:
    with pytest.raises(PartitionError, match=r"stages=3 for a model with 2 layer\(s\) that hold parameters \(5 "):
        rule(line(1, 0, 0, 1, 0), 3)
    with pytest.raises(PartitionError, match=r"stages=3 for a model of 2 layer\(s\); give at most 2"):
        rule(line(1, 1), 3, with_parameters=False)
    with pytest.raises(PartitionError, match="stages=0"):
        rule(line(1, 1), 0)


@pytest.mark.parametrize("rule", [balanced, equal_layers, equal_parameters])
def test_a_model_with_too_few_places_to_cut(rule: Callable[..., list[int]]) -> None:
    joined = [replace(cost, cuttable=False) for cost in line(1, 1, 1)]
    with pytest.raises(PartitionError, match=r"can't be cut after layers 0 \(Linear\), 1 \(Linear\)"):
        rule(joined, 2)


@pytest.mark.parametrize("rule", [balanced, equal_layers, equal_parameters])
def test_stages_without_parameters_on_request(rule: Callable[..., list[int]]) -> None:
    assert rule(line(5, 0, 0), 3, with_parameters=False) == [0, 1, 2]


def test_what_was_not_measured_can_not_be_balanced() -> None:
    with pytest.raises(PartitionError, match=r"seconds of layer 1 \(ReLU\) are not known"):
        balanced([LayerCost("Linear", 1, 1.0), LayerCost("ReLU"), LayerCost("Linear", 1, 1.0)], 2)
    assert equal_layers([LayerCost("Linear", 1), LayerCost("ReLU"), LayerCost("Linear", 1)], 2) == [0, 2]


def test_forty_layers_are_no_trouble() -> None:
    costs = [LayerCost("Linear", 1, float(1 + index % 7), output_bytes=index) for index in range(40)]
    found = balanced(costs, 8)
    assert len(found) == 8 and slowest_stage_seconds(costs, found) < 1.35 * sum(cost.seconds for cost in costs) / 8

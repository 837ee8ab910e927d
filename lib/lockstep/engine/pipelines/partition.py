"""Partitions of a sequence of layers into stages.

    layers   0 1 2 3 4 | 5 6 7 8 | 9 10 11        cuts = [0, 5, 9]: the first layer of every stage

A pipeline is as slow as its slowest stage, so `balanced` makes that as quick as possible, from measured costs of
layers. The other two are the rules of thumb that it is compared with. All three cut between whole layers, in order, and
by stages: where a rank has several of them (stages_per_rank > 1), each stage is made as long as the others, not each
rank.

Every stage holds a layer with parameters unless `with_parameters=False`: torch's pipelining can run a stage without
any, but its optimiser would have nothing to do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class PartitionError(ValueError):
    """A model can't be cut as asked; the message says into what, why not, and what would be possible."""


@dataclass(frozen=True)
class LayerCost:
    """One layer, of one micro-batch. What was not measured is NaN (seconds) or 0 (bytes)."""

    name: str  # such as Conv2d
    parameters: int = 0
    seconds: float = math.nan  # forward + backward
    output_bytes: int = 0  # what a cut after it would send
    saved_bytes: int = 0  # what it adds to the memory held for the backward pass; its input is another layer's output
    forward_seconds: float = math.nan
    backward_seconds: float = math.nan
    cuttable: bool = True  # a stage may end with it (see lockstep.engine.replica.pipeline.cut)
    in_place: bool = False  # it writes over its input; as a stage's first layer it would need memory of its own
    output_saved: bool = False  # its output is among saved_bytes, of this layer or of one before that made the memory


@dataclass(frozen=True)
class Memory:
    """A bound on what each stage may need, in bytes."""

    bound_bytes: int
    bytes_per_parameter: float  # float32 with momentum: 4 for itself, 4 for its gradient, 4 for the optimiser's state
    in_flight: Sequence[int]  # most micro-batches held at once, by stage: lockstep.engine.pipelines.order.in_flight
    input_bytes: int = 0  # of a micro-batch of images, which the first stage holds
    recomputed: bool = False  # activations are made anew for the backward pass: inputs and outputs alone are held

    def needed(self, costs: Sequence[LayerCost], stage: int, first: int, end: int) -> float:
        """Bytes of `stage` made of layers first .. end-1: parameters, and the activations of all it has in flight.

        Of each micro-batch: its input, what the layers save, and its output, which pipelining holds in any case.
        """
        received = costs[first - 1].output_bytes if first else self.input_bytes
        saved = sum(cost.saved_bytes for cost in costs[first:end])
        saved += costs[first].output_bytes if first and costs[first].in_place else 0
        sent = costs[end - 1].output_bytes
        if self.recomputed:
            activations = self.in_flight[stage] * (received + sent) + saved
        else:
            activations = self.in_flight[stage] * (received + saved + (0 if costs[end - 1].output_saved else sent))
        return self.bytes_per_parameter * sum(cost.parameters for cost in costs[first:end]) + activations


Cost = Callable[[int, int, int], float]  # of stage s made of layers first .. end-1; math.inf: impossible


def balanced(
    costs: Sequence[LayerCost], stages: int, memory: Memory | None = None, *, with_parameters: bool = True
) -> list[int]:
    """The cuts whose slowest stage is quickest; among those, the ones that send the fewest bytes.

    Dynamic programming over layers: of all ways to end stage s at layer l only the best counts. O(stages x layers^2).

    Raises PartitionError for more stages than layers with parameters, if the places where layers can be cut are too
    few, or if no partition fits `memory`.
    """
    possible = _possible(costs, stages, with_parameters)

    def fits(stage: int, first: int, end: int) -> bool:
        if not possible(stage, first, end):
            return False
        return memory is None or memory.needed(costs, stage, first, end) <= memory.bound_bytes

    def seconds(stage: int, first: int, end: int) -> float:
        return _seconds(costs, first, end) if fits(stage, first, end) else math.inf

    unknown = [f"{index} ({cost.name})" for index, cost in enumerate(costs) if not math.isfinite(cost.seconds)]
    if unknown:
        raise PartitionError(f"seconds of layer {unknown[0]} are not known: measure them, or cut by equal_layers")
    quickest, cuts = _best(seconds, len(costs), stages, max)
    if cuts is None:
        raise PartitionError(_why_not(costs, stages, memory, possible))

    def sent(stage: int, first: int, end: int) -> float:
        if seconds(stage, first, end) > quickest:
            return math.inf
        return costs[first - 1].output_bytes if first else 0.0

    return _best(sent, len(costs), stages, operator.add)[1] or cuts


def equal_layers(costs: Sequence[LayerCost], stages: int, *, with_parameters: bool = True) -> list[int]:
    """As many layers with parameters in every stage, the first stages one more where they can't be shared out evenly.

    Layers without parameters (activation, pooling) go with the one before. Raises PartitionError as `balanced` does.
    """
    counts = [int(cost.parameters > 0) if with_parameters else 1 for cost in costs]
    return _equal(costs, stages, counts, with_parameters)


def equal_parameters(costs: Sequence[LayerCost], stages: int, *, with_parameters: bool = True) -> list[int]:
    """The cuts whose largest stage has the fewest parameters; among those, the most even ones.

    Layers without parameters go with the one before. Raises PartitionError as `balanced` does.
    """
    return _equal(costs, stages, [cost.parameters for cost in costs], with_parameters)


def _equal(costs: Sequence[LayerCost], stages: int, sizes: Sequence[int], with_parameters: bool) -> list[int]:
    """Cuts with the smallest largest sum of `sizes`; among those, with the least sum of their squares."""
    possible, starts = _possible(costs, stages, with_parameters), _starts(costs, with_parameters)

    def size(stage: int, first: int, end: int) -> float:
        return sum(sizes[first:end]) if first in starts and possible(stage, first, end) else math.inf

    largest, cuts = _best(size, len(costs), stages, max)
    if cuts is None:
        raise PartitionError(_why_not(costs, stages, None, possible))

    def square(stage: int, first: int, end: int) -> float:
        own = size(stage, first, end)
        return own * own if own <= largest else math.inf

    return _best(square, len(costs), stages, operator.add)[1] or cuts


def _starts(costs: Sequence[LayerCost], with_parameters: bool) -> set[int]:
    """The layers at which a stage may begin: those with parameters, or the first of several that can't be separated."""
    starts = {0}
    for index, cost in enumerate(costs):
        if cost.parameters or not with_parameters:
            while index and not costs[index - 1].cuttable and not costs[index - 1].parameters:
                index -= 1
            starts.add(index)
    return starts


def _possible(costs: Sequence[LayerCost], stages: int, with_parameters: bool) -> Callable[[int, int, int], bool]:
    """Whether a stage may be made of some layers. Raises PartitionError for more stages than there can be."""
    if stages < 1:
        raise PartitionError(f"stages={stages} is no partition; give at least 1")
    trained = sum(cost.parameters > 0 for cost in costs)
    if with_parameters and stages > trained:
        raise PartitionError(
            f"stages={stages} for a model with {trained} layer(s) that hold parameters ({len(costs)} in all): every "
            f"stage needs one; give at most {trained} stages"
        )
    if stages > len(costs):
        raise PartitionError(f"stages={stages} for a model of {len(costs)} layer(s); give at most {len(costs)}")

    def possible(stage: int, first: int, end: int) -> bool:
        if end < len(costs) and not costs[end - 1].cuttable:
            return False
        return not with_parameters or any(cost.parameters for cost in costs[first:end])

    return possible


def _best(
    cost: Cost, layers: int, stages: int, combine: Callable[[float, float], float]
) -> tuple[float, list[int] | None]:
    """(the least combined cost, its cuts): best[s][l] over all ways to make stages 0 .. s of layers 0 .. l-1.

    Of equal ones that whose last stage begins latest; (inf, None) if there is none.
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}  # end of a stage -> the least cost, and its cuts
    for stage in range(stages):
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for end in range(stage + 1, layers + 1) if stage < stages - 1 else [layers]:
            for first in sorted(best, reverse=True):
                if first >= end:
                    continue
                before, cuts = best[first]
                own = cost(stage, first, end)
                value = combine(before, own) if math.isfinite(own) else math.inf
                if value < found.get(end, (math.inf, ()))[0]:
                    found[end] = (value, (*cuts, first))
        best = found
    value, chosen = best.get(layers, (math.inf, ()))
    return value, list(chosen) if chosen else None


def _why_not(
    costs: Sequence[LayerCost], stages: int, memory: Memory | None, possible: Callable[[int, int, int], bool]
) -> str:
    def needed(stage: int, first: int, end: int) -> float:
        if not possible(stage, first, end):
            return math.inf
        return 0.0 if memory is None else memory.needed(costs, stage, first, end)

    least, cuts = _best(needed, len(costs), stages, max)
    if memory is None or cuts is None:
        joined = [f"{index} ({cost.name})" for index, cost in enumerate(costs[:-1]) if not cost.cuttable]
        return f"no {stages} stages can be made: the model can't be cut after layers {', '.join(joined) or 'any'}"
    sizes = [memory.needed(costs, stage, *span) for stage, span in enumerate(spans(cuts, len(costs)))]
    worst = sizes.index(max(sizes))
    return (
        f"no partition into {stages} stages fits {memory.bound_bytes} bytes a stage: even at best stage {worst} needs "
        f"{math.ceil(least)} bytes ({memory.in_flight[worst]} micro-batches in flight); give stage_memory_bytes of at "
        f"least {math.ceil(least)}, more stages or smaller micro-batches"
    )


def spans(cuts: Sequence[int], layers: int) -> list[tuple[int, int]]:
    """(first, end) of every stage: its layers are first .. end-1."""
    return list(zip(cuts, [*cuts[1:], layers], strict=True))


def _seconds(costs: Sequence[LayerCost], first: int, end: int) -> float:
    return math.fsum(cost.seconds for cost in costs[first:end])


def stage_seconds(costs: Sequence[LayerCost], cuts: Sequence[int]) -> list[float]:
    """Forward and backward seconds of every stage, of one micro-batch, as sums over its layers."""
    return [_seconds(costs, first, end) for first, end in spans(cuts, len(costs))]


def slowest_stage_seconds(costs: Sequence[LayerCost], cuts: Sequence[int]) -> float:
    """Seconds of the slowest stage."""
    return max(stage_seconds(costs, cuts))


def imbalance(costs: Sequence[LayerCost], cuts: Sequence[int]) -> float:
    """Seconds of the slowest stage / mean over stages: 1 if all take as long."""
    each = stage_seconds(costs, cuts)
    return max(each) * len(each) / sum(each)


def sent_bytes(costs: Sequence[LayerCost], cuts: Sequence[int]) -> int:
    """Bytes of activations of one micro-batch that go from stage to stage; gradients are as many again."""
    return sum(costs[first - 1].output_bytes for first in cuts[1:])

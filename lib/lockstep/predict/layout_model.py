"""What a training step should cost when a model is cut into stages, copied, or both, over links of a given rate.

    ranks = replicas R x stages S                R = 1: model parallel     S = 1: data parallel     else: hybrid

    step = turn x (M + S - 1)                    a rank's M micro-batches, and filling and draining the pipeline
         + 2 x sum of transfers over the cuts    the first activation goes all the way there, the last gradient back
         + 2 (R-1) alpha + 2 (R-1)/R B beta      ring all-reduce of the gradients of the largest stage, B bytes
         + update of the largest stage

A turn is a micro-batch's forward and backward pass through the slowest stage, or its transfer over the slowest cut if
that takes longer: links and computing overlap. Nothing of the all-reduce does. Where ranks share cores, computing takes
at least all work over all cores. Seconds are those of layers measured one by one; everything here is predicted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lockstep.engine.pipelines.partition import LayerCost, PartitionError, balanced, spans, stage_seconds
from lockstep.predict.link_model import AlphaBeta

FLOAT_BYTES = 4


@dataclass(frozen=True)
class LayerTime:
    """Seconds of a layer with parameters and of those after it that have none, by images of a micro-batch."""

    parameters: int
    fixed_seconds: float  # forward + backward, of a micro-batch however small
    image_seconds: float  # of each image more
    output_bytes: float  # per image

    def cost(self, images: float) -> LayerCost:
        seconds = self.fixed_seconds + self.image_seconds * images
        return LayerCost("", self.parameters, seconds, round(self.output_bytes * images))


@dataclass(frozen=True)
class Layout:
    """How a step is spread over ranks."""

    replicas: int = 1
    stages: int = 1
    micro_batches: int = 1

    @property
    def ranks(self) -> int:
        return self.replicas * self.stages

    @property
    def kind(self) -> str:
        names = {(False, False): "one device", (True, False): "data", (False, True): "model", (True, True): "hybrid"}
        return names[self.replicas > 1, self.stages > 1]

    def __str__(self) -> str:
        return f"{self.replicas} x {self.stages}, {self.micro_batches} micro-batches"


@dataclass(frozen=True)
class Hardware:
    """The hardware of the ranks: the link between any two, and how many cores they share (inf: each has its own)."""

    link: AlphaBeta
    update_seconds_per_parameter: float = 0.0
    cores: float = math.inf


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of a step."""

    compute_seconds: float
    transfer_seconds: float
    exchange_seconds: float
    update_seconds: float

    @property
    def step_seconds(self) -> float:
        return self.compute_seconds + self.transfer_seconds + self.exchange_seconds + self.update_seconds


def step_cost(layers: Sequence[LayerTime], layout: Layout, batch: int, hardware: Hardware) -> Cost:
    """The cost of a step of `batch` images in all. Raises PartitionError for more stages than layers."""
    costs, cuts = _cut(tuple(layers), layout.stages, batch / (layout.replicas * layout.micro_batches))
    each = stage_seconds(costs, cuts)
    moved = [hardware.link.seconds(1, costs[first - 1].output_bytes) for first in cuts[1:]]
    turn = max(*each, *moved, 0.0)
    largest = max(sum(cost.parameters for cost in costs[first:end]) for first, end in spans(cuts, len(costs)))
    work = layout.replicas * layout.micro_batches * sum(each)
    others = layout.replicas - 1
    sent = 2 * others / layout.replicas * FLOAT_BYTES * largest
    sharing = max(1.0, layout.ranks / hardware.cores)
    return Cost(
        compute_seconds=max(turn * (layout.micro_batches + layout.stages - 1), work / hardware.cores),
        transfer_seconds=2 * sum(moved),
        exchange_seconds=hardware.link.seconds(2 * others, sent) if others else 0.0,
        update_seconds=hardware.update_seconds_per_parameter * largest * sharing,
    )


@functools.lru_cache(maxsize=4096)
def _cut(layers: tuple[LayerTime, ...], stages: int, images: float) -> tuple[list[LayerCost], list[int]]:
    costs = [layer.cost(images) for layer in layers]
    return costs, balanced(costs, stages)


def layouts(ranks: int, batch: int) -> Iterator[Layout]:
    """Every way to spread a step over so many ranks: as many micro-batches as stages, twice as many, and so on, as far
    as the batch can be split."""
    for stages in (count for count in range(1, ranks + 1) if ranks % count == 0):
        micro_batches = stages
        while batch % (ranks // stages * micro_batches) == 0:
            yield Layout(ranks // stages, stages, micro_batches)
            if stages == 1:
                break
            micro_batches *= 2


def map_table(
    layers: Sequence[LayerTime],
    use_case: str,
    hardware: Hardware,
    batch: int,
    counts: Sequence[int],
    rates: Sequence[float],
) -> pd.DataFrame:
    """The best data parallel, model parallel and hybrid way for each number of ranks and link rate (bit/s).

    Columns: use_case, global_batch_size, ranks, link_bits_per_second, kind, replicas, stages, micro_batches,
    predicted_step_seconds, predicted_speedup (over one device, predicted too). Each rank has a core of its own.
    """
    table = []
    for rate in rates:
        there = replace(hardware, link=replace(hardware.link, beta_seconds_per_byte=8 / rate), cores=math.inf)
        alone = step_cost(layers, Layout(), batch, there).step_seconds
        for ranks in counts:
            best: dict[str, tuple[float, Layout]] = {}
            for layout in layouts(ranks, batch):
                try:
                    seconds = step_cost(layers, layout, batch, there).step_seconds
                except PartitionError:  # more stages than layers
                    continue
                best[layout.kind] = min(
                    best.get(layout.kind, (math.inf, layout)), (seconds, layout), key=lambda each: each[0]
                )
            known = {"use_case": use_case, "global_batch_size": batch, "ranks": ranks, "link_bits_per_second": rate}
            for kind, (seconds, layout) in best.items():
                row = known | {"kind": kind, **vars(layout), "predicted_step_seconds": seconds}
                table.append(row | {"predicted_speedup": alone / seconds})
    return pd.DataFrame(table)

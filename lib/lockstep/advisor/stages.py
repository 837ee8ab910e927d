"""Pipelines among the answers: a model whose layers were timed one by one, cut into stages, copied or both.

`lockstep.predict.layout_model` says what a step costs; here its layers are scaled so that all of them together take as
long as the calibrated step, for the sum of layers timed one by one is not quite the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lockstep.advisor.calibration import Calibration
from lockstep.advisor.coefficients import ALONE, LIKE_ALLREDUCE, Coefficients, places
from lockstep.advisor.links import ASSUMED_LATENCY_SECONDS
from lockstep.advisor.memory import MemoryLine, full_state_bytes
from lockstep.engine.pipelines.partition import PartitionError, balanced, spans
from lockstep.predict.layout_model import Cost, Hardware, LayerTime, Layout, layouts, step_cost
from lockstep.predict.link_model import AlphaBeta

MOST_RANKS = 32


def best_pipeline(
    calibration: Calibration, known: Coefficients, workers: int, hosts: int, batch: int, link: AlphaBeta | None
) -> tuple[Layout, Cost] | None:
    """The quickest layout with more than one stage for so many workers, and what a step of `batch` images costs.

    None for a model that can't be cut, for a single worker, and where it has more stages than layers.
    """
    if len(calibration.layers) < 2 or not 1 < workers <= MOST_RANKS:
        return None
    hardware = _hardware(calibration, known, hosts, link)
    layers, best = _scaled(calibration, known), None
    for layout in layouts(workers, batch):
        if layout.stages == 1:
            continue
        try:
            cost = step_cost(layers, layout, batch, hardware)
        except PartitionError:  # more stages than layers with parameters
            continue
        if best is None or cost.step_seconds < best[1].step_seconds:
            best = layout, cost
    return best


def stage_bytes(calibration: Calibration, known: Coefficients, layout: Layout, batch: int) -> float:
    """Bytes of the worker that holds the largest stage, by arithmetic: its share of the state, and of activations those
    of all micro-batches that it has in flight, of a stage's share of the layers."""
    layers, line = _scaled(calibration, known), MemoryLine.of(calibration)
    costs = [layer.cost(batch / (layout.replicas * layout.micro_batches)) for layer in layers]
    cuts = balanced(costs, layout.stages)
    largest = max(sum(cost.parameters for cost in costs[first:end]) for first, end in spans(cuts, len(costs)))
    share = largest / max(1, sum(cost.parameters for cost in costs))
    state, in_flight = full_state_bytes(calibration), min(layout.stages, layout.micro_batches) / layout.micro_batches
    activations = line.image_bytes * batch / layout.replicas * in_flight
    return max(0.0, line.base_bytes - state) + state * share + activations


def _hardware(calibration: Calibration, known: Coefficients, hosts: int, link: AlphaBeta | None) -> Hardware:
    sending = next((team.byte_seconds for (sync, _), team in known.teams.items() if sync == LIKE_ALLREDUCE), 0.0)
    between = AlphaBeta(ASSUMED_LATENCY_SECONDS, sending)
    if hosts > 1 and link is not None:
        between = AlphaBeta(link.alpha_seconds, link.beta_seconds_per_byte + sending)
    per_parameter = known.update_seconds[min(known.update_seconds)] / max(1, calibration.model.parameters)
    return Hardware(between, per_parameter, places(calibration) * hosts)


def _scaled(calibration: Calibration, known: Coefficients) -> Sequence[LayerTime]:
    images = max(cell.per_worker_batch_size for cell in calibration.cells)
    costs = known.costs(ALONE, min(known.alone))
    each = sum(layer.cost(images).seconds for layer in calibration.layers)
    factor = costs.compute_seconds(images) / each if each else 1.0
    return tuple(
        replace(layer, fixed_seconds=layer.fixed_seconds * factor, image_seconds=layer.image_seconds * factor)
        for layer in calibration.layers
    )

"""FLOP of each layer of a network, counted by torch on its `meta` device, where nothing is computed or allocated."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.models import convlstm
from lockstep.engine.models.flop_count import LayerFlops, network_layers
from lockstep.engine.models.layers import SIZE, Network
from lockstep.engine.training.loop import Site, Trace


def count_layers(model: nn.Sequential, channels: int, batch: int = 1) -> list[tuple[str, float, float]]:
    """(kind, forward, backward) FLOP of each layer of a flat network, for images of `channels` x 50 x 50.

    Images need no gradient, so the first layer's backward pass computes only the gradient of its weights.
    """
    found: list[tuple[str, float, float]] = []
    x = torch.zeros(batch, channels, SIZE, SIZE, device="meta")
    for layer in model.to("meta"):
        x = x.detach().requires_grad_(bool(found))
        with FlopCounterMode(display=False) as forward:
            y = layer(x.clone())  # some layers work in place
        with FlopCounterMode(display=False) as backward:
            if y.requires_grad:
                y.sum().backward()
        found.append((type(layer).__name__, float(forward.get_total_flops()), float(backward.get_total_flops())))
        x = y
    return found


def flops_table(network: Network) -> list[dict[str, Any]]:
    """A row per layer of an image's pass: network, name, equation_flops (NaN: the paper has none), computed_flops (by
    hand), counted_flops, counted_backward_flops. A pooling only compares, so it has an equation and a count of 0."""
    counted = [row for row in count_layers(convlstm.build_network(network), network.channels) if row[1]]
    by_hand = network_layers(network)
    computing = [layer.name for layer in by_hand if layer.computed]
    if len(counted) != len(computing):
        raise ValueError(f"{network.kind}: layers {computing} compute, and torch counts {[row[0] for row in counted]}")
    of = dict(zip(computing, counted, strict=True))
    return [_row(network, layer, of.get(layer.name)) for layer in by_hand]


def _row(network: Network, layer: LayerFlops, counted: tuple[str, float, float] | None) -> dict[str, Any]:
    _, forward, backward = counted or ("", 0.0, 0.0)
    row = {"network": network.kind, "name": layer.name, "equation_flops": layer.equation}
    return row | {
        "computed_flops": layer.computed, "counted_flops": forward, "counted_backward_flops": backward
    }  # fmt: skip


def run_flops(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Counts the layers of `job.network`, for grey images and two classes, as the use case Pneumonia has them."""
    del site
    group.enter("compute")
    pooling = "max" if job.pooling == "default" else job.pooling
    table = flops_table(Network("cnn" if job.network == "default" else job.network, 1, 2, pooling))
    total = math.fsum(row["counted_flops"] + row["counted_backward_flops"] for row in table)
    return Trace(group.rank, scores={"flops_per_image": total}, tables={"flops": table})

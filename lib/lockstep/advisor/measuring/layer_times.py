"""Layer times of two batches as the seconds of a layer that do not depend on the batch, and those of each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.predict.layout_model import LayerTime

Rows = Sequence[Mapping[str, float | str]]


def layer_times_of(measured: Sequence[tuple[int, Rows]]) -> tuple[LayerTime, ...]:
    """`measured`: two batches, the smaller one first, and the rows of table `layers` of each (see
    `measure.probes.stages.run_layers`). Layers without parameters join the one before
    them, the first ones the one after them."""
    (small, few), (large, many) = measured
    found: list[LayerTime] = []
    for little, much in zip(few, many, strict=True):
        low, high = _seconds(little), _seconds(much)
        each = max(0.0, (high - low) / (large - small))
        fixed = max(0.0, high - each * large)
        own = LayerTime(int(much["parameters"]), fixed, each, float(much["output_bytes"]) / large)
        joins = found and (not own.parameters or not found[-1].parameters)
        found.append(_joined(found.pop(), own) if joins else own)
    return tuple(found)


def _joined(first: LayerTime, second: LayerTime) -> LayerTime:
    return LayerTime(
        first.parameters + second.parameters,
        first.fixed_seconds + second.fixed_seconds,
        first.image_seconds + second.image_seconds,
        second.output_bytes,
    )


def _seconds(row: Mapping[str, float | str]) -> float:
    return float(row["forward_seconds"]) + float(row["backward_seconds"])

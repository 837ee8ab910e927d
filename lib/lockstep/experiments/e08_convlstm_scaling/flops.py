"""FLOP of a network: the equations (1) to (3) of *ConvLSTM-D-Accel* (section 5), what a layer really computes, Table 4.

    (1) convolution       2 x kernels x kernel size x output shape
    (2) fully connected   2 x input size x output shape
    (3) pooling           image height x image depth x image width

(1) is right for one input channel: with c of them each output value sums c times as many products, and the equation has
no c. There is none for an LSTM. All of them count operations of one image's forward pass: FLOP, not FLOP per second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lockstep.analysis.published import read_table
from lockstep.engine.models.layers import FILTERS, KERNEL, SIZE, Network

EXPERIMENT = "flops"
"""Of the cells that count, and their traced table."""
EXA = 1e18
"""FLOP *per second* of an exascale machine. A count of operations is none, however large."""
FEATURES = 512
"""Of Table 2's flattened layer."""
_NAMES: Mapping[str, str] = {
    "conv": "convolution", "max_pool": "pooling", "average_pool": "pooling", "conv_lstm": "convolutional LSTM",
    "lstm": "LSTM", "dense": "dense",
}  # fmt: skip


def convolution(kernels: float, kernel_size: float, output_shape: float) -> float:
    """Equation (1). 32 kernels of 5 x 5 with 46 x 46 outputs each: 2 x 32 x 25 x 2116 = 3 385 600."""
    return 2 * kernels * kernel_size * output_shape


def fully_connected(input_size: float, output_shape: float) -> float:
    """Equation (2). 512 features to one output: 1024."""
    return 2 * input_size * output_shape


def pooling(height: float, depth: float, width: float) -> float:
    """Equation (3). 32 channels of 46 x 46: 67 712."""
    return height * depth * width


def lstm(positions: float, inputs: float, units: float) -> float:
    """The products of an LSTM: 4 gates with weights for the input, and for the last state, which is zero at first.

    4 positions of 128 into 128 units: 2 x 4 x 128 x (4 x 128 + 3 x 128) = 917 504.
    """
    return 2 * 4 * units * (positions * inputs + (positions - 1) * units)


@dataclass(frozen=True)
class Layer:
    """A layer of Table 2's network: what the paper's equation gives for it (NaN: it has none), and what it computes
    (products and sums of convolutions and matrix products; a pooling compares, which is no FLOP)."""

    name: str
    equation: float
    computed: float


def network_layers(network: Network) -> list[Layer]:
    """The layers of a network that compute, for one image of 50 x 50: convolutions, poolings, LSTMs and dense ones."""
    found: list[Layer] = []
    counts = Counter[str]()
    for layer, before, after in zip(network.layers, network.shapes, network.shapes[1:], strict=False):
        if name := _NAMES.get(layer.kind):
            counts[name] += 1
            found.append(Layer(f"{name} {counts[name]}", *_flops_of(layer.kind, layer.size, before, after)))
    return found


def _flops_of(kind: str, size: int, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[float, float]:
    """(by equation, computed) of a layer of `size` filters or units, from its input's and its output's shape."""
    if kind == "conv":
        by_equation = convolution(size, KERNEL**2, math.prod(after[1:]))
        return by_equation, by_equation * before[0]
    if kind == "conv_lstm":
        frames, channels = before[:2]
        gates = convolution(4 * size, KERNEL**2, math.prod(after[1:]))
        return math.nan, gates * (frames * channels + (frames - 1) * size)
    if kind == "lstm":
        positions, inputs = before
        return math.nan, lstm(positions, inputs, size)
    if kind == "dense":
        by_equation = fully_connected(math.prod(before), size)
        return by_equation, by_equation
    depth, height, width = before
    return pooling(height, depth, width), 0.0


# Table 4

OF_TABLE_2: Mapping[float, str] = {
    float(filters * SIZE**2): f"{filters} x {SIZE} x {SIZE}" for filters in (*FILTERS, FEATURES)
}
"""Numbers of Table 4 that are filters (or features) of Table 2 times all pixels of the input."""


def _read_as(number: float) -> str:
    if number in OF_TABLE_2:
        return OF_TABLE_2[number]
    by_100 = number / 100
    return f"100 x {OF_TABLE_2[by_100]}" if by_100 in OF_TABLE_2 else f"{number:g}"


def table4() -> pd.DataFrame:
    """Table 4 as printed: layer, kernels, kernel_shape (of a dense layer: its inputs), output_shape, flops."""
    return read_table("convlstm-d-accel", "table4")


def recomputed(table: pd.DataFrame) -> pd.DataFrame:
    """Each row of Table 4 beside the equation it names.

    Columns: layer, kernels, kernel_size, outputs, published_flops, product, equation_flops, follows (within half a
    unit of the last printed digit), and what the table's kernels and outputs are (kernels_are, outputs_are).
    """
    rows = []
    for row in table.to_dict("records"):
        dense = str(row["layer"]).lower().startswith("dense")
        kernels, outputs = float(row["kernels"]), float(row["output_shape"])
        size = math.prod(float(side) for side in str(row["kernel_shape"]).split("x"))
        given = fully_connected(size, outputs) if dense else convolution(kernels, size, outputs)
        product = f"2 x {size:.7g} x {outputs:g}" if dense else f"2 x {kernels:.7g} x {size:g} x {outputs:g}"
        rows.append(
            {
                "layer": row["layer"], "kernels": kernels, "kernel_size": size, "outputs": outputs,
                "published_flops": float(row["flops"]), "product": product, "equation_flops": given,
                "follows": math.isclose(given, float(row["flops"]), rel_tol=5e-3),
                "kernels_are": _read_as(size if dense else kernels), "outputs_are": _read_as(outputs),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


PUBLISHED_TOTALS: Mapping[str, tuple[float, int]] = {
    "a single node": (3.2e15, 1), "5 nodes": (1.28256e16, 4), "hundreds and thousands of nodes": (1.28e19, 4000),
}  # fmt: skip
"""Section 5: nodes -> the printed total, and the times the sum of Table 4 that it is."""


def totals(table: pd.DataFrame) -> pd.DataFrame:
    """The totals of section 5 against the sum of Table 4's rows.

    Columns: nodes, published_flops, times_sum (published / sum), as_printed (the factor that gives the printed digits),
    sharing_a_batch (FLOP of the same batch, shared out: the sum, on however many nodes), follows.
    """
    whole = float(recomputed(table)["equation_flops"].sum())
    rows = []
    for nodes, (published, factor) in PUBLISHED_TOTALS.items():
        row: dict[str, Any] = {"nodes": nodes, "published_flops": published, "times_sum": published / whole}
        row |= {"as_printed": factor, "sharing_a_batch": whole}
        rows.append(row | {"follows": math.isclose(published, whole, rel_tol=5e-3)})
    return pd.DataFrame(rows)


def beside_table2(table: pd.DataFrame, channels: int = 1) -> pd.DataFrame:
    """Table 4's rows beside the same layers of Table 2's network: FLOP of an image, and how many times as much.

    Columns: layer, published_flops, table2_equation_flops, table2_computed_flops, times (published / computed).
    """
    own = [layer for layer in network_layers(Network("cnn", channels)) if layer.computed]
    rows = []
    for row, layer in zip(table.to_dict("records"), own, strict=True):
        found = {"layer": layer.name, "published_flops": float(row["flops"]), "table2_equation_flops": layer.equation}
        found |= {"table2_computed_flops": layer.computed, "times": float(row["flops"]) / layer.computed}
        rows.append(found)
    return pd.DataFrame(rows)


def counted_table(counted: pd.DataFrame) -> pd.DataFrame:
    """The traced table `flops` beside what the layers compute by hand, per network and layer, of one image.

    Columns: network, name (of the layer), equation_flops (NaN: the paper has none), computed_flops (by hand),
    counted_flops and counted_backward_flops (torch's counter), equation_over_counted. Rounds count the same, so the
    first one is shown.
    """
    if counted.empty:
        return counted
    own = counted[counted["round"] == counted["round"].min()]
    table = own[["network", "name", "equation_flops", "computed_flops", "counted_flops", "counted_backward_flops"]]
    ratio = table["equation_flops"] / table["counted_flops"].where(table["counted_flops"] > 0)
    return table.assign(equation_over_counted=ratio).reset_index(drop=True)


def exascale(images_per_second: float, flops_per_image: float, cores: int = 1) -> dict[str, float]:
    """What EXA would take with this network at this measured rate: images/s, cores, and the batch that gives each core
    32 images. `flops_per_image`: of a training step."""
    per_core = images_per_second * flops_per_image / cores
    needed = EXA / per_core
    return {
        "measured_flops_per_second": per_core * cores,
        "images_per_second_needed": EXA / flops_per_image,
        "cores_needed": needed,
        "batch_of_32_per_core": 32 * needed,
    }

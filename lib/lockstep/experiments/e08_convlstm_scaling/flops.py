"""The arithmetic of *ConvLSTM-D-Accel*, section 5: Table 4 beside the equations it names and beside Table 2's network.

`lockstep.engine.models.flop_count` has the equations and what each layer really computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.published import read_table
from lockstep.engine.models.flop_count import convolution, fully_connected, network_layers
from lockstep.engine.models.layers import FILTERS, SIZE, Network

EXPERIMENT = "flops"
"""The experiment whose cells count FLOP, and the name of its traced table."""
EXA = 1e18
"""FLOP *per second* of an exascale machine. A count of operations is none, however large."""
FEATURES = 512
"""Of Table 2's flattened layer."""
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

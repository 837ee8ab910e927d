"""What each layer of a model costs, from layers that were timed one by one: notebooks 03 and 04 predict from it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lockstep.engine.pipelines.partition import LayerCost

WITHIN = 0.10
"""A prediction this near to the measured step time is right."""


def layer_costs(layers: pd.DataFrame, use_case: str, size: int) -> list[LayerCost]:
    """The layers of a use case's model for micro-batches of `size` images: medians over all rounds.

    For a size that was not measured, the costs of the nearest one that was. Empty where nothing was measured.
    """
    own = layers[layers["use_case"] == use_case] if len(layers) else layers
    if own.empty:
        return []
    sizes = own["micro_batch_size"].unique()
    own = own[own["micro_batch_size"] == min(sizes, key=lambda each: (abs(np.log(each / size)), each))]
    names = own.groupby("layer")["name"].first()
    medians = own.groupby("layer")[["parameters", "forward_seconds", "backward_seconds", "output_bytes", "saved_bytes"]]
    return [
        LayerCost(
            str(names[layer]),
            int(row["parameters"]),
            float(row["forward_seconds"] + row["backward_seconds"]),
            int(row["output_bytes"]),
            int(row["saved_bytes"]),
            float(row["forward_seconds"]),
            float(row["backward_seconds"]),
        )
        for layer, row in medians.median().iterrows()
    ]

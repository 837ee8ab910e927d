"""Table 3 of *ConvLSTM-D-Accel* and its speedup on five nodes: what they say about each other, and ours beside them.

Published, measured and modelled times are never in one table.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lockstep.analysis.published import read_claims, read_table

PAPER = "convlstm-d-accel"
FIVE_NODES = 5
"""One of them is the parameter server (section 4)."""


def speedup_on_five_nodes() -> float:
    """The abstract's."""
    claims = read_claims()
    return float(claims.loc[claims["id"] == "cla-speedup-5", "value"].iloc[0])


def table3() -> pd.DataFrame:
    """Table 3 as printed: nodes, time_seconds, accuracy_percent."""
    return read_table(PAPER, "table3")


def published_times(table3: pd.DataFrame) -> pd.DataFrame:
    """Table 3 and what its numbers say of each other; one of the nodes is the parameter server (section 4).

    Columns: nodes, published_seconds, published_accuracy (%), published_times (seconds on the fewest nodes / seconds),
    nodes_times and workers_times (how many times as many nodes, and workers, that is), over_ideal (the gain over the
    row before / what its additional workers would give without any exchange: above 1 no link explains it). The paper
    states neither images nor epochs for this table, so there is no rate.
    """
    table = table3.sort_values("nodes")
    first, workers = table.iloc[0], table["nodes"] - 1
    gain = table["time_seconds"].shift() / table["time_seconds"]
    return pd.DataFrame(
        {
            "nodes": table["nodes"].astype(int),
            "published_seconds": table["time_seconds"],
            "published_accuracy": table["accuracy_percent"],
            "published_times": first["time_seconds"] / table["time_seconds"],
            "nodes_times": table["nodes"] / first["nodes"],
            "workers_times": workers / (first["nodes"] - 1),
            "over_ideal": gain / (workers / workers.shift()),
        }
    ).reset_index(drop=True)


def modelled_times(forecast: pd.DataFrame, nodes: Sequence[int], fewest: int) -> pd.DataFrame:
    """From a `forecast_table`: what the model predicts for Table 3's nodes (strong scaling, with a server).

    Columns: network, nodes, modelled_step_seconds, modelled_times (step on the fewest nodes / step).
    """
    if forecast.empty:
        return forecast
    own = forecast[(forecast["scaling"] == "strong") & (forecast["way"] == "parameter server")]
    own = own[own["nodes"].isin(nodes)]
    first = own[own["nodes"] == fewest].set_index("network")["modelled_step_seconds"]
    times = own["network"].map(first) / own["modelled_step_seconds"]
    return own[["network", "nodes", "modelled_step_seconds"]].assign(modelled_times=times).reset_index(drop=True)


def superlinear_table(nodes: int, speedup: float) -> pd.DataFrame:
    """What a published speedup on so many nodes takes, if every node trains and if one of them is the server.

    Columns: trains (what), workers, ideal (their number), published_speedup, per_worker (speedup / workers: how many
    times as fast per image a worker must be as the node alone), saved (share of an image's seconds that must vanish).
    """
    rows = []
    for text, workers in (("all nodes", nodes), ("all but the parameter server", nodes - 1)):
        row = {"trains": text, "workers": workers, "ideal": workers, "published_speedup": speedup}
        rows.append(row | {"per_worker": speedup / workers, "saved": 1 - workers / speedup})
    return pd.DataFrame(rows)

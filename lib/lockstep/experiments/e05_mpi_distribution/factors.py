"""The paper's own tables held against its headline: what one node's strategy gains, and what the cluster does."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lockstep.analysis.published_speedups import printed
from lockstep.analysis.verdicts import USE_CASES

LOCAL_ROWS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "cpu": (("CPU multi-process", "table1"),),
    "cuda": (("GPU single-process", "table1"), ("model", "table2")),
}
"""By device: what trains in one node, and the table that prints it."""


def cluster_table() -> pd.DataFrame:
    """A row per device, strategy of one node and use case: its published speedup, MPI's, and the factor from one to the
    other. A strategy that alone decides the cluster's speedup would leave one factor per device."""
    table = []
    for device, rows in LOCAL_ROWS.items():
        for local, name in rows:
            for use_case in USE_CASES:
                node, cluster = printed(use_case, local, device, name), printed(use_case, "MPI", device, "table3")
                table.append(
                    {"device": device, "one node": local, "use_case": use_case, "node": node, "cluster": cluster,
                     "factor": cluster / node}
                )  # fmt: skip
    return pd.DataFrame(table)

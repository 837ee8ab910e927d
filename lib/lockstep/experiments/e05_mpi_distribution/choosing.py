"""Which cell stands for "MPI" where the paper does not say how its ranks exchange gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.statistics import best_strategy, select
from lockstep.analysis.verdicts import cell

OVER_MPI: Mapping[str, Any] = {
    "launcher": ["engines", "mpiexec"],
    "sync": ["allreduce", "shared_memory", "parameter_server"],
    "compression": ["none"],
    "opt_weight": ["none"],
}
"""Rows whose MPI ranks exchange the gradient in every step, as the paper's Figure 1 has it: synchronous SGD."""


def _exchanging(records: pd.DataFrame, **conditions: Any) -> dict[str, Any]:
    """Conditions of all that fit OVER_MPI in an experiment, with as many workers as were used at most."""
    ours = cell(records, **conditions, **OVER_MPI)
    return ours | {"workers": int(select(records, ours)["workers"].max())}


def fastest(records: pd.DataFrame, **shared: Any) -> tuple[dict[str, Any], str]:
    """Conditions of the fastest that fits OVER_MPI, and a text that says among how many it is the fastest.

    The same rounds choose and judge: the fastest of several looks a little faster than it is, so the text says so.
    """
    ours = _exchanging(records, **shared)
    rows = select(records, ours)
    count = rows.loc[rows["images_per_second"].notna(), "strategy"].nunique()
    ours["strategy"] = best_strategy(records, ours)
    return ours, f"the fastest of {count}: " if count > 1 else ""

"""Which cells stand for "MPI" where the paper does not say how its ranks exchange gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.statistics import each_strategy, select
from lockstep.analysis.verdicts import cell

OVER_MPI: Mapping[str, Any] = {
    "launcher": ["engines", "mpiexec"],
    "sync": ["allreduce", "shared_memory", "parameter_server"],
    "compression": ["none"],
    "opt_weight": ["none"],
}
"""Rows whose MPI ranks exchange the gradient in every step, as the paper's Figure 1 has it: synchronous SGD."""


def over_mpi(records: pd.DataFrame, **conditions: Any) -> list[dict[str, Any]]:
    """Conditions of every strategy that fits OVER_MPI in an experiment, with as many workers as were used at most. Who
    judges the fastest of them pays for the choice (`lockstep.analysis.statistics.highest_ratio`)."""
    ours = cell(records, **conditions, **OVER_MPI)
    return each_strategy(records, ours | {"workers": int(select(records, ours)["workers"].max())})

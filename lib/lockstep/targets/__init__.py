"""What Lockstep sets out to reach, from records paired per round; the bars of our own house, not a paper's."""

from __future__ import annotations

import pandas as pd

from lockstep.targets.distribution import DISTRIBUTION
from lockstep.targets.learning import LEARNING
from lockstep.targets.model_parallel import MODEL_PARALLEL
from lockstep.targets.rules import TOO_FEW, Tables, Target, row
from lockstep.targets.scaling import SCALING
from lockstep.targets.single_node import BASELINES, LOCAL
from lockstep.targets.spark import SPARK

__all__ = ["TARGETS", "TOO_FEW", "Target", "target_table"]

TARGETS: dict[str, tuple[Target, ...]] = {
    "01_single_node_baselines": BASELINES,
    "02_threads_vs_processes": LOCAL,
    "03_pipelined_model_parallelism": MODEL_PARALLEL,
    "05_mpi_distribution": DISTRIBUTION,
    "06_spark_distribution": SPARK,
    "07_convlstm_batch_size": LEARNING,
    "08_convlstm_scaling": SCALING,
}


def target_table(records: pd.DataFrame, notebook: str, tables: Tables | None = None) -> pd.DataFrame:
    """One row per target of a notebook: aim and bar, the measured number with its 95 % interval, and whether the median
    reaches the bar: yes, no, or TOO_FEW.

    A target whose cells were skipped is NOT_MEASURABLE, one whose cells failed or are missing NOT_YET; both say why
    instead of a number. `tables`: the traced tables of the same run, which some targets read. Raises KeyError for a
    notebook without targets.
    """
    return pd.DataFrame([row(target, records, tables or {}) for target in TARGETS[notebook]])

"""Which settings of the pool are trained again, and which of these is chosen: by held-out images alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.statistics import mean_of
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool

FINALISTS = "finalists"
Setting = Mapping[str, Any]


def finalists_of_pool(pool: StoredPool, count: int) -> list[dict[str, Any]]:
    """The settings of the pool with the highest scores, best first."""
    return [pool.setting(number) for number in pool.best(count)]


def score(losses: pd.Series) -> pd.Series:
    """exp(-cross-entropy): the geometric mean of the probability that was given to the right class."""
    return np.exp(-losses)


def of_setting(records: pd.DataFrame, experiment: str, setting: Setting) -> pd.DataFrame:
    """The ok rows of the cells of `experiment` that train this setting."""
    rows = records[(records["experiment"] == experiment) & (records["status"] == "ok")]
    for name, value in setting.items():
        same = rows[name] == value if not isinstance(value, float) else np.isclose(rows[name].astype(float), value)
        rows = rows[same]
    return rows


def finalist_scores(records: pd.DataFrame, setting: Setting) -> Estimate | None:
    """The mean score of a finalist over its seeds; None where none was trained."""
    rows = of_setting(records, FINALISTS, setting)
    return mean_of(score(rows.set_index("seed")["validation_loss"])) if len(rows) else None


def best_of_finalists(records: pd.DataFrame, finalists: Sequence[Setting], seeds: int) -> Setting | None:
    """The finalist with the highest mean score, once each was trained from so many seeds; None before."""
    means = []
    for setting in finalists:
        found = finalist_scores(records, setting)
        if found is None or found.rounds < seeds:
            return None
        means.append(found.value)
    return finalists[int(np.argmax(means))]

"""Which settings of the pool are trained again, which is chosen (by held-out images alone), which studies are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.seeds import diverged
from lockstep.engine.training.scores import DIVERGED
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool

FINALISTS = "finalists"
Setting = Mapping[str, Any]


def finalists_of_pool(pool: StoredPool, count: int, asked: int) -> list[dict[str, Any]]:
    """The settings with the highest scores among the first `asked` of the pool, best first: those that a run adds later
    change neither finalists nor the one that is chosen, so the test images are opened for one network alone."""
    return [pool.setting(number) for number in pool.best(count, asked)]


def score(losses: pd.Series) -> pd.Series:
    """exp(-cross-entropy): the geometric mean of the probability that was given to the right class."""
    return np.exp(-losses)


def of_setting(records: pd.DataFrame, experiment: str, setting: Setting) -> pd.DataFrame:
    """The rows of the cells of `experiment` that train this setting, and were trained or diverged."""
    rows = records[records["experiment"] == experiment]
    rows = rows[(rows["status"] == "ok") | rows["reason"].astype(str).str.startswith(DIVERGED)]
    for name, value in setting.items():
        same = rows[name] == value if not isinstance(value, float) else np.isclose(rows[name].astype(float), value)
        rows = rows[same]
    return rows


def best_of_finalists(records: pd.DataFrame, finalists: Sequence[Setting], seeds: int) -> Setting | None:
    """The finalist with the highest mean score, once each was trained from so many seeds; None before, and where all
    diverged. One that diverged from any seed is out: a mean over the others would hide that."""
    means = []
    for setting in finalists:
        rows = of_setting(records, FINALISTS, setting)
        if rows["seed"].nunique() < seeds:
            return None
        means.append(float(score(rows["validation_loss"]).mean()) if not diverged(rows) else -np.inf)
    return finalists[int(np.argmax(means))] if means and np.isfinite(max(means)) else None


def shown_studies(replays: pd.DataFrame) -> pd.DataFrame:
    """The rows of the longest studies that an interval can be given of; of the longest of all where none can."""
    enough = replays[replays["effective"] >= MIN_ROUNDS]
    longest = (replays if enough.empty else enough)["trials"].max()
    return replays[replays["trials"] == longest]

"""What tests of notebook 02's verdicts share: a claim, its judge, and records that were changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fake_records import records
from lockstep.analysis import judging
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import Verdict
from lockstep.experiments.e02_threads_vs_processes import EXPERIMENT

WORKER_GAIN = ["images_per_second", "peak_pss_bytes"]


def claim(verdict: str, **changes: Any) -> dict[str, Any]:
    return {"id": "x", "use_case": "both", "value": float("nan"), "unit": "", "notebook": EXPERIMENT.name,
            "note": "why", "statement": "", "verdict": verdict, **changes}  # fmt: skip


def judge(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judging.judge(row, Stored(frame, {} if traces is None else {"resources": traces}), EXPERIMENT.verdicts)


def faster(strategy: str, factor: float, **where: Any) -> pd.DataFrame:
    """Records in which a strategy's images/s and peak PSS are multiplied."""
    frame = records()
    hit = frame["strategy"] == strategy
    for name, value in where.items():
        hit &= frame[name] == value
    assert hit.any()
    frame.loc[hit, WORKER_GAIN] *= factor
    return frame


def noisy(deviation: float) -> pd.DataFrame:
    """Records in which every cell varies by so much, each by itself."""
    frame, rng = records(), np.random.default_rng(5)
    for name in WORKER_GAIN:
        frame[name] *= np.exp(deviation * rng.standard_normal(len(frame)))
    return frame

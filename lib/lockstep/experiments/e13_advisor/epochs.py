"""From how long an epoch on a second worker pays: what the advisor says of notebook 13's models, beside what it saw."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from lockstep.advisor.steps import Predictor
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.statistics import AnalysisError, Estimate, interval_of, per_round
from lockstep.analysis.stored import Stored
from lockstep.engine.units import took
from lockstep.experiments.e13_advisor.checking import advisors
from lockstep.experiments.e13_advisor.grid import CALIBRATION, HELD_OUT
from lockstep.experiments.e13_advisor.tables import model_name

SYNC = "shared_memory"
"""Two processes with one copy of the parameters, which `lockstep.train` uses unless told otherwise."""
EPOCHS = (1, 10)
"""Of the training whose start is to be paid back."""


def paying_seconds(start_seconds: float, gain: float, epochs: int) -> float:
    """Seconds of one worker's epoch from which on workers pay that train `gain` times as fast: with e epochs of t
    seconds they save e t (1 - 1 / gain), and lose the seconds of their start. Infinite where they gain nothing."""
    return start_seconds / (epochs * (1 - 1 / gain)) if gain > 1 else math.inf


def epochs_table(stored: Stored) -> pd.DataFrame:
    """A row per calibrated model, as text: what two workers gain over one with the same global batch (twice the batch
    that one was calibrated with), as predicted and as measured, and from which seconds of an epoch on they pay: by what
    was measured, where that has an interval, else by the prediction. Empty before anything is stored."""
    return pd.DataFrame([_row(stored, name) for name in sorted(advisors(stored))])


def _row(stored: Stored, name: str) -> dict[str, str]:
    calibration = advisors(stored)[name].calibration
    share = max(cell.per_worker_batch_size for cell in calibration.cells if cell.workers == 1)
    predictor = Predictor(calibration)
    two = predictor.step_seconds(SYNC, 2, 1, share)
    span = predictor.step_seconds("local", 1, 1, 2 * share).over(two)
    predicted = (span.middle, span.low, span.high)
    measured = _measured(on_one_processor(stored)[0], name, share)
    row = {"model": model_name(name), "global batch": str(2 * share)}
    row |= {"predicted gain": "{:.2f} [{:.2f}, {:.2f}]".format(*predicted)}
    row |= {"measured gain": "not measured" if measured is None else str(measured)}
    row |= {"start": took(calibration.start_seconds)}
    middle, low, high = predicted if measured is None or measured.open else measured.columns
    for epochs in EPOCHS:
        ends = [_text(paying_seconds(calibration.start_seconds, gain, epochs)) for gain in (middle, high, low)]
        row[f"pays from, {epochs} epoch{'s' * (epochs > 1)}"] = "{} [{}, {}]".format(*ends)
    return row


def _measured(records: pd.DataFrame, name: str, share: int) -> Estimate | None:
    """What two workers gained in the rounds that hold both."""
    common: dict[str, Any] = {"use_case": name, "hosts": 1, "threads_per_worker": 1, "variant": "a"}
    common |= {"global_batch_size": 2 * share}
    one = {"experiment": HELD_OUT, "strategy": "sequential", "workers": 1}
    two = {"experiment": CALIBRATION, "strategy": "processes", "sync": SYNC, "workers": 2}
    try:
        alone, both = (per_round(records, common | each, "step_seconds") for each in (one, two))
        return interval_of((alone / both).dropna())
    except AnalysisError:
        return None


def _text(seconds: float) -> str:
    return took(seconds) if math.isfinite(seconds) else "never"

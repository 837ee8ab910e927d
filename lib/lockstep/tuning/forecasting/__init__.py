"""How unfinished learning curves will end: `lockstep.tuning.forecasting.base` says how to ask.

A new kind is a class beside these and a line in `FORECASTERS`. No file here imports torch before the LSTM is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.engine.options import JobError
from lockstep.tuning.forecasting.base import CurveForecast, Forecaster, chances_above
from lockstep.tuning.forecasting.lstm import CurveLstm, LstmNotPretrained, LstmNotRecalibrated, LstmRefitted
from lockstep.tuning.forecasting.pretraining import PriorSettings, pretrained
from lockstep.tuning.forecasting.recalibration import Recalibration, in_units
from lockstep.tuning.forecasting.simple import BestSoFar, Gain, LastScore, PowerLaw

FORECASTERS: Mapping[str, type[Forecaster]] = {
    kind.name: kind
    for kind in (
        LastScore, BestSoFar, Gain, PowerLaw, CurveLstm, LstmNotPretrained, LstmNotRecalibrated, LstmRefitted
    )
}  # fmt: skip
"""By name: each makes a forecaster that has seen no curve of the study."""


def make_forecaster(name: str) -> Forecaster:
    """Raises JobError, with the names that exist, for another one."""
    if name not in FORECASTERS:
        raise JobError(f"forecaster={name!r} does not exist; there are: {', '.join(FORECASTERS)}")
    return FORECASTERS[name]()


__all__ = [
    "FORECASTERS",
    "CurveForecast",
    "Forecaster",
    "PriorSettings",
    "Recalibration",
    "chances_above",
    "in_units",
    "make_forecaster",
    "pretrained",
]

"""What the pruners that forecast share: the forecaster of a study, the spared trials, and the record of decisions.

Several processes may hold a pruner of the same study at once. All that counts lies in the study's storage. What an
object here keeps beside it is built again from there: a forecaster is recalibrated on the finished trials, in the order
of their numbers and with the study's seed, so that every process reaches the same one.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from optuna.study import Study
from optuna.trial import FrozenTrial

from lockstep.engine.options import at_least
from lockstep.tuning.reported import Array, FinishedTrials, complete_trials

DECISION = "lockstep:decision:"
"""A system attribute of a trial: this and the epoch. Its value is a `PruningDecision` as a mapping."""
_RETRIED = "failed_trial"  # Optuna's attribute of a trial that is tried again: the number of the first one
_LARGEST_HASH = 2.0**64


class Forecasted(Protocol):
    """A forecast of one value, as `lockstep.tuning.forecasting.CurveForecast`."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    def chance_above(self, level: float) -> float: ...


class Forecasts(Protocol):
    """What forecasts learning curves, as `lockstep.tuning.forecasting.Forecaster`."""

    def fit(self, sequences: Sequence[Array], seed: int) -> None: ...
    def predict(self, prefix: Array, horizon: int) -> Forecasted: ...


@dataclass(frozen=True)
class PruningDecision:
    """What a pruner that forecasts decided after an epoch, and on what. All numbers are scores in 0..1.

    `epochs_read` is below `epoch` where the curve was cut at a NaN. `mean`, `low` and `high` forecast the score after
    the study's last epoch, with a 90 % interval. `incumbent` is what the forecast was held against: the best finished
    trial, in successive halving the last forecast that is promoted. `chance`: that the trial ends above it. `spared`:
    the trial belongs to those that are never pruned. JSON knows no NaN: a number that is not finite is None.
    """

    epoch: int
    epochs_read: int
    mean: float | None
    low: float | None
    high: float | None
    incumbent: float | None
    chance: float | None
    pruned: bool
    spared: bool

    @classmethod
    def of(
        cls, epoch: int, read: int, found: Forecasted, incumbent: float, chance: float, pruned: bool, spared: bool
    ) -> PruningDecision:
        """The record of a forecast from `read` epochs, without NaN."""
        numbers = (found.mean, found.low, found.high, incumbent, chance)
        mean, low, high, against, likely = (float(value) if math.isfinite(value) else None for value in numbers)
        return cls(epoch, read, mean, low, high, against, likely, pruned, spared)

    def write(self, study: Study, trial: FrozenTrial) -> None:
        """Stores it with the trial."""
        study._storage.set_trial_system_attr(trial._trial_id, f"{DECISION}{self.epoch}", {**vars(self)})


def decisions_of(trial: FrozenTrial) -> list[PruningDecision]:
    """All decisions that are stored with a trial, by epoch."""
    stored = (value for key, value in trial.system_attrs.items() if key.startswith(DECISION))
    return sorted((PruningDecision(**value) for value in stored), key=lambda decision: decision.epoch)


def is_spared(trial: FrozenTrial, share: float, seed: int) -> bool:
    """Whether a trial is one of the `share` that is never pruned, so that forecasts can be checked: a function of seed
    and number alone, of a trial that is tried again its first number."""
    if not share:
        return False
    number = trial.system_attrs.get(_RETRIED, trial.number)
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / _LARGEST_HASH < share


class StudyForecasts:
    """Forecasts of how the trials of one study end, recalibrated whenever more trials have finished.

    `forecaster` is an object, or the name of one (`lockstep.tuning.forecasting.FORECASTERS`), which is made at the
    first forecast. Raises JobError for a name that does not exist, and for `epochs` below 1.
    """

    def __init__(self, epochs: int, forecaster: str | Forecasts, seed: int) -> None:
        at_least("epochs", epochs, 1)
        self.epochs, self._seed = epochs, seed
        self._forecaster = make(forecaster) if isinstance(forecaster, str) else forecaster
        self._fitted: tuple[Any, ...] | None = None
        self._finished = FinishedTrials((), (), math.nan)
        self._known: dict[tuple[int, int], Forecasted] = {}
        self._lock = threading.Lock()  # `optimize(n_jobs=2)` asks one pruner from two threads

    def finished(self, study: Study) -> FinishedTrials:
        """The finished trials, on which the forecasts that follow are calibrated."""
        with self._lock:
            trials = complete_trials(study)
            state = (study.study_name, study._study_id, *(trial._trial_id for trial in trials))
            if state != self._fitted:
                self._finished = FinishedTrials.of(trials, study.direction)
                self._forecaster.fit(self._finished.curves, self._seed)
                self._known.clear()
                self._fitted = state
            return self._finished

    def end_of(self, trial: FrozenTrial, curve: Array) -> Forecasted:
        """The forecast of a trial's score after the last epoch, from a prefix of its curve, [epochs] >= 1."""
        with self._lock:
            known = self._known.get((trial._trial_id, len(curve)))
            if known is None:
                known = self._forecaster.predict(curve, max(self.epochs - len(curve), 0))
                self._known[trial._trial_id, len(curve)] = known
            return known


def make(forecaster: str) -> Forecasts:
    """The forecaster of a name. Raises JobError with the names that exist."""
    from lockstep.tuning.forecasting import make_forecaster  # which may load torch

    return make_forecaster(forecaster)

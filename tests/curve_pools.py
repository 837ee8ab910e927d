"""Learning curves, forecasters and studies made up for tests of pruners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from lockstep.tuning.pool import CurvePool

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Between:
    """A forecast that is spread evenly over low to high, so that chances can be computed by hand."""

    low: float
    high: float

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def chance_above(self, level: float) -> float:
        return float(np.clip((self.high - level) / (self.high - self.low), 0, 1))


class LastPlus:
    """Forecasts the last score plus `gain`, give or take 0.1, and keeps what it was fitted on."""

    def __init__(self, gain: float = 0.0) -> None:
        self.gain = gain
        self.fits: list[tuple[list[list[float]], int]] = []

    def fit(self, sequences: Sequence[NDArray[np.float64]], seed: int) -> None:
        self.fits.append(([list(curve) for curve in sequences], seed))

    def predict(self, prefix: NDArray[np.float64], horizon: int) -> Between:
        middle = float(prefix[-1]) + self.gain
        return Between(middle - 0.1, middle + 0.1)


class MeanGain(LastPlus):
    """Forecasts the last score plus what finished curves gained from there on: it changes with each fit."""

    def predict(self, prefix: NDArray[np.float64], horizon: int) -> Between:
        gains = [curve[-1] - curve[len(prefix) - 1] for curve in self.fits[-1][0] if len(curve) >= len(prefix)]
        middle = float(prefix[-1]) + float(np.mean(gains or [0.0]))
        return Between(middle - 0.1, middle + 0.1)


def ended(curve: Sequence[float], state: TrialState = TrialState.COMPLETE, **system: Any) -> FrozenTrial:
    """A trial that has reported a curve after epochs 1, 2, ... and ended."""
    value = curve[-1] if state == TrialState.COMPLETE else None
    steps = dict(enumerate(curve, start=1))
    return create_trial(state=state, value=value, intermediate_values=steps, system_attrs=system)


def study_of(
    curves: Sequence[Sequence[float]], pruner: BasePruner, direction: str = "maximize", storage: Any = None
) -> optuna.Study:
    """A study in which these curves have finished."""
    study = optuna.create_study(direction=direction, pruner=pruner, storage=storage, study_name="made up")
    study.add_trials([ended(curve) for curve in curves])
    return study


def reporting(study: optuna.Study, curve: Sequence[float]) -> tuple[Trial, list[bool]]:
    """A new trial that reports a curve, and what the pruner said after each epoch; it is not stopped."""
    trial, said = study.ask(), []
    for epoch, value in enumerate(curve, start=1):
        trial.report(value, epoch)
        said.append(trial.should_prune())
    return trial, said


def stored(study: optuna.Study, trial: Trial) -> FrozenTrial:
    """A trial as the storage holds it."""
    return study.get_trials(deepcopy=False)[trial.number]


def saturating(settings: int, epochs: int, seed: int = 0) -> CurvePool:
    """A pool of noisy saturating curves whose ranks change with the epochs, on 100 images."""
    random = np.random.default_rng(seed)
    end, speed = random.uniform(0.5, 0.95, (settings, 1)), random.uniform(0.1, 1.5, (settings, 1))
    curves = end * (1 - np.exp(-speed * np.arange(1, epochs + 1))) + random.normal(0, 0.01, (settings, epochs))
    return CurvePool(np.clip(curves, 0, 1), random.uniform(1, 3, settings), images=100)


class PlainStudy:
    """What `lockstep.tuning.lean.LeanStudy` does, with Optuna's public calls and nothing else."""

    def __init__(self, pruner: BasePruner, name: str) -> None:
        self.study = optuna.create_study(pruner=pruner, study_name=name, direction="maximize")
        self._trials: list[Trial] = []

    def begin(self) -> int:
        self._trials.append(self.study.ask())
        return self._trials[-1].number

    def reported(self, number: int, epoch: int, value: float) -> bool:
        self._trials[number].report(value, epoch)
        return self._trials[number].should_prune()

    def finished(self, number: int, epoch: int, value: float) -> None:
        self._trials[number].report(value, epoch)
        self.study.tell(self._trials[number], value)

    def stopped(self, number: int, state: TrialState) -> None:
        self.study.tell(self._trials[number], state=state)

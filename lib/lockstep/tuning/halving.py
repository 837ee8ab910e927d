"""Successive halving that ranks trials by the forecast of their end in place of their last value.

With reduction factor 4, first rung after 1 epoch, in a study of 20 epochs:

    epochs        1            4                  16              20
    trial A   ----+------------+------------------+----------------> finished
    trial B   ----+------------| B's forecast is not among the best quarter of those that reached this rung
    trial C   ----|            :
    trial D   ----+------------+------------------|
                rung 0       rung 1             rung 2          no rung: what has got here is finished

    at a rung:  curve so far -> forecast of the score after epoch 20 -> is it among the best 1/4 of the forecasts
                of all trials that have reached this rung, each from its curve up to here?   no -> stop

It is asynchronous, as Optuna's SuccessiveHalvingPruner and Li et al. ("A system for massively parallel hyperparameter
tuning", MLSys 2020, Algorithm 2): a trial is ranked among those that have reached the rung by then, and waits for none.
That a trial has reached a rung stands in its system attributes, so any number of processes may rank at once. All
forecasts of a rung are made by one forecaster, calibrated on the trials finished by then: a forecast that was made
earlier, with another calibration, would not rank beside the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lockstep.engine.options import option, options_of
from lockstep.tuning.asking import Forecasted, Forecasts, PruningDecision, StudyForecasts, is_spared
from lockstep.tuning.reported import Array, checked_epoch, curve_of

RUNG = "lockstep:rung:"
"""A system attribute of a trial: this and the rung's number. Its value is the forecast with which the trial got there,
a score in 0..1."""


@dataclass(frozen=True)
class HalvingRule:
    """The rule of `ForecastHalving`; its forecaster is named apart."""

    factor: int = option(4, "of the trials that reach a rung, one in so many goes on", least=2)
    least_epochs: int = option(1, "finished epochs at the first rung; the next has `factor` times as many", least=1)
    never_pruned: float = option(0.05, "share of the trials that never stop, to check forecasts by", least=0, most=1)

    def __post_init__(self) -> None:
        for name, rule in options_of(type(self)).items():
            rule.check(getattr(self, name))


@dataclass(frozen=True)
class ForecastHalvingOptions(HalvingRule):
    forecaster: str = option("lstm", "what forecasts the curve's end: a name of lockstep.tuning.forecasting")


class ForecastHalving(BasePruner):
    """Stops a trial at a rung unless its forecast is among the best `1 / factor` there; see the module.

    Arguments, direction, cut curves and errors are as those of `lockstep.tuning.pruner.LSTMPruner`, and decisions are
    stored as its are, one per rung: `incumbent` is the lowest forecast that is promoted.
    """

    def __init__(
        self,
        epochs: int,
        factor: int = 4,
        least_epochs: int = 1,
        never_pruned: float = 0.05,
        forecaster: str | Forecasts = "lstm",
        seed: int = 0,
    ) -> None:
        self.options = HalvingRule(factor, least_epochs, never_pruned)
        self.epochs, self.seed = epochs, seed
        self._forecasts = StudyForecasts(epochs, forecaster, seed)
        self._prefixes: dict[tuple[str, int, int], Array] = {}  # what was reported stays as it is

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial should stop after the last epoch that it reported."""
        epoch = checked_epoch(trial, self.epochs)
        if epoch == self.epochs:
            return False
        return any(self._stops(study, trial, epoch, rung, at) for rung, at in self._due(trial, epoch))

    def _due(self, trial: FrozenTrial, epoch: int) -> Iterator[tuple[int, int]]:
        """The rungs that the trial has reached and was not ranked at, and after how many epochs each lies. It is one at
        most, unless epochs were reported without asking."""
        rung, at = 0, self.options.least_epochs
        while at <= epoch:
            if f"{RUNG}{rung}" not in trial.system_attrs:
                yield rung, at
            rung, at = rung + 1, at * self.options.factor

    def _stops(self, study: Study, trial: FrozenTrial, epoch: int, rung: int, at: int) -> bool:
        curve = self._up_to(study, trial, at)
        if not len(curve):
            return False
        self._forecasts.finished(study)
        found = self._forecasts.end_of(trial, curve)
        others = self._others(study, trial, rung, at)
        study._storage.set_trial_system_attr(trial._trial_id, f"{RUNG}{rung}", float(found.mean))
        ranked = sorted([*(other.mean for other in others), found.mean], reverse=True)
        least = ranked[max(len(ranked) // self.options.factor, 1) - 1]
        spared = is_spared(trial, self.options.never_pruned, self.seed)
        pruned = found.mean < least and not spared
        chance = float(found.chance_above(least))
        PruningDecision.of(epoch, len(curve), found, least, chance, pruned, spared).write(study, trial)
        return pruned

    def _others(self, study: Study, trial: FrozenTrial, rung: int, at: int) -> list[Forecasted]:
        """The forecasts of the other trials that have reached a rung, from their curves up to there. Failed trials do
        not compete: one that is tried again has the marks of the first try, and would rank twice."""
        mark = f"{RUNG}{rung}"
        reached = (
            other
            for other in study.get_trials(deepcopy=False)
            if mark in other.system_attrs and other._trial_id != trial._trial_id and other.state != TrialState.FAIL
        )
        curves = ((other, self._up_to(study, other, at)) for other in reached)
        return [self._forecasts.end_of(other, curve) for other, curve in curves if len(curve)]

    def _up_to(self, study: Study, trial: FrozenTrial, at: int) -> Array:
        place = (study.study_name, trial._trial_id, at)
        if place not in self._prefixes:
            self._prefixes[place] = curve_of(trial, study.direction)[:at]
        return self._prefixes[place]

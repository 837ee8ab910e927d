"""A pruner that forecasts how a trial's learning curve ends, and stops the trial where it will hardly be the best.

    reported epochs -> forecaster, calibrated on this study's finished trials -> the score after the last epoch
                                                                                 as a mean and a spread
    chance(that score > the best finished trial's) < p  ->  stop

It is the rule of Domhan, Springenberg and Hutter ("Speeding up automatic hyperparameter optimization of deep neural
networks by extrapolation of learning curves", IJCAI 2015, section 4) with another forecaster. After its last epoch a
trial is finished: nothing is left to save, so this pruner keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from lockstep.engine.options import option, options_of
from lockstep.tuning.asking import Forecasts, PruningDecision, StudyForecasts, is_spared
from lockstep.tuning.reported import checked_epoch, curve_of


@dataclass(frozen=True)
class GainOptions:
    """The rule of `LSTMPruner`; its forecaster is named apart."""

    p: float = option(0.1, "a trial stops if its chance to beat the best finished one is lower", above=0, most=1)
    least_epochs: int = option(2, "finished epochs of a trial before it may stop", least=1)
    startup: int = option(4, "finished trials of the study before any may stop", least=1)
    never_pruned: float = option(0.05, "share of the trials that never stop, to check forecasts by", least=0, most=1)

    def __post_init__(self) -> None:
        for name, rule in options_of(type(self)).items():
            rule.check(getattr(self, name))


@dataclass(frozen=True)
class LSTMOptions(GainOptions):
    forecaster: str = option("lstm", "what forecasts the curve's end: a name of lockstep.tuning.forecasting")


class LSTMPruner(BasePruner):
    """Stops a trial whose chance to end above the best finished one is below `p`.

    epochs: how many a trial of this study trains if nothing stops it. The other options are those of `LSTMOptions`;
    `forecaster` may also be an object with `fit` and `predict`. `seed` decides which trials are never pruned and goes
    to the forecaster's `fit`.

    Trials report a score in 0..1 after epochs 1, 2, ... (`lockstep.tuning.reported` says how a study that minimizes is
    read). A curve is read up to its first NaN or infinity. The forecaster is calibrated anew when the set of finished
    trials has grown, on those alone. Each decision is stored with its trial (`lockstep.tuning.asking.decisions_of`).
    Any number of processes may hold such a pruner for one study.

    Raises JobError for an option out of its bounds and for a forecaster that does not exist; `prune` raises it for
    steps that are no epochs, and values that are no scores.
    """

    def __init__(
        self,
        epochs: int,
        p: float = 0.1,
        least_epochs: int = 2,
        startup: int = 4,
        never_pruned: float = 0.05,
        forecaster: str | Forecasts = "lstm",
        seed: int = 0,
    ) -> None:
        self.options = GainOptions(p, least_epochs, startup, never_pruned)
        self.epochs, self.seed = epochs, seed
        self._forecasts = StudyForecasts(epochs, forecaster, seed)

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial should stop after the last epoch that it reported."""
        epoch, rule = checked_epoch(trial, self.epochs), self.options
        if not rule.least_epochs <= epoch < self.epochs:
            return False
        finished = self._forecasts.finished(study)
        if len(finished.numbers) < rule.startup:
            return False
        curve = curve_of(trial, study.direction)
        if not len(curve):
            return False
        found = self._forecasts.end_of(trial, curve)
        chance = float(found.chance_above(finished.incumbent))
        spared = is_spared(trial, rule.never_pruned, self.seed)
        pruned = chance < rule.p and not spared
        PruningDecision.of(epoch, len(curve), found, finished.incumbent, chance, pruned, spared).write(study, trial)
        return pruned

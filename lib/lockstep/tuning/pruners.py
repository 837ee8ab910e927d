"""The pruners of a study by their texts: `none`, `median:startup=5`, `halving:factor=2`, `lstm:p=0.05`.

Optuna's own pruners are Optuna's own objects. Those that forecast learning curves are `LSTMPruner`, by the name `gain`
with a rule in place of the network, and `ForecastHalving`. A new one is a dataclass of options and a line in `PRUNERS`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, PatientPruner, PercentilePruner
from optuna.pruners import SuccessiveHalvingPruner as Halving

from lockstep.engine.option_text import NoOptions, named_text, parse_named
from lockstep.engine.options import JobError, at_least, option
from lockstep.tuning.asking import Forecasts
from lockstep.tuning.halving import ForecastHalving, ForecastHalvingOptions
from lockstep.tuning.pruner import GainOptions, LSTMOptions, LSTMPruner


@dataclass(frozen=True)
class MedianOptions:
    startup: int = option(5, "finished trials of the study before any may stop", least=0)
    warmup: int = option(0, "epochs of a trial before it may stop; it is first asked after this one", least=0)


@dataclass(frozen=True)
class PercentileOptions(MedianOptions):
    percentile: float = option(25.0, "trials whose best value is not among so many per cent stop", least=0, most=100)


@dataclass(frozen=True)
class PatientOptions(MedianOptions):
    patience: int = option(2, "epochs without improvement before Median is asked", least=0)
    delta: float = option(0.0, "what counts as no improvement", least=0)


@dataclass(frozen=True)
class HalvingOptions:
    factor: int = option(4, "of the trials that reach a rung, one in so many goes on", least=2)
    least_epochs: int = option(1, "finished epochs at the first rung", least=1)


@dataclass(frozen=True)
class HyperbandOptions:
    factor: int = option(3, "of the trials that reach a rung, one in so many goes on", least=2)
    least_epochs: int = option(1, "finished epochs at the first rung of the first bracket", least=1)


@dataclass(frozen=True)
class _Asked:
    """What a pruner is made from: its options, the epochs of a trial, the study's seed, and a forecaster at hand."""

    options: Any
    epochs: int
    seed: int
    forecaster: Forecasts | None


@dataclass(frozen=True)
class PrunerKind:
    """A pruner by name: its options and what makes it. `forecaster` is the name of the one that its options do not
    name; empty for a pruner without one."""

    options: type[Any]
    make: Callable[[_Asked], BasePruner]
    title: str
    forecaster: str = ""

    def forecaster_of(self, options: Any) -> str:
        """The name of the forecaster that it asks, empty for none."""
        return str(getattr(options, "forecaster", self.forecaster))


@dataclass(frozen=True)
class Refusal:
    """A pruner that there is and that can't be compared. `status`: not applicable | skipped."""

    status: str
    because: str


def _median(asked: _Asked) -> BasePruner:
    return MedianPruner(n_startup_trials=asked.options.startup, n_warmup_steps=asked.options.warmup)


def _percentile(asked: _Asked) -> BasePruner:
    found = asked.options
    return PercentilePruner(found.percentile, n_startup_trials=found.startup, n_warmup_steps=found.warmup)


def _patient(asked: _Asked) -> BasePruner:
    with warnings.catch_warnings():  # Optuna calls it experimental since 2.8
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return PatientPruner(_median(asked), patience=asked.options.patience, min_delta=asked.options.delta)


def _halving(asked: _Asked) -> BasePruner:
    return Halving(min_resource=asked.options.least_epochs, reduction_factor=asked.options.factor)


def _hyperband(asked: _Asked) -> BasePruner:
    found = asked.options
    if found.least_epochs > asked.epochs:
        raise JobError(
            f"least_epochs={found.least_epochs} is more than the study's epochs={asked.epochs}; "
            "give fewer, or train longer"
        )
    return HyperbandPruner(min_resource=found.least_epochs, max_resource=asked.epochs, reduction_factor=found.factor)


def _forecasting(rule: type[LSTMPruner] | type[ForecastHalving], name: str = "") -> Callable[[_Asked], BasePruner]:
    def make(asked: _Asked) -> BasePruner:
        given = asdict(asked.options)
        named = given.pop("forecaster", name)
        return rule(asked.epochs, **given, forecaster=asked.forecaster or named, seed=asked.seed)

    return make


PRUNERS: Mapping[str, PrunerKind] = {
    "none": PrunerKind(NoOptions, lambda asked: NopPruner(), "none"),
    "median": PrunerKind(MedianOptions, _median, "median"),
    "percentile": PrunerKind(PercentileOptions, _percentile, "percentile"),
    "halving": PrunerKind(HalvingOptions, _halving, "successive halving"),
    "hyperband": PrunerKind(HyperbandOptions, _hyperband, "Hyperband"),
    "patient": PrunerKind(PatientOptions, _patient, "patient (median)"),
    "lstm": PrunerKind(LSTMOptions, _forecasting(LSTMPruner), "LSTM forecast"),
    "gain": PrunerKind(GainOptions, _forecasting(LSTMPruner, "gain"), "gain rule, no network", forecaster="gain"),
    "forecast_halving": PrunerKind(ForecastHalvingOptions, _forecasting(ForecastHalving), "halving on forecasts"),
}
"""By the name in an option's text."""

REFUSED: Mapping[str, Refusal] = {
    "wilcoxon": Refusal(
        "not applicable",
        "its steps are not epochs: it compares two settings on the same repeated problems, such as the folds of a "
        "cross-validation, while the epochs of one training are one curve",
    ),
    "lcpfn": Refusal(
        "skipped",
        "it can't be installed beside torch 2.13: lcpfn 0.1.3, the last release, asks for torch <= 1.11.0 and "
        "numpy < 2, and downloads its weights at first use",
    ),
}
"""Pruners that are asked for and can't be compared, by name: a row of the tables without numbers."""


def parse_pruner(text: str) -> tuple[str, Any]:
    """The name and the options that a text stands for. Raises JobError for a text that names no pruner, for one of
    `REFUSED` with its reason, and for options or values that it does not have."""
    name = text.partition(":")[0].strip()
    if name in REFUSED:
        raise JobError(f"pruner={text!r}: {REFUSED[name].status}, because {REFUSED[name].because}")
    return parse_named(text, {known: kind.options for known, kind in PRUNERS.items()}, "pruner")


def pruner_text(text: str) -> str:
    """The canonical text of a pruner: options in their order, defaults left out."""
    return named_text(*parse_pruner(text))


def make_pruner(text: str, epochs: int, seed: int, forecaster: Forecasts | None = None) -> BasePruner:
    """The pruner that a text stands for, for trials of `epochs` epochs that report after epochs 1, 2, ...

    `forecaster` is taken in place of the one that the text names, to share one over many studies in turn. Raises
    JobError as `parse_pruner` does, and for a forecaster that does not exist.
    """
    at_least("epochs", epochs, 1)
    name, options = parse_pruner(text)
    try:
        return PRUNERS[name].make(_Asked(options, epochs, seed, forecaster))
    except JobError as error:
        raise JobError(f"pruner={text!r}: {error}") from None

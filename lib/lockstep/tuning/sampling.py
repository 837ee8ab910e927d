"""Samplers by name, and the seeds of a trial: functions of the study's seed and the trial's number alone."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np

from lockstep.engine.options import JobError
from lockstep.tuning.needed import the_optuna

_OF_TRAINING, _OF_SAMPLER = 0, 1


def training_seed(study_seed: int, number: int) -> int:
    """Of data order, augmentation, dropout and initial weights."""
    return _seed(study_seed, number, _OF_TRAINING)


def make_sampler(name: str, study_seed: int, number: int) -> Any:
    """Optuna's sampler for trial `number`. Each trial has one of its own: what it draws follows from both numbers and,
    but for `random`, from the trials that are finished or running then. Raises JobError where CMA-ES is not installed.
    """
    optuna = the_optuna()
    seed = _seed(study_seed, number, _OF_SAMPLER)
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    if importlib.util.find_spec("cmaes") is None:
        raise JobError("sampler='cmaes' needs the package cmaes, which is not installed: pip install cmaes")
    with warnings.catch_warnings(action="ignore"):
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0]) & 0x7FFFFFFF

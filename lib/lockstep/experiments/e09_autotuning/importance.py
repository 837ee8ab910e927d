"""Which entries of the space explain the scores of a pool: PED-ANOVA, over subsamples of its trials.

Watanabe, Bansal, Hutter 2023, "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary subspaces",
as Optuna has it. It looks at what the best quarter of the trials chose, entry by entry, and so sees no interaction.
Entries with a condition are in some trials only, and left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna

from lockstep.experiments.e09_autotuning.stored_pool import StoredPool, read_space
from lockstep.records.places import repository_root

SUBSAMPLES, SHARE, BETTER = 200, 0.7, 0.25


def importances(pool: StoredPool) -> Iterator[dict[str, Any]]:
    """name, importance (shares that sum to 1, of all trials), low and high: 95 % of the subsamples. Nothing where the
    pool is of another space than the one that stands in the repository."""
    trials = finished_trials(pool)
    if not trials:
        return
    random = np.random.default_rng(0)
    whole, drawn = _of(trials), []
    for _ in range(SUBSAMPLES):
        places = random.choice(len(trials), size=int(SHARE * len(trials)), replace=False)
        drawn.append(_of([trials[place] for place in places]))
    for name, value in whole.items():
        low, high = np.quantile([each.get(name, 0.0) for each in drawn], (0.025, 0.975))
        yield {"name": name, "importance": value, "low": float(low), "high": float(high)}


def finished_trials(pool: StoredPool) -> list[optuna.trial.FrozenTrial]:
    """The pool's settings as trials of Optuna, with their last scores."""
    space = read_space(repository_root())
    if space.fingerprint != pool.trials["space"].iloc[0]:
        return []
    study = _study()
    for number, row in pool.whole.iterrows():
        study.enqueue_trial(space.parameters(pool.setting(int(number))))
        trial = study.ask()
        space.suggest(trial)
        study.tell(trial, float(row["score"]))
    return list(study.get_trials(deepcopy=False))


def _of(trials: list[optuna.trial.FrozenTrial]) -> dict[str, float]:
    study = _study()
    study.add_trials(trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BETTER)
    return optuna.importance.get_param_importances(study, evaluator=evaluator)


def _study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize")

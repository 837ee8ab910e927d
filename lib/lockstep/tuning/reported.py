"""Learning curves as the trials of an Optuna study hold them, on the one scale that forecasters read.

A forecaster reads scores in 0..1 of which higher is better, after epochs 1, 2, 3, ... A study that maximizes reports
such scores. One that minimizes reports losses of at least 0, which are mapped by score = exp(-loss): of a cross-entropy
that is the geometric mean of the probability given to the right class, and it turns the order round and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lockstep.engine.options import JobError

Array = NDArray[np.float64]


def as_scores(values: Sequence[float], direction: StudyDirection, place: str) -> Array:
    """Finite values of a study as scores, [values]. Raises JobError, which begins with `place`, for a value that is no
    score in 0..1 where the study maximizes, and for a loss below 0 where it minimizes."""
    found = np.array(values, dtype=float)
    if direction == StudyDirection.MINIMIZE:
        if found.size and found.min() < 0:
            raise JobError(
                f"{place}: the value {found.min():g} of a study that minimizes is below 0, and score = exp(-loss) "
                "would be above 1; minimize a loss of at least 0, such as cross-entropy, or maximize a score in 0..1"
            )
        return np.exp(-found)
    if found.size and not (found.min() >= 0 and found.max() <= 1):
        wrong = next(value for value in found if not 0 <= value <= 1)
        raise JobError(
            f"{place}: the value {wrong:g} is not a score in 0..1, which forecasts of learning curves need; report a "
            "share instead of per cent, or exp(-loss)"
        )
    return found


def curve_of(trial: FrozenTrial, direction: StudyDirection) -> Array:
    """A trial's scores after epochs 1, 2, ..., up to the first epoch that is missing, NaN or infinite: [epochs], and
    empty where that is the first one. Raises JobError as `as_scores` does."""
    reported = trial.intermediate_values
    values = []
    for epoch in range(1, len(reported) + 1):
        value = reported.get(epoch)
        if value is None or not math.isfinite(value):
            break
        values.append(value)
    return as_scores(values, direction, f"trial {trial.number}")


def checked_epoch(trial: FrozenTrial, epochs: int) -> int:
    """The last epoch that a trial reported, 0 for none. Raises JobError for steps that are no epochs 1 to `epochs`."""
    epoch = trial.last_step
    if epoch is None:
        return 0
    if epoch > epochs or 0 in trial.intermediate_values:
        wrong = epoch if epoch > epochs else 0
        raise JobError(
            f"trial {trial.number}: step={wrong} was reported to a pruner with epochs={epochs}; report each epoch's "
            f"score once, with step=1 to step={epochs}"
        )
    return epoch


@dataclass(frozen=True)
class FinishedTrials:
    """The trials of a study that are COMPLETE, by number: a pruned or failed one does not tell how its curve ends."""

    numbers: tuple[int, ...]
    curves: tuple[Array, ...]
    """Of those that reported any epoch."""
    incumbent: float
    """The best finished trial's score; NaN for none."""

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], direction: StudyDirection) -> FinishedTrials:
        curves = tuple(curve for trial in trials if len(curve := curve_of(trial, direction)))
        values = [trial.value for trial in trials if trial.value is not None and math.isfinite(trial.value)]
        best = as_scores(values, direction, "finished trials").max() if values else math.nan
        return cls(tuple(trial.number for trial in trials), curves, float(best))


def complete_trials(study: Study) -> list[FrozenTrial]:
    """The COMPLETE trials, not copied, in the order of their numbers."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

"""An Optuna study without what replays do not need: its pruners are asked millions of times.

    optuna.Study.ask / Trial.report / Trial.should_prune / Study.tell     12 microseconds an epoch, beside the pruner's
    LeanStudy.begin  / reported                          / finished       3 microseconds, the same pruner objects

A real `optuna.Study` with a real in-memory storage stands below. Left out are the copies of a trial at each report, its
parameters, the sampler and the log. What is kept, because pruners rely on it: a trial that was read keeps its system
attributes when one is written later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import optuna
from optuna.pruners import BasePruner, HyperbandPruner
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState


class ReplayedStudy(Protocol):
    """What a replay tells of its trials, which are numbered in the order in which they begin."""

    def begin(self) -> int:
        """Starts a trial and returns its number."""
        ...

    def reported(self, number: int, epoch: int, value: float) -> bool:
        """Reports an epoch's score and asks the pruner, whose answer it returns: whether the trial stops."""
        ...

    def finished(self, number: int, epoch: int, value: float) -> None:
        """Reports the last epoch's score, which is the trial's value, and completes the trial."""
        ...

    def stopped(self, number: int, state: TrialState) -> None:
        """Ends a trial before its last epoch: PRUNED or FAIL."""
        ...


class LeanStorage(InMemoryStorage):
    """Optuna's storage in memory, for one study and one thread."""

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self._get_trial(trial_id).intermediate_values[step] = intermediate_value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        # A list of trials that was read before holds the old one. Optuna's halving counts on it: it writes a trial's
        # value at a rung, and then adds that value to those of the trials read before.
        old = self._get_trial(trial_id)
        new = FrozenTrial.__new__(FrozenTrial)
        new.__dict__.update(old.__dict__)
        new._system_attrs = {**old._system_attrs, key: value}
        self._set_trial(trial_id, new)


class LeanStudy:
    """One study that maximizes, in memory. `name` decides the brackets of Hyperband."""

    def __init__(self, pruner: BasePruner, name: str) -> None:
        self._storage = LeanStorage()
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self.study = optuna.create_study(
                storage=self._storage, sampler=RandomSampler(0), pruner=pruner, study_name=name, direction="maximize"
            )
        finally:
            optuna.logging.set_verbosity(verbosity)
        self._pruner, self._ids = pruner, list[int]()
        if isinstance(pruner, HyperbandPruner):
            keep_brackets(pruner)

    def begin(self) -> int:
        self._ids.append(self._storage.create_new_trial(self.study._study_id))
        return len(self._ids) - 1

    def reported(self, number: int, epoch: int, value: float) -> bool:
        self._storage.set_trial_intermediate_value(self._ids[number], epoch, value)
        return self._pruner.prune(self.study, self._storage.get_trial(self._ids[number]))

    def finished(self, number: int, epoch: int, value: float) -> None:
        self._storage.set_trial_intermediate_value(self._ids[number], epoch, value)
        self._storage.set_trial_state_values(self._ids[number], TrialState.COMPLETE, [value])

    def stopped(self, number: int, state: TrialState) -> None:
        trial = self._storage.get_trial(self._ids[number])
        values = None
        if state == TrialState.PRUNED and trial.last_step is not None:
            values = [trial.intermediate_values[trial.last_step]]  # as `Study.tell` does
        self._storage.set_trial_state_values(self._ids[number], state, values)

    @property
    def trials(self) -> Sequence[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def keep_brackets(pruner: HyperbandPruner) -> None:
    """Lets a Hyperband pruner keep the view of each bracket, which it else builds as a class of its own at each call.
    The view reads the storage anew each time it is asked. For a pruner that serves one study."""
    made: Callable[[Any, int], Any] = pruner._create_bracket_study
    kept = cache(lambda study, bracket: made(study, bracket))
    pruner._create_bracket_study = kept  # type: ignore[method-assign]

"""What an engine does for a study: it opens the storage itself, takes the trial that it is told, trains and reports.

    epoch ends -> checkpoint, with the rows of all epochs -> row and report to the storage -> ask the pruner -> go on

The checkpoint comes first. An epoch that was reported is in it, so it is never trained again; one that is in it and was
not reported is reported from its row when the trial goes on. Nothing of Optuna travels: the caller names the storage's
URL, the study and the trial.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lockstep.engine.groups import Group, allgather_object
from lockstep.engine.job import Job
from lockstep.engine.training import checkpoint
from lockstep.engine.training.finite import NotFiniteError
from lockstep.engine.training.loop import Site, run_job
from lockstep.tuning.attempts import EPOCH, give_up
from lockstep.tuning.needed import the_optuna
from lockstep.tuning.plan import OBJECTIVES, StudyPlan
from lockstep.tuning.sampling import make_sampler, training_seed
from lockstep.tuning.storage import kinds_of_errors, open_storage, storage_errors

COMPLETE, PRUNED, FAILED, LOST = "complete", "pruned", "failed", "lost"
"""How an attempt ends; `lost`: another controller has taken the trial over."""


@dataclass(frozen=True)
class TrialCall:
    """Which trial to train, and what no storage should hold."""

    url: str
    study: str
    trial_id: int
    number: int
    checkpoint: str
    build: Callable[[Mapping[str, Any]], Any] | None = None  # of a reader's own model


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended; `score` after its last epoch, None without one."""

    state: str
    score: float | None = None
    reason: str = ""
    kind: str = ""  # of a failure: two of one kind have the same cause


@dataclass
class _Task:
    """What rank 0 tells the others: the job, whether to go on from the checkpoint, and if anything is left to train."""

    job: Job
    setting: dict[str, Any]
    resume: bool
    train: bool


@dataclass
class _Attempt:
    """One attempt at a trial, on rank 0: the hook that training calls after each epoch."""

    plan: StudyPlan
    trial: Any
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    pruned: bool = False
    storage_seconds: float = 0.0

    def after_epoch(self, row: Mapping[str, Any]) -> bool:
        """Report the row, and ask the pruner whether to stop. Raises NotFiniteError for a score that is no number."""
        began = time.perf_counter()
        self.report(row)
        self.ask()
        self.storage_seconds += time.perf_counter() - began
        return self.pruned

    def ask(self) -> None:
        """Ask the pruner, unless the trial has ended: after its last epoch nothing is left to save."""
        if 0 < len(self.rows) < self.plan.epochs:
            self.pruned = bool(self.trial.should_prune())

    def report(self, row: Mapping[str, Any]) -> None:
        """Store an epoch: its row first, for with the report it is finished."""
        epoch, score = int(row["epoch"]), score_of(self.plan, row)
        self.rows.append(row)
        self.trial.set_user_attr(f"{EPOCH}{epoch}", {name: _known(value) for name, value in row.items()})
        self.trial.report(score, epoch)

    def went_on(self, stored: list[Mapping[str, Any]]) -> bool:
        """Report what the checkpoint holds and the storage lacks. Returns whether anything is left to train."""
        reported = self.trial.study._storage.get_trial(self.trial._trial_id).intermediate_values
        for row in stored:
            if int(row["epoch"]) in reported:
                self.rows.append(row)
            else:
                self.report(row)
        self.ask()
        return not self.pruned and len(stored) < self.plan.epochs


def score_of(plan: StudyPlan, row: Mapping[str, Any]) -> float:
    """The objective after an epoch, 0..1. Raises NotFiniteError."""
    found = float(OBJECTIVES[plan.objective](row))
    if not math.isfinite(found):
        raise NotFiniteError(f"the {plan.objective} on the held-out images is {found} after epoch {row['epoch']}")
    return found


@functools.lru_cache(maxsize=2)
def _opened(url: str, name: str) -> tuple[Any, StudyPlan, Any]:
    """The storage, the plan and the pruner of a study, kept while this worker is warm."""
    from lockstep.tuning.pruners import make_pruner

    optuna = the_optuna()
    storage = optuna.storages.get_storage(open_storage(url))  # with Optuna's cache
    plan = StudyPlan.from_json(storage.get_study_user_attrs(storage.get_study_id_from_name(name))["plan"])
    return storage, plan, make_pruner(plan.pruner, plan.epochs, plan.seed)


def run_trial(group: Group, call: TrialCall, site: Site) -> Outcome:
    """Train a trial, on every rank; tell the storage on rank 0. What stops a single rank fails the trial; of several
    ranks the launcher tells. Raises StudyError for a storage that can't be used any more."""
    if group.rank:
        task = allgather_object(group, None)[0]
        if task.train:
            run_job(task.job, group, _site_of(call, site, task, lambda row: False))
        return Outcome(COMPLETE)
    optuna = the_optuna()
    began = time.perf_counter()
    with storage_errors(call.url):
        storage, plan, pruner = _opened(call.url, call.study)
        sampler = make_sampler(plan.sampler, plan.seed, call.number)
        study = optuna.load_study(study_name=call.study, storage=storage, sampler=sampler, pruner=pruner)
        study.get_trials(deepcopy=False)  # Optuna's cache must have read a trial before it can add to it
        attempt = _Attempt(plan, optuna.trial.Trial(study, call.trial_id))
        try:
            _train(group, call, site, attempt)
            return _tell(study, attempt, began)
        except optuna.exceptions.UpdateFinishedTrialError:
            if group.size > 1:
                raise
            return Outcome(LOST)
        except Exception as error:
            if group.size > 1 or isinstance(error, kinds_of_errors()):
                raise
            outcome = failure_of(f"{type(error).__name__}: {error}")
            _note_seconds(attempt, began)
            give_up(study, call.trial_id, outcome.reason, outcome.kind)
            return outcome


def failure_of(text: str) -> Outcome:
    """The outcome of a trial that failed with this error, `Class: message`. Where training diverges differs, and so do
    numbers in messages; neither makes it another failure."""
    name = text.partition(":")[0]
    same = name if name == NotFiniteError.__name__ else "".join("#" if sign.isdigit() else sign for sign in text)
    return Outcome(FAILED, reason=" ".join(text.split()), kind=same)


def _train(group: Group, call: TrialCall, site: Site, attempt: _Attempt) -> None:
    from optuna.storages._heartbeat import get_heartbeat_thread

    plan, trial = attempt.plan, attempt.trial
    with get_heartbeat_thread(call.trial_id, trial.study._storage):
        began = time.perf_counter()
        setting = plan.space.suggest(trial)
        trial.set_user_attr("setting", setting)
        job = plan.job(setting, training_seed(plan.seed, call.number))
        stored = _rows_of(call.checkpoint, job)
        train = attempt.went_on(stored)
        attempt.storage_seconds += time.perf_counter() - began
        task = _Task(job, setting, bool(stored), train)
        allgather_object(group, task)
        if train:
            run_job(job, group, _site_of(call, site, task, attempt.after_epoch))


def _site_of(call: TrialCall, site: Site, task: _Task, after_epoch: Callable[[Any], bool]) -> Site:
    case = site.use_case
    if call.build is not None and case is not None:
        case = replace(case, model=functools.partial(call.build, task.setting))
    return replace(
        site, use_case=case, checkpoint=call.checkpoint, resume=task.resume, after_epoch=after_epoch
    )


def _rows_of(path: str, job: Job) -> list[Mapping[str, Any]]:
    """The rows of the epochs that an earlier attempt has finished; none if its checkpoint is not there or damaged."""
    if not Path(path).is_file():
        return []
    try:
        return list(checkpoint.read_for(path, job).get("epochs", []))
    except checkpoint.CheckpointError:
        Path(path).unlink()
        return []


def _tell(study: Any, attempt: _Attempt, began: float) -> Outcome:
    states = the_optuna().trial.TrialState
    _note_seconds(attempt, began)
    score = score_of(attempt.plan, attempt.rows[-1])
    if attempt.pruned:
        study.tell(attempt.trial, state=states.PRUNED)
        return Outcome(PRUNED, score)
    study.tell(attempt.trial, score)
    return Outcome(COMPLETE, score)


def _note_seconds(attempt: _Attempt, began: float) -> None:
    """Add what this attempt took to what the earlier ones did."""
    whole, of_storage = attempt.trial.user_attrs.get("seconds", (0.0, 0.0))
    now = time.perf_counter() - began
    attempt.trial.set_user_attr("seconds", [whole + now, of_storage + attempt.storage_seconds])


def _known(value: Any) -> Any:
    """JSON knows no NaN: None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

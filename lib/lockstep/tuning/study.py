"""A study is run: trials spread over engines, each trial on cores of its own.

    run_study -> Controller -> a thread per slot, pinned to the slot's cores -> a team of `workers_per_trial` ranks
                     ^                                                               |
                     +-- takes trials from the storage ------ writes reports to it --+

The controller takes trials out of the storage, so that it knows at once which trial an engine dies with; the engine
does all the rest (`lockstep.tuning.worker`). Two controllers on one study share its trials.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.engine.cores import cores_of_rank, usable_cores
from lockstep.engine.launch.failures import WorkerFailed
from lockstep.engine.training.loop import Site
from lockstep.tuning.attempts import (
    FIRST,
    GIVEN_UP,
    HAD_ENDED,
    failures_in_a_row,
    forgive,
    give_up,
    latest,
    numbers_of,
    recover,
    stopped_by_failures,
    this_owner,
    try_again,
)
from lockstep.tuning.needed import StudyError, the_optuna
from lockstep.tuning.opening import alone_on_host, close_study, folder_of, open_study
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.results import Finished
from lockstep.tuning.slots import Slot
from lockstep.tuning.status_lines import StatusLines
from lockstep.tuning.storage import shown, sqlite_file, storage_errors, storage_url
from lockstep.tuning.worker import COMPLETE, FAILED, PRUNED, Outcome, TrialCall, failure_of

MOST_FAILURES = 5
"""A study stops after so many failures in a row of one kind: the next trial would fail as well."""
LOOK_SECONDS = 0.5
"""How often the storage is asked what the engines have reported, and whether another controller has left a trial."""

_UNDER_WAY: set[tuple[str, int]] = set()
"""Storage and attempt of all trials that controllers of this process train: there may be several."""


@dataclass
class Controller:
    """Gives trials to slots and hears how they end. Its methods may be called from the slots' threads."""

    plan: StudyPlan
    study: Any
    url: str
    folder: Path
    build: Callable[[Mapping[str, Any]], Any] | None = None
    stopped: str = ""  # why no further trial starts
    error: BaseException | None = None
    active: dict[int, int] = field(default_factory=dict)  # attempt -> slot
    _failures: list[str] = field(default_factory=list)  # kinds of the last failures in a row
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        """Failures of earlier calls count; those by which the study stopped do not, for whoever calls again has
        removed the cause."""
        with storage_errors(self.url):
            forgive(self.study)
            self._failures = failures_in_a_row(self.study)

    def take(self, slot: int) -> TrialCall | None:
        """The next trial for a slot, as soon as there is one; None when the study has ended or stops."""
        with self._changed:
            while not self.stopped:
                with alone_on_host(self.url), storage_errors(self.url):
                    self.folder.mkdir(exist_ok=True, mode=0o700)
                    self._recover()
                    call = self._next(slot)
                if call is not None or self._all_ended():
                    return call
                self._changed.wait(LOOK_SECONDS)  # a trial that is under way may have to be tried again
        return None

    def ended(self, call: TrialCall, outcome: Outcome) -> None:
        """An engine has told how its trial ended."""
        with self._changed, alone_on_host(self.url), storage_errors(self.url):
            self._forget(call.trial_id)
            if outcome.state == FAILED:
                self._failed(call, outcome)
            elif outcome.state in (COMPLETE, PRUNED):
                self._has_ended()
            self._changed.notify_all()

    def engine_died(self, call: TrialCall, failure: WorkerFailed) -> None:
        """An engine ended in the middle of a trial, or several ranks of a trial raised."""
        with self._changed, alone_on_host(self.url), storage_errors(self.url):
            self._forget(call.trial_id)
            reason = failure.reason
            if self.stopped:
                try_again(self.study, call.trial_id, self.stopped, engine_died=False)
            elif reason.startswith(f"raised {StudyError.__name__}"):
                with contextlib.suppress(StudyError), storage_errors(self.url):
                    try_again(self.study, call.trial_id, reason, engine_died=False)
                self.stop(StudyError(reason.partition(": ")[2]))
            elif reason.startswith("raised "):
                outcome = failure_of(reason.removeprefix("raised "))
                give_up(self.study, call.trial_id, outcome.reason, outcome.kind)
                self._failed(call, outcome)
            else:
                self._lost(call, reason, f"{reason} ({failure.where})")
            self._changed.notify_all()

    def _lost(self, call: TrialCall, reason: str, told: str) -> None:
        """The engine itself has died, and raised nothing."""
        became = try_again(self.study, call.trial_id, told, engine_died=True, failure=reason)
        if became == GIVEN_UP:
            self._failed(call, Outcome(FAILED, reason=reason, kind=reason))
        elif became == HAD_ENDED:  # it died after it had told the storage how its trial ended
            self._has_ended()

    def _has_ended(self) -> None:
        self._failures.clear()
        self._keep_best()

    def stop(self, why: BaseException | str) -> None:
        """No further trial starts. An exception is raised when all slots have ended."""
        with self._changed:
            if not self.stopped and isinstance(why, BaseException):
                self.error = why
            self.stopped = self.stopped or str(why) or type(why).__name__
            self._changed.notify_all()

    def _next(self, slot: int) -> TrialCall | None:
        states = the_optuna().trial.TrialState
        trials = self.study.get_trials(deepcopy=False)
        waiting = any(trial.state == states.WAITING for trial in trials)
        if not waiting and sum(FIRST not in trial.system_attrs for trial in trials) >= self.plan.trials:
            return None
        trial = self.study.ask()
        number = numbers_of(self.study.get_trials(deepcopy=False))[trial.number]
        trial.set_user_attr("owner", [*this_owner(), slot])
        self.active[trial._trial_id] = slot
        _UNDER_WAY.add((self.url, trial._trial_id))
        path = str(self.folder / f"{number}.checkpoint")
        return TrialCall(self.url, self.plan.name, trial._trial_id, number, path, self.build)

    def _forget(self, trial_id: int) -> None:
        self.active.pop(trial_id, None)
        _UNDER_WAY.discard((self.url, trial_id))

    def _recover(self) -> None:
        here = {trial for url, trial in list(_UNDER_WAY) if url == self.url}
        recover(self.study, here, one_host=sqlite_file(self.url) is not None)

    def _all_ended(self) -> bool:
        trials = latest(self.study.get_trials(deepcopy=False)).values()
        return not self.active and len(trials) >= self.plan.trials and all(each.state.is_finished() for each in trials)

    def _failed(self, call: TrialCall, outcome: Outcome) -> None:
        Path(call.checkpoint).unlink(missing_ok=True)
        self._failures = [kind for kind in self._failures if kind == outcome.kind] + [outcome.kind]
        if len(self._failures) >= MOST_FAILURES:
            stopped_by_failures(self.study)
            self.stop(
                StudyError(
                    f"study {self.plan.name!r}: {MOST_FAILURES} trials in a row failed alike, the last one, trial "
                    f"{call.number}, because: {outcome.reason}; remove the cause, and the same call goes on"
                )
            )

    def _keep_best(self) -> None:
        """Remove the checkpoints of all trials that have ended, but for the best one's."""
        trials = self.study.get_trials(deepcopy=False)
        best, numbers = best_attempt(self.study), numbers_of(trials)
        kept = {f"{numbers[each.number]}.checkpoint" for each in trials if not each.state.is_finished() or each is best}
        for path in self.folder.glob("*.checkpoint"):
            if path.name not in kept:
                path.unlink(missing_ok=True)


def best_attempt(study: Any) -> Any:
    """The finished trial of the highest score, of equal ones the first; None without one."""
    complete = the_optuna().trial.TrialState.COMPLETE
    return max(study.get_trials(deepcopy=False, states=(complete,)), key=lambda each: each.value, default=None)


def run_study(
    plan: StudyPlan,
    storage: str | os.PathLike[str],
    site: Site | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    build: Callable[[Mapping[str, Any]], Any] | None = None,
    keep_best: bool = False,
) -> Finished:
    """Run the study to its end, or go on with it where it was left.

    storage: a file of SQLite on a disk of this machine, or the URL of a PostgreSQL or MySQL server, on which several
    hosts may call this at once. site: where the images are. progress: is given a line for each finished epoch and
    trial. build: makes the reader's own model of a setting. keep_best: the checkpoint of the best trial stays
    (`best_checkpoint`).

    Repeatable to the bit, on one machine: with one engine all of it, whatever was killed in between. With several only
    what each setting reaches, and with sampler="random" the list of settings: which trials a sampler or a pruner knows
    of when it decides depends on who was quicker.

    A trial whose engine dies goes on from its last epoch, at most twice. When everything was killed, or after Ctrl-C,
    the same call goes on, and trains no finished epoch again. Raises StudyError, JobError, DataError as `open_study`
    does; StudyError after five failures in a row of one kind; WorkerFailed if engines can't be started. No process is
    left behind.
    """
    url = storage_url(storage)
    study = open_study(plan, url, site)
    folder = folder_of(url, plan.name)
    controller = Controller(plan, study, url, folder, build)
    try:
        _serve(controller, site or Site(), progress)
        with storage_errors(url):
            found = Finished.of(study, plan, stopped=controller.stopped)
        _clean(url, folder, found.ended and not keep_best)
        if controller.error is not None:
            raise controller.error
        return found
    finally:
        _UNDER_WAY.difference_update([(url, trial) for trial in controller.active])
        close_study(study)


def _serve(controller: Controller, site: Site, progress: Callable[[str], None] | None) -> None:
    """Let the slots work, and tell of it, until all of them have ended. Raises KeyboardInterrupt after Ctrl-C."""
    plan, usable = controller.plan, usable_cores()
    cores = [cores_of_rank(slot, plan.workers_per_trial, usable) for slot in range(min(plan.engines, plan.trials))]
    slots = [Slot(number, controller, site, of_slot) for number, of_slot in enumerate(cores)]
    lines = StatusLines(controller.study, plan, progress)
    end = time.monotonic() + plan.hours * 3600 if plan.hours else float("inf")
    try:
        for slot in slots:
            slot.start()
        while alive := [slot for slot in slots if slot.is_alive()]:
            alive[0].join(LOOK_SECONDS)
            with storage_errors(controller.url):
                lines.look()
            if time.monotonic() > end and not controller.stopped:
                controller.stop(f"the time limit of {plan.hours:g} hours")
                for slot in slots:
                    slot.interrupt()
    except BaseException as error:
        controller.stop("stopped")
        if isinstance(error, KeyboardInterrupt) and progress is not None:
            progress(f"stopped; the same call goes on with study {plan.name!r} in {shown(controller.url)}")
        raise
    finally:
        for slot in slots:
            slot.interrupt()
        for slot in slots:
            slot.join()
    with storage_errors(controller.url):
        lines.look()


def best_checkpoint(plan: StudyPlan, storage: str | os.PathLike[str], number: int) -> Path:
    """The checkpoint of a finished study's best trial, which `run_study` was asked to keep. Raises StudyError."""
    path = folder_of(storage_url(storage), plan.name) / f"{number}.checkpoint"
    if not path.is_file():
        raise StudyError(f"{path} is not there: its study did not keep the best model; train that setting anew")
    return path


def _clean(url: str, folder: Path, everything: bool) -> None:
    """Remove the folder of a study's checkpoints if it is empty; `everything`: with all checkpoints."""
    with alone_on_host(url), contextlib.suppress(OSError):  # which removes the folder above if no other study has one
        if everything:
            shutil.rmtree(folder)
        else:
            folder.rmdir()

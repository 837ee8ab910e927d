"""Trials and their attempts. A trial whose engine dies, or whose controller does, gets another attempt.

For Optuna each attempt is a trial of its own, which carries the number of the first in `failed_trial`. Here a trial has
one number, its place among the first attempts, whatever was tried again in between; seeds follow from it.

What a trial holds besides Optuna's parameters and reports (user attributes):

    owner             host, process and its start, of the controller that gave the trial to an engine; the engine
    setting           as the space suggested it; its parameters are complete then
    epoch N           the row of epoch N
    seconds           of all attempts that ended by themselves; of these for the storage, the sampler and the pruner
    reason            why it failed
    failure           the same without what differs from trial to trial: two trials failed alike if it is the same
    deaths            how many engines have died with it
    again             the attempt has failed, and another one follows
"""

from __future__ import annotations

import contextlib
import copy
import os
import socket
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from lockstep.tuning.needed import the_optuna
from lockstep.tuning.storage import GRACE_SECONDS

MOST_RETRIES = 2
"""How often a trial is tried again after an engine has died with it."""
EPOCH = "epoch "
FIRST = "failed_trial"
"""Optuna's attribute of a repeated attempt: the number of the first one."""
AGAIN, GIVEN_UP, HAD_ENDED = "again", "given up", "had ended"
"""What becomes of a trial whose attempt has failed."""
_HISTORY = "retry_history"
_OF_ATTEMPT = ("owner", "again", "reason", "failure")


def numbers_of(trials: Iterable[Any]) -> dict[int, int]:
    """The number of the trial that each attempt belongs to, by the attempt's own number."""
    attempts = list(trials)
    firsts = sorted(each.number for each in attempts if FIRST not in each.system_attrs)
    place = {first: number for number, first in enumerate(firsts)}
    return {each.number: place[each.system_attrs.get(FIRST, each.number)] for each in attempts}


def latest(trials: Sequence[Any]) -> dict[int, Any]:
    """The last attempt of each trial, by the trial's number, in ascending order."""
    numbers = numbers_of(trials)
    found = {numbers[each.number]: each for each in sorted(trials, key=lambda each: each.number)}
    return dict(sorted(found.items()))


def this_owner() -> list[Any]:
    """Host, process and its start, which tell this controller from any other."""
    return [socket.gethostname(), os.getpid(), _start_of(os.getpid())]


def _start_of(pid: int) -> str:
    """When a process began, in the kernel's ticks, which no clock that is set can change; empty if it is not there."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[19]
    return ""


_STOPPED, _COUNTED_FROM = "stopped_by_failures", "failures_counted_from"


def failures_in_a_row(study: Any) -> list[str]:
    """Of the trials that have ended last, as far as they failed and failed alike: how, once for each. Trials that are
    tried again count by their last attempt. Those by which a call stopped do not count (`forgive`)."""
    states, first = the_optuna().trial.TrialState, study.user_attrs.get(_COUNTED_FROM, 0)
    trials = latest(study.get_trials(deepcopy=False)).values()
    ended = [each for each in trials if each.state.is_finished() and each.number >= first]
    found: list[str] = []
    for trial in sorted(ended, key=lambda each: each.datetime_complete, reverse=True):
        failure = trial.user_attrs.get("failure", trial.user_attrs.get("reason", ""))
        if trial.state != states.FAIL or trial.user_attrs.get("again") or (found and failure != found[0]):
            break
        found.append(failure)
    return found


def stopped_by_failures(study: Any) -> None:
    """Failures in a row have stopped the study; what is under way may fail alike after that."""
    study.set_user_attr(_STOPPED, True)


def forgive(study: Any) -> None:
    """Where failures had stopped the study, they do not count any more: whoever calls again has removed the cause."""
    if study.user_attrs.get(_STOPPED):
        study.set_user_attr(_COUNTED_FROM, len(study.get_trials(deepcopy=False)))
        study.set_user_attr(_STOPPED, False)


def give_up(study: Any, trial_id: int, reason: str, failure: str) -> None:
    """The trial has failed, and will not be tried again. `failure`: the reason without what is this trial's alone."""
    _end(study, trial_id, {"reason": reason, "failure": failure})


def try_again(study: Any, trial_id: int, reason: str, *, engine_died: bool, failure: str = "") -> str:
    """The attempt has failed; the trial waits for another one, which goes on from its last epoch: AGAIN.

    GIVEN_UP if too many engines have died with it; HAD_ENDED if the attempt had, as it has where an engine dies just
    after it has told how its trial ended. To be called by one controller of a host at a time.
    """
    attributes = study._storage.get_trial(trial_id).user_attrs
    deaths = attributes.get("deaths", 0) + engine_died
    again = deaths <= MOST_RETRIES
    if not _end(study, trial_id, {"reason": reason, "failure": failure or reason, "deaths": deaths, "again": again}):
        return HAD_ENDED
    if again:
        _repeat(study, study._storage.get_trial(trial_id))
    return AGAIN if again else GIVEN_UP


def _end(study: Any, trial_id: int, attributes: dict[str, Any]) -> bool:
    optuna = the_optuna()
    try:
        for name, value in attributes.items():
            study._storage.set_trial_user_attr(trial_id, name, value)
        return bool(study._storage.set_trial_state_values(trial_id, optuna.trial.TrialState.FAIL))
    except optuna.exceptions.UpdateFinishedTrialError:
        return False


def _repeat(study: Any, failed: Any) -> None:
    """Put the trial into the queue again, by Optuna's own callback."""
    template = copy.deepcopy(failed)
    if "setting" not in template.user_attrs:  # some of its parameters may be missing: all are drawn again
        template.params, template.distributions = {}, {}
    template.user_attrs = {name: value for name, value in template.user_attrs.items() if name not in _OF_ATTEMPT}
    study._storage.get_heartbeat_stale_trial_callback()(study, template)


def recover(study: Any, mine: Collection[int], *, one_host: bool) -> None:
    """Let every trial that nobody trains any more be tried again. To be called by one controller of a host at a time.

    mine: the attempts that engines of this process train. one_host: no other host uses this storage, so that a trial
    without an owner has none. Whether a controller of this host lives is asked of the system, and of another host by
    its heartbeats, so that a clock that jumps can't take this host's trials away.
    """
    optuna = the_optuna()
    states = optuna.trial.TrialState
    trials = study.get_trials(deepcopy=False)
    stale = set(study._storage._get_stale_trial_ids(study._study_id)) if not one_host else set()
    for trial in trials:
        if trial.state == states.RUNNING and trial._trial_id not in mine and _is_dead(trial, stale, one_host=one_host):
            try_again(study, trial._trial_id, "its controller has ended", engine_died=False)
    followed = {each.system_attrs[_HISTORY][-1] for each in trials if each.system_attrs.get(_HISTORY)}
    for trial in trials:  # its controller was killed between both steps of `try_again`
        if trial.state == states.FAIL and trial.user_attrs.get("again") and trial.number not in followed:
            _repeat(study, trial)


def left_behind(study: Any, *, one_host: bool) -> set[int]:
    """The attempts, by their number, that count as running though the controller that gave them out has ended. Those
    of this process count as alive. Nothing is changed."""
    states = the_optuna().trial.TrialState
    running = [each for each in study.get_trials(deepcopy=False) if each.state == states.RUNNING]
    stale = set(study._storage._get_stale_trial_ids(study._study_id)) if running and not one_host else set()
    others = [each for each in running if each.user_attrs.get("owner", [])[:3] != this_owner()]
    return {each.number for each in others if _is_dead(each, stale, one_host=one_host)}


def _is_dead(trial: Any, stale: Collection[int], *, one_host: bool) -> bool:
    host, pid, start, _ = trial.user_attrs.get("owner", ("", 0, "", 0))
    here = this_owner()
    if host == here[0]:
        return [pid, start] == here[1:] or _start_of(pid) != start
    if not host:
        age = (datetime.now() - trial.datetime_start).total_seconds()
        return one_host or age > GRACE_SECONDS
    return trial._trial_id in stale

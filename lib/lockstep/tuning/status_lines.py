"""What a reader sees of a study while it runs, and when they ask: lines of progress, and the status."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from lockstep.engine.units import took
from lockstep.tuning.attempts import EPOCH, latest
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.results import LEFT, STATES, Finished, read_study

_MISS = 0.1
"""The estimate of the time left is a 90 % interval."""


class StatusLines:
    """Tells `progress` of each epoch and each trial that has finished since the last look into the storage."""

    def __init__(self, study: Any, plan: StudyPlan, progress: Callable[[str], None] | None) -> None:
        self.study, self.plan, self.progress = study, plan, progress
        self._seen: dict[int, tuple[int, str, int]] = {}
        self.look(quiet=True)

    def look(self, *, quiet: bool = False) -> None:
        """Tell what is new; `quiet`: only take note of it."""
        if self.progress is None:
            return
        for number, attempt in latest(self.study.get_trials(deepcopy=False)).items():
            reported, state = attempt.intermediate_values, STATES[attempt.state.name]
            last, before, first = self._seen.get(number, (0, "", -1))
            self._seen[number] = max(reported, default=0), state, attempt.number
            if quiet:
                continue
            for epoch in sorted(each for each in reported if each > last):
                self.progress(self._epoch(number, epoch, reported[epoch], attempt.user_attrs))
            if first >= 0 and attempt.number != first:
                self.progress(f"trial {number}: its engine or controller has ended; it goes on from epoch {last}")
            if attempt.state.is_finished() and state != before:
                self.progress(self._trial(number, attempt, state))

    def _epoch(self, number: int, epoch: int, score: float, attributes: Mapping[str, Any]) -> str:
        row = attributes.get(f"{EPOCH}{epoch}", {})
        accuracy, seconds = row.get("validation_accuracy"), row.get("seconds")
        more = f", accuracy {accuracy:.1%}" if accuracy is not None else ""
        more += f", {seconds:.1f} s" if seconds is not None else ""
        return f"trial {number}: epoch {epoch} of {self.plan.epochs}, {self.plan.objective} {score:.4f}{more}"

    def _trial(self, number: int, attempt: Any, state: str) -> str:
        setting = ", ".join(f"{name} {_short(value)}" for name, value in attempt.user_attrs.get("setting", {}).items())
        found = attempt.user_attrs.get("reason", "") if state == "failed" else ""
        if attempt.values:
            found = f"{self.plan.objective} {attempt.value:.4f} after epoch {max(attempt.intermediate_values)}"
        return f"trial {number}: {state}, {found}{f' ({setting})' if setting else ''}"


def study_status(storage: str | os.PathLike[str], name: str | None = None) -> str:
    """What `lockstep tune --status` prints. Raises StudyError for a storage or a study that is not there."""
    return status_text(read_study(storage, name))


def status_text(found: Finished) -> str:
    """Running, finished, pruned and failed trials, the best so far, and how long the rest may take."""
    plan, trials = found.plan, found.trials
    counts = {state: int((trials["state"] == state).sum()) for state in STATES.values()}
    not_begun = plan.trials - len(trials) + counts["waiting"]
    told = [f"{counts[state]} {word}" for state, word in (
        ("running", "running"), ("complete", "finished"), ("pruned", "pruned"), ("failed", "failed")
    )]  # fmt: skip
    lines = [f"study {plan.name!r}: {', '.join(told)}, {max(not_begun, 0)} not begun, of {plan.trials} trials"]
    for _, row in trials[trials["state"] == "running"].iterrows():
        lines.append(f"  trial {row['number']}: {row['epochs']} of {plan.epochs} epochs on engine {row['engine']}")
    for _, row in trials[trials["state"] == LEFT].iterrows():
        done = f"{row['epochs']} of {plan.epochs} epochs"
        lines.append(f"  trial {row['number']}: {done}; its controller has ended, and the same command goes on with it")
    best = found.best
    if best is None:
        lines.append("best so far: none, for no trial has finished")
    else:
        setting = ", ".join(f"{name} {_short(value)}" for name, value in found.setting(best["number"]).items())
        lines.append(f"best so far: trial {best['number']}, {plan.objective} {best['value']:.4f} ({setting})")
    for reason, count in trials.loc[trials["state"] == "failed", "reason"].value_counts().head(3).items():
        lines.append(f"failed {count} times: {reason}")
    return "\n".join([*lines, time_left_text(found)])


def time_left_text(found: Finished) -> str:
    """The time left as a range, or why none can be told."""
    if found.ended:
        return "time left: none, the study has ended"
    interval = seconds_left(found)
    if interval is None:
        return "time left: unknown until two trials have ended"
    low, high = (took(seconds) for seconds in interval)
    return f"time left: {low} to {high}, if {found.plan.engines} engines go on and trials last as those that have ended"


def seconds_left(found: Finished) -> tuple[float, float] | None:
    """A 90 % prediction interval of the time that the rest of the study takes; None with fewer than two ended trials.

    Trials last as those that have ended do, pruned ones among them. For a sum of n further ones, of m whose mean and
    standard deviation s are known, the standard error is s sqrt(n + n^2 / m), with m - 1 degrees of freedom.
    """
    from scipy.special import stdtrit

    plan, trials = found.plan, found.trials
    ended = trials["state"].isin(("complete", "pruned"))
    seconds = pd.to_numeric(trials.loc[ended, "seconds"]).dropna()
    known = len(seconds)
    if known < 2:
        return None
    share_done = (trials.loc[trials["state"].isin(("running", LEFT)), "epochs"] / plan.epochs).sum()
    failed = int((trials["state"] == "failed").sum())
    rest = max(plan.trials - int(ended.sum()) - failed - float(share_done), 0.0)
    wide = float(stdtrit(known - 1, 1 - _MISS / 2)) * float(seconds.std()) * math.sqrt(rest + rest**2 / known)
    expected, engines = rest * float(seconds.mean()), min(plan.engines, max(math.ceil(rest), 1))
    return max(expected - wide, 0.0) / engines, (expected + wide) / engines


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

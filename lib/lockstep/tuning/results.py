"""What a study has found, read from its storage alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lockstep.tuning.attempts import EPOCH, latest, left_behind
from lockstep.tuning.opening import close_study, found_study
from lockstep.tuning.plan import StudyPlan
from lockstep.tuning.storage import sqlite_file, storage_errors, storage_url

OF_TRIAL = ("number", "state", "value", "epochs", "seconds", "storage_seconds", "retries", "reason", "engine")
OF_EPOCH = (
    "trial", "epoch", "score", "validation_loss", "validation_accuracy", "validation_balanced_accuracy",
    "validation_auc", "train_loss", "seconds", "learning_rate",
)  # fmt: skip
OF_DECISION = (
    "trial", "epoch", "epochs_read", "mean", "low", "high", "incumbent", "chance", "pruned", "spared"
)  # fmt: skip
STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "waiting"}
"""Optuna's names, and ours."""
LEFT = "left"
"""Of a trial whose controller has ended: the next call goes on with it."""


@dataclass(frozen=True)
class Finished:
    """A study's trials, whether it has ended or not.

    trials: a row per trial, whatever was tried again: OF_TRIAL, then a column per name of the space (None where it
    has no value). `state` is complete | pruned | failed | running | waiting | left (LEFT), `value` the score after
    the last epoch, and `seconds` the wall time of those of its attempts that no engine's death ended, of which
    `storage_seconds` went to the storage, the sampler and the pruner. curves: a row per finished epoch: OF_EPOCH;
    `seconds` is the time of the epoch's training steps. decisions: a row per decision of a pruner that forecasts:
    OF_DECISION. stopped: why no further trial was started, empty for a study that has ended.
    """

    plan: StudyPlan
    trials: pd.DataFrame
    curves: pd.DataFrame
    decisions: pd.DataFrame
    stopped: str = ""

    @classmethod
    def of(cls, study: Any, plan: StudyPlan, stopped: str = "", left: Collection[int] = ()) -> Finished:
        """`left`: attempts whose controller has ended."""
        attempts = latest(study.get_trials(deepcopy=False))
        rows = [_trial_row(number, each, plan.space.names) for number, each in attempts.items()]
        for row, attempt in zip(rows, attempts.values(), strict=True):
            row["state"] = LEFT if attempt.number in left else row["state"]
        trials = pd.DataFrame(rows, columns=[*OF_TRIAL, *plan.space.names])
        for name in plan.space.names:  # as they were set: a whole number is none beside a missing one in pandas
            trials[name] = pd.Series([row[name] for row in rows], dtype=object)
        curves = pd.DataFrame(
            [row for number, each in attempts.items() for row in _epoch_rows(number, each)], columns=[*OF_EPOCH]
        )
        decisions = pd.DataFrame(
            [row for number, each in attempts.items() for row in _decision_rows(number, each)], columns=[*OF_DECISION]
        )
        return cls(plan, trials, curves, decisions, stopped)

    @property
    def ended(self) -> bool:
        """Have all trials of the plan ended?"""
        done = self.trials["state"].isin(("complete", "pruned", "failed"))
        return len(self.trials) >= self.plan.trials and bool(done.all())

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The row of the complete trial with the highest value, of equal ones the first; None without one."""
        complete = self.trials[self.trials["state"] == "complete"]
        return None if complete.empty else complete.loc[complete["value"].astype(float).idxmax()].to_dict()

    def setting(self, number: int) -> dict[str, Any]:
        """The setting of a trial, without the names that have no value in it."""
        row = self.trials.set_index("number").loc[number]
        return {name: row[name] for name in self.plan.space.names if row[name] is not None}


def read_study(storage: str | os.PathLike[str], name: str | None = None) -> Finished:
    """A study as its storage holds it; `name` may be left out where there is one. Raises StudyError."""
    study, plan = found_study(storage, name)
    try:
        url = storage_url(storage)
        with storage_errors(url):
            return Finished.of(study, plan, left=left_behind(study, one_host=sqlite_file(url) is not None))
    finally:
        close_study(study)


def _trial_row(number: int, attempt: Any, names: Sequence[str]) -> dict[str, Any]:
    attributes = attempt.user_attrs
    reported = attempt.intermediate_values
    whole, of_storage = attributes.get("seconds", (None, None))
    row = {
        "number": number,
        "state": STATES[attempt.state.name],
        "value": attempt.value if attempt.state.is_finished() and attempt.values else None,
        "epochs": max(reported, default=0),
        "seconds": whole,
        "storage_seconds": of_storage,
        "retries": len(attempt.system_attrs.get("retry_history", ())),
        "reason": attributes.get("reason", ""),
        "engine": attributes["owner"][-1] if "owner" in attributes else None,
    }
    setting = attributes.get("setting", {})
    return row | {name: setting.get(name) for name in names}


def _epoch_rows(number: int, attempt: Any) -> Iterator[dict[str, Any]]:
    for epoch, score in sorted(attempt.intermediate_values.items()):
        stored = attempt.user_attrs.get(f"{EPOCH}{epoch}", {})
        yield {"trial": number, "epoch": epoch, "score": score} | {
            name: stored.get(name) for name in OF_EPOCH if name not in ("trial", "epoch", "score")
        }


def _decision_rows(number: int, attempt: Any) -> Iterator[dict[str, Any]]:
    from dataclasses import asdict

    from lockstep.tuning.asking import decisions_of

    for decision in decisions_of(attempt):
        yield {"trial": number} | asdict(decision)

"""What a study does, as data: it is stored with the study, and a study that goes on must be the one that began."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from lockstep import __version__
from lockstep.engine.job import Job
from lockstep.engine.options import JobError, at_least
from lockstep.tuning.needed import StudyError
from lockstep.tuning.space import Space
from lockstep.tuning.space_entries import SpaceEntry, among

LAUNCHERS = ("engines", "processes", "mpiexec")
SAMPLERS = ("tpe", "random", "cmaes")
Row = Mapping[str, Any]
OBJECTIVES: Mapping[str, Callable[[Row], float]] = MappingProxyType(
    {
        "likelihood": lambda row: math.exp(-row["validation_loss"]),
        "accuracy": lambda row: row["validation_accuracy"],
        "balanced_accuracy": lambda row: row["validation_balanced_accuracy"],
        "auc": lambda row: row["validation_auc"],
    }
)
"""What a study maximizes: a function of an epoch's row, in 0..1. `likelihood` is exp(-validation cross-entropy), the
geometric mean of the probability that the right class gets: it can tell settings apart that accuracy can't."""
_TRIED = 50  # random settings whose jobs are built before anything starts
_MAY_CHANGE = ("trials", "engines", "launcher", "hours")
"""Fields in which a study that goes on may differ from the one that began."""


@dataclass(frozen=True)
class StudyPlan:
    """A study: `trials` settings of `space`, each trained for `epochs` epochs from `base`, unless `pruner` stops it.

    `settings` is a fixed list in place of a sampler; `trials` is then its length. `engines` trials are trained at a
    time, each by `workers_per_trial` workers on cores of their own. `hours` limits one call, not the study: the same
    call goes on. `pruner` is a text of `lockstep.tuning.pruners`. Data order and initial weights of a trial follow from
    `seed` and the trial's number alone.

    Raises JobError, which names the field, its value and the fix.
    """

    name: str
    space: Space
    base: Job
    trials: int = 30
    epochs: int = 10
    engines: int = 2
    launcher: str = "engines"
    workers_per_trial: int = 1
    sampler: str = "tpe"
    settings: tuple[Mapping[str, Any], ...] = ()
    pruner: str = "none"
    seed: int = 0
    hours: float | None = None
    objective: str = "likelihood"

    def __post_init__(self) -> None:
        if self.settings:
            object.__setattr__(self, "settings", tuple(dict(setting) for setting in self.settings))
            object.__setattr__(self, "trials", len(self.settings))
        elif self.space.is_one_point:  # it is run once
            object.__setattr__(self, "trials", min(self.trials, 1))
        for name in ("trials", "epochs", "engines", "workers_per_trial"):
            at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
        for name, known in (("launcher", LAUNCHERS), ("sampler", SAMPLERS), ("objective", tuple(OBJECTIVES))):
            if getattr(self, name) not in known:
                raise JobError(f"{name}={getattr(self, name)!r} does not exist; there are: {', '.join(known)}")
        if not self.name.strip() or not self.name.isprintable() or len(self.name) > 200:
            raise JobError(f"name={self.name!r} can't be a study's; give a line of at most 200 characters")
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise JobError(f"hours={self.hours!r} is not possible; give a number above 0, or none for no limit")
        self._check_sampler()
        for number, setting in enumerate(self.settings):
            self._check_setting(number, setting)

    def _check_sampler(self) -> None:
        if self.sampler != "cmaes" or self.settings:
            return
        for entry in self.space.entries:
            if entry.kind == "choice" or entry.others or entry.condition:
                raise JobError(
                    f"sampler='cmaes' with {entry.name!r}, which is a choice or has a condition or a value beside its "
                    "range: CMA-ES moves in a space of numbers that all settings have; give sampler='tpe'"
                )

    def _check_setting(self, number: int, setting: Mapping[str, Any]) -> None:
        known: dict[str, Any] = {}
        for entry in self.space.entries:
            if entry.is_active(known) != (entry.name in setting):
                what = "lacks" if entry.is_active(known) else "has"
                raise JobError(f"settings[{number}] {what} {entry.name!r}, against the space; it is {dict(setting)}")
            if entry.name in setting:
                known[entry.name] = setting[entry.name]
                if not _holds(entry, setting[entry.name]):
                    raise JobError(
                        f"settings[{number}] has {entry.name}={setting[entry.name]!r}, which is not in the space; it "
                        f"has {entry}"
                    )
        self.space.parameters(setting)  # refuses names that are not there

    @property
    def placed(self) -> Job:
        """The base on this plan's workers, for its epochs, scored on the held-out part of the training images."""
        many = self.workers_per_trial > 1
        sync = self.base.sync if many and self.base.workers > 1 else ("shared_memory" if many else "local")
        return self.base.with_(
            launcher=self.launcher, sync=sync, strategy="tuning", workers=self.workers_per_trial, threads_per_worker=1,
            cores_per_worker=1, epochs=self.epochs, updates=0, early_stopping_epochs=0, scored_on="held_out",
            per_worker_batch_size=max(1, -(-self.base.global_batch_size // self.workers_per_trial)),
        )  # fmt: skip

    def job(self, setting: Mapping[str, Any], seed: int) -> Job:
        """What a trial trains. Raises JobError for a setting that can't be trained."""
        known = {name: value for name, value in setting.items() if self.base.use_case != OWN or name in OF_TRAINING}
        return self.space.job(self.placed.with_(seed=seed), known)

    def check(self) -> None:
        """Raises JobError if some setting of the space, or of the list, can't be trained, and for an unknown pruner."""
        from lockstep.tuning.pruners import make_pruner

        make_pruner(self.pruner, self.epochs, self.seed)
        if not self.settings and self.base.use_case != OWN:
            self.space.check(self.placed)
        for setting in self.settings or [self.space.draw(self.seed, number) for number in range(_TRIED)]:
            self.job(setting, 0)

    def to_json(self) -> str:
        """The plan as text, from which `from_json` makes it again."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"space": self.space.content, "base": asdict(self.base)}
        return json.dumps(values | {"settings": [dict(setting) for setting in self.settings]}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StudyPlan:
        """Raises JobError, SpaceError for what is no plan."""
        values = json.loads(text)
        base = Job.from_json(json.dumps(values["base"]))
        space = Space.of(values["space"], None)
        return cls(**values | {"base": base, "space": space, "settings": tuple(values["settings"])})

    def lasting(self, **changes: Any) -> StudyPlan:
        """A copy with some fields changed."""
        return replace(self, **changes)


def _holds(entry: SpaceEntry, value: Any) -> bool:
    if among(value, entry.choices) or among(value, entry.others):
        return True
    of_kind = isinstance(value, int if entry.kind == "int" else int | float) and not isinstance(value, bool)
    return entry.kind != "choice" and of_kind and entry.low <= value <= entry.high


OWN = "own"
"""The use case of a reader's own model: `build(setting)` sees all names, a job only those of training."""
OF_TRAINING = (
    "learning_rate", "learning_rate_decay", "rate_warmup_epochs", "weight_decay", "global_batch_size", "class_weights"
)  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """What tells a study from another of the same name: its plan, its images and the code."""

    plan: StudyPlan
    data: Mapping[str, Any]
    version: str = __version__

    def stored(self) -> dict[str, Any]:
        return {"plan": json.loads(self.plan.to_json()), "data": dict(self.data), "version": self.version}

    def check(self, there: Mapping[str, Any], place: str) -> None:
        """Raises StudyError with every difference from what is stored `there`."""
        here = self.stored()
        parts = [("version", there["version"], here["version"])]
        parts += [(f"data: {name}", there["data"].get(name), value) for name, value in here["data"].items()]
        names = [name for name in here["plan"] if name not in _MAY_CHANGE and name not in ("space", "base")]
        parts += [(name, there["plan"].get(name), here["plan"][name]) for name in names]
        for part in ("space", "base"):
            of = there["plan"][part], here["plan"][part]
            parts += [(f"{part}: {name}", *(each.get(name) for each in of)) for name in {**of[0], **of[1]}]
        if self.plan.settings or there["plan"]["settings"]:
            parts.append(("trials", there["plan"]["trials"], here["plan"]["trials"]))
        other = [f"{name}: {old!r} there, {new!r} here" for name, old, new in parts if old != new]
        if other:
            raise StudyError(
                f"{place} holds a study {self.plan.name!r} that differs: {'; '.join(other)}; give this one another "
                "name, or go on with what that one began with"
            )

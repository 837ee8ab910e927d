"""A space of settings as data, validated completely before anything starts; each point of it becomes a `Job`.

    space = Space.read("notebooks/spaces/convlstm.yaml")
    setting = space.draw(seed=0, number=7)            # or space.suggest(trial), of Optuna
    job = space.job(base, setting)                    # base with the options of the setting: there is no second way

`lockstep.tuning.space_entries` says what an entry may hold.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lockstep.engine.job import Job, JobError
from lockstep.engine.options import at_least
from lockstep.tuning.space_entries import SpaceEntry, SpaceError, Value, among, nearest, read_entry

Setting = dict[str, Any]
NAMES: tuple[str, ...] = ("network", "pooling", "dropout", "weight_decay", "batch_norm", "augmentation", "standardise")
NAMES += ("learning_rate", "learning_rate_decay", "rate_warmup_epochs", "global_batch_size", "class_weights")
NAMES += ("lstm_units", "dense_units", "convolutions")
"""The options of a job that a space may vary. What a job is scored on, and how long it trains, is the study's."""
_TRIED = 200  # random settings that are built beforehand, besides all pairs of ends


@dataclass(frozen=True)
class Space:
    """Settings: a value for each entry whose condition holds. `entries` stand behind those that they depend on."""

    entries: tuple[SpaceEntry, ...]
    place: str = "the space"

    @classmethod
    def read(cls, path: str | Path, names: Collection[str] | None = NAMES) -> Space:
        """The space in a YAML or JSON file. Raises SpaceError, as `of` does, and for what can't be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
            content = yaml.load(text, _Loader)
        except OSError as error:
            raise SpaceError(f"{path} can't be read ({error.strerror}); give the file of a space") from None
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise SpaceError(f"{path} is no YAML or JSON: {' '.join(str(error).split())}") from None
        return cls.of(content, names, str(path))

    @classmethod
    def of(cls, content: Any, names: Collection[str] | None = NAMES, place: str = "the space") -> Space:
        """The space that a mapping of names to entries says, checked as far as it can be without a job to vary.

        `names`: those that it may have; None: any, for a model of the reader's own. Raises SpaceError, which names the
        place, the entry and the fix: for an unknown name or kind, an empty or reversed range, a logarithm from 0, a
        condition on a name or a value that is not there, and conditions in a circle.
        """
        if not isinstance(content, Mapping) or not content:
            raise SpaceError(f"{place}: {content!r} is no space; write a mapping of names to their values")
        for name in content:
            if not isinstance(name, str) or (names is not None and name not in names):
                there = f"; there are: {', '.join(names)}" if names is not None else "; give a text"
                raise SpaceError(f"{place}: {name!r} can't be varied{nearest(name, names or ())}{there}")
        entries = {name: read_entry(name, each, f"{place}, {name}") for name, each in content.items()}
        for entry in entries.values():
            _check_condition(entry, entries, f"{place}, {entry.name}")
        needs = {name: list(entry.condition) for name, entry in entries.items()}
        try:
            order = list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            circle = " needs ".join(reversed(error.args[1]))
            raise SpaceError(f"{place}: conditions in a circle: {circle}; leave one of them out") from None
        return cls(tuple(entries[name] for name in order), place)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, each behind those that it depends on."""
        return tuple(entry.name for entry in self.entries)

    @property
    def content(self) -> dict[str, Any]:
        """The space as `of` takes it, in JSON's types."""
        return {entry.name: entry.content for entry in self.entries}

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of what the space holds, in whatever order its entries stand."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def is_one_point(self) -> bool:
        """Is there only one setting? A study of it runs one trial."""
        return all(len(entry.ends) == 1 for entry in self.entries)

    def describe(self) -> str:
        """One line for each entry, and one that says so if there is only one setting."""
        lines = [str(entry) for entry in self.entries]
        return "\n".join(lines + (["only one setting: it runs once"] if self.is_one_point else []))

    def suggest(self, trial: Any) -> Setting:
        """The setting that a trial of Optuna suggests; it is asked for those entries alone whose condition holds."""
        return self._setting(lambda entry: entry.suggest(trial))

    def parameters(self, setting: Mapping[str, Any]) -> dict[str, Value]:
        """The parameters of a setting as Optuna's `enqueue_trial` takes them: a range with a value beside it has two.

        Raises SpaceError for a setting that is not of this space's names.
        """
        self._check_names(setting)
        found: dict[str, Value] = {}
        for entry in self.entries:
            found |= entry.parameters(setting[entry.name]) if entry.name in setting else {}
        return found

    def draw(self, seed: int, number: int) -> Setting:
        """A random setting, a function of both numbers alone; each entry has a stream of its own. Raises JobError for
        numbers below 0."""
        at_least("seed", seed, 0)
        at_least("number", number, 0)

        def drawn(entry: SpaceEntry) -> Value:
            return entry.draw(np.random.default_rng([seed, number, zlib.crc32(entry.name.encode())]))

        return self._setting(drawn)

    def job(self, base: Job, setting: Mapping[str, Any]) -> Job:
        """`base` with the options of `setting`, all others as they are.

        Raises JobError for what can't be trained, SpaceError for a setting that is not of this space's names, or that
        several workers would train otherwise than one.
        """
        self._check_names(setting)
        fields = dict(setting)
        if isinstance(batch := fields.get("global_batch_size"), int):  # else the job refuses it
            fields["per_worker_batch_size"] = max(1, -(-batch // base.replicas))
        job = base.with_(**fields)
        if base.synchronous and not job.synchronous:
            raise SpaceError(
                f"{self.place}: batch_norm=True with workers={base.workers}: each would normalize by its own images; "
                "train each trial by one worker, set sync_batch_norm, or leave batch_norm out of the space"
            )
        from lockstep.engine.usecases import USE_CASES  # torch: figures and reports do not wait for it

        if job.use_case in USE_CASES:
            USE_CASES[job.use_case].for_job(job)
        return job

    def check(self, base: Job) -> None:
        """Build the job of every end of each entry, of all pairs of ends, and of some random settings.

        Raises SpaceError with the entries at fault and what the job says about them.
        """
        for forced in self._corners():
            setting = self._corner(forced)
            if setting is None:
                continue
            try:
                self.job(base, setting)
            except JobError as error:
                # All else stands at its first end, which may be what does not go with it.
                at_fault = {name: value for name, value in setting.items() if name in forced or name in str(error)}
                blamed = " with ".join(f"{name}={value!r}" for name, value in at_fault.items())
                raise SpaceError(f"{self.place}, {blamed}: {error}; or take it out of the space") from error
        for number in range(0 if self.is_one_point else _TRIED):
            setting = self.draw(0, number)
            try:
                self.job(base, setting)
            except JobError as error:
                raise SpaceError(f"{self.place} holds {setting}: {error}; or take it out of the space") from error

    def _corners(self) -> Iterator[dict[str, Value]]:
        """Each end of each entry, then each pair of ends of two entries."""
        for entry in self.entries:
            yield from ({entry.name: value} for value in entry.ends)
        for one, other in itertools.combinations(self.entries, 2):
            yield from ({one.name: a, other.name: b} for a in one.ends for b in other.ends)

    def _corner(self, forced: Mapping[str, Value]) -> Setting | None:
        """The setting with these values, all else at its first end; None if they exclude each other."""
        needed, waiting = dict(forced), list(forced)
        known = {entry.name: entry for entry in self.entries}
        while waiting:
            for name, allowed in known[waiting.pop()].condition.items():
                if name not in needed:
                    needed[name] = allowed[0]
                    waiting.append(name)
                elif not among(needed[name], allowed):
                    return None
        return self._setting(lambda entry: needed.get(entry.name, entry.ends[0]))

    def _setting(self, choose: Callable[[SpaceEntry], Value]) -> Setting:
        found: Setting = {}
        for entry in self.entries:
            if entry.is_active(found):
                found[entry.name] = choose(entry)
        return found

    def _check_names(self, setting: Mapping[str, Any]) -> None:
        for name in setting:
            if name not in self.names:
                raise SpaceError(
                    f"{self.place} has no {name!r}{nearest(name, self.names)}; there are: {', '.join(self.names)}"
                )


def _check_condition(entry: SpaceEntry, entries: Mapping[str, SpaceEntry], place: str) -> None:
    for name, values in entry.condition.items():
        if name not in entries:
            raise SpaceError(
                f"{place}: condition on {name!r}, which is not in the space{nearest(name, entries)}; add it, or leave "
                "the condition out"
            )
        if entries[name].kind != "choice":
            raise SpaceError(f"{place}: condition on {name!r}, which is a range; conditions are on choices")
        for value in values:
            if not among(value, entries[name].choices):
                known = ", ".join(map(repr, entries[name].choices))
                raise SpaceError(f"{place}: condition on {name}={value!r}, which it never is; its choices are {known}")


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-4 is a number, as in JSON, and a name that stands twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise yaml.YAMLError(f"{name!r} stands there twice, {node.start_mark}; give it once")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)

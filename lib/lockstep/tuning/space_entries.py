"""One entry of a space: a name, and the values that it may have.

    learning_rate: {kind: float, range: [0.0001, 0.01], log: true}
    weight_decay: {kind: float, range: [0.000001, 0.001], log: true, or: 0}
    network: {kind: choice, choices: [cnn, convlstm]}
    lstm_units: {kind: int, range: [32, 256], log: true, condition: {network: [convlstm]}}

`or` is one more value beside a range, which half of the settings have. Under a `condition` an entry has a value only
where each of the named choices is one of these.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.engine.options import JobError

Value = str | int | float | bool
KINDS = ("float", "int", "choice")
_KEYS = ("kind", "range", "choices", "log", "or", "condition")
_DIGITS = 6  # of a random number: enough to say it, and to read it again exactly


class SpaceError(JobError):
    """A space that can't be searched; the message names the file, the entry and the fix."""


@dataclass(frozen=True)
class SpaceEntry:
    """A name and its values: `choices`, or those from `low` to `high`, both included, and those of `others`."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Value, ...] = ()
    others: tuple[Value, ...] = ()  # the value of `or`, if there is one
    condition: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[Value, ...]:
        """All choices, or the ends of the range and the value beside it: what is tried before a study starts."""
        if self.kind == "choice":
            return self.choices
        return tuple(dict.fromkeys((*self.others, self._typed(self.low), self._typed(self.high))))

    @property
    def branch(self) -> str:
        """The name of the parameter that says whether the value is in the range, where one stands beside it."""
        return f"{self.name} in range"

    def is_active(self, setting: Mapping[str, Any]) -> bool:
        """Has this entry a value beside those of `setting`, which hold all entries that it depends on?"""
        return all(name in setting and among(setting[name], values) for name, values in self.condition.items())

    def suggest(self, trial: Any) -> Value:
        """The value that a trial of Optuna suggests."""
        if self.kind == "choice":
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.others and not trial.suggest_categorical(self.branch, [True, False]):
            return self.others[0]
        ask = trial.suggest_int if self.kind == "int" else trial.suggest_float
        return ask(self.name, self._typed(self.low), self._typed(self.high), log=self.log)

    def parameters(self, value: Value) -> dict[str, Value]:
        """What `suggest` would have asked Optuna for to get this value."""
        if not self.others:
            return {self.name: value}
        beside = among(value, self.others)
        return {self.branch: False} if beside else {self.branch: True, self.name: value}

    def draw(self, random: np.random.Generator) -> Value:
        """A random value: each choice alike, numbers uniform, or uniform in their logarithm."""
        if self.kind == "choice":
            return self.choices[int(random.integers(len(self.choices)))]
        if self.others and random.random() < 0.5:
            return self.others[0]
        half = 0.5 if self.kind == "int" else 0.0  # so that the ends of whole numbers are as likely as the others
        low, high = self.low - half, self.high + half
        found = math.exp(random.uniform(math.log(low), math.log(high))) if self.log else random.uniform(low, high)
        found = round(found) if self.kind == "int" else float(f"{found:.{_DIGITS}g}")
        return self._typed(min(max(found, self.low), self.high))

    def _typed(self, number: float) -> int | float:
        return int(number) if self.kind == "int" else float(number)

    @property
    def content(self) -> dict[str, Any]:
        """The entry as a file has it."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.kind == "choice":
            found["choices"] = list(self.choices)
        else:
            found["range"] = [self._typed(self.low), self._typed(self.high)]
            found |= {"log": True} if self.log else {}
            found |= {"or": self.others[0]} if self.others else {}
        condition = {name: list(values) for name, values in self.condition.items()}
        return found | ({"condition": condition} if condition else {})

    def __str__(self) -> str:
        if self.kind == "choice":
            text = " | ".join(map(str, self.choices))
        else:
            text = f"{self.low:g} to {self.high:g}{', whole' * (self.kind == 'int')}{', log' * self.log}"
            text += f", or {self.others[0]}" if self.others else ""
        given = (f"{name} = {' | '.join(map(str, values))}" for name, values in self.condition.items())
        return f"{self.name}: {text}" + (f"; only with {', '.join(given)}" if self.condition else "")


def read_entry(name: str, content: Any, place: str) -> SpaceEntry:
    """The entry that `content`, as a file has it, says. Raises SpaceError; `place` begins its messages."""
    if not isinstance(content, Mapping):
        raise SpaceError(f"{place}: {content!r} says no values; write kind, and range or choices")
    for key in content:
        if key not in _KEYS:
            raise SpaceError(f"{place}: {key!r} does not exist{nearest(key, _KEYS)}; there are: {', '.join(_KEYS)}")
    kind = content.get("kind")
    if kind not in KINDS:
        raise SpaceError(f"{place}: kind={kind!r} does not exist; there are: {', '.join(KINDS)}")
    needed, other = ("choices", ("range", "log", "or")) if kind == "choice" else ("range", ("choices",))
    if needed not in content:
        raise SpaceError(f"{place}: kind {kind} needs {needed}; add it")
    if wrong := [key for key in other if key in content]:
        raise SpaceError(f"{place}: {wrong[0]!r} does nothing with kind {kind}; leave it out")
    condition = _condition(content.get("condition", {}), place)
    if kind == "choice":
        return SpaceEntry(name, kind, choices=_values(content["choices"], f"{place}: choices"), condition=condition)
    low, high = _range(content["range"], kind, place)
    log = content.get("log", False)
    if not isinstance(log, bool):
        raise SpaceError(f"{place}: log={log!r} is neither true nor false")
    if log and low <= 0:
        raise SpaceError(
            f"{place}: range from {low:g} with log: the logarithm of {low:g} does not exist; begin above 0, and write "
            "`or: 0` if 0 is a value too"
        )
    others = (_values([content["or"]], f"{place}: or")) if "or" in content else ()
    return SpaceEntry(name, kind, low, high, log, others=others, condition=condition)


def _range(given: Any, kind: str, place: str) -> tuple[float, float]:
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise SpaceError(f"{place}: range={given!r} is none; write [least, most]")
    for end in given:
        fits = isinstance(end, int if kind == "int" else int | float) and not isinstance(end, bool)
        if not fits or not math.isfinite(end):
            raise SpaceError(f"{place}: {end!r} in range is no {'whole ' * (kind == 'int')}number; give one")
    low, high = given
    if low > high:
        raise SpaceError(f"{place}: range={list(given)} is empty, for it begins above its end; write [{high}, {low}]")
    return low, high


def _values(given: Any, place: str) -> tuple[Value, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SpaceError(f"{place}={given!r} is no list; write [{given}]")
    if not given:
        raise SpaceError(f"{place} is empty; name one value at least")
    for number, value in enumerate(given):
        if not isinstance(value, str | int | float | bool):
            raise SpaceError(f"{place}: {value!r} is no text, number, true or false; write one")
        if isinstance(value, float) and not math.isfinite(value):
            raise SpaceError(f"{place}: {value!r} is no number; give one")
        if among(value, given[:number]):
            raise SpaceError(f"{place}: {value!r} stands there twice; give it once")
    return tuple(given)


def _condition(given: Any, place: str) -> dict[str, tuple[Value, ...]]:
    if not isinstance(given, Mapping):
        raise SpaceError(f"{place}: condition={given!r} is none; write {{name: [values]}}")
    listed = {name: values if isinstance(values, list | tuple) else [values] for name, values in given.items()}
    return {str(name): _values(values, f"{place}: condition on {name}") for name, values in listed.items()}


def nearest(name: object, known: Collection[str]) -> str:
    """`; nearest: ...` of the known names that look most like this one; empty if none does."""
    close = difflib.get_close_matches(str(name), list(known), n=3)
    return f"; nearest: {', '.join(close)}" if close else ""


def among(value: Any, values: Collection[Any]) -> bool:
    """Is `value` one of `values`? True is not 1 here."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)

"""Options: the default, the allowed values and the meaning of a field of a job.

An `Option` is declared beside the code that reads it: those of a sync in its file, those of the machine in the part of
`Job` that describes the machine. The checks of a job, the columns of the records and `lockstep strategies` read it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

KINDS = {bool: "bool", int: "int", float: "float", str: "str"}
"""The types that a column of the records can have, by the type of the default."""


class JobError(ValueError):
    """A job that can't be run; the message names the field, its value and the fix."""


class TooShort(JobError):
    """Minutes that hold no round of what is to be measured."""


@dataclass(frozen=True)
class Option:
    """One field of a job. The type of its default is the type of all its values.

    `choices` are the allowed values of a text, all of them; `parse` raises JobError for a text that does not fit.
    Numbers lie between `least` and `most`, or, where the bound itself is not allowed, `above` and `below`.
    `same_on_resume`: whether a run that resumes a checkpoint must have the value that the checkpoint was written with,
    because it changes the parameters that training reaches. `goes_with` is given all fields of a job whose strategy
    declares the option, and raises JobError where its value does not go with theirs. `of_replica`: the strategy offers
    it, and the replica reads it.
    """

    name: str
    default: Any
    help: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    parse: Callable[[Any], object] | None = None
    same_on_resume: bool = True
    goes_with: Callable[[Mapping[str, Any]], None] | None = None
    of_replica: bool = False

    def __post_init__(self) -> None:
        if type(self.default) not in KINDS:
            raise TypeError(f"option {self.name!r}: default {self.default!r} is not a text, a number, True or False")

    @property
    def kind(self) -> str:
        """bool | int | float | str"""
        return KINDS[type(self.default)]

    @property
    def allowed(self) -> str:
        """The allowed values in words, such as `none | topk` or `a whole number of at least 1`; may be empty."""
        if self.kind == "bool":
            return "False | True"
        return " | ".join(self.choices) if self.choices else self._range

    @property
    def _range(self) -> str:
        bounds = [("of at least", self.least), ("above", self.above), ("of at most", self.most), ("below", self.below)]
        said = " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)
        what = {"int": "a whole number", "float": "a number"}.get(self.kind, "")
        return f"{what} {said}".strip()

    def check(self, value: Any) -> None:
        """Raises JobError, which names the option, the value and what is allowed."""
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise JobError(f"{self.name}={value!r} is neither True nor False")
        elif self.choices:
            if value not in self.choices:
                raise JobError(f"{self.name}={value!r} does not exist; there are: {', '.join(self.choices)}")
        elif self.kind != "str" and not self._is_possible(value):
            raise JobError(f"{self.name}={value!r} is not possible; give {self._range}")
        if self.parse is not None:
            self.parse(value)

    def _is_possible(self, value: Any) -> bool:
        number = isinstance(value, int if self.kind == "int" else int | float) and not isinstance(value, bool)
        return (
            number
            and math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )


def option(default: Any, help: str = "", **rules: Any) -> Any:
    """A field of a part of `Job`, with the rules of an `Option`; the field's own name becomes the option's."""
    return dataclasses.field(default=default, metadata={"option": Option("", default, help, **rules)})


def choice(*choices: str, help: str = "", **rules: Any) -> Any:
    """A field of a part of `Job` that holds one of `choices`; the first one is the default."""
    return option(choices[0], help, choices=choices, **rules)


def options_of(kind: Any) -> dict[str, Option]:
    """The option behind each field of a dataclass, by name. Raises JobError for a default that its option refuses."""
    declared = ((field.name, field.metadata["option"]) for field in dataclasses.fields(kind))
    found = {name: dataclasses.replace(each, name=name) for name, each in declared}
    for each in found.values():
        each.check(each.default)
    return found


def at_least(name: str, value: Any, least: int) -> None:
    """Raises JobError for a value that is not a whole number of at least `least`."""
    Option(name, least, least=least).check(value)

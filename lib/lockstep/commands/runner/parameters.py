"""The check of what a profile or `-p` gives a notebook for its parameters (`lockstep.experiments.parameters`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lockstep.commands.runner.errors import RunError
from lockstep.experiments.parameters import Parameter


def check_names(names: Iterable[str], known: Mapping[str, Mapping[str, Parameter]], place: str) -> None:
    """`known`: the parameters of each notebook. Raises RunError for a name that none has, listing what each has."""
    for name in names:
        if not any(name in own for own in known.values()):
            close = difflib.get_close_matches(str(name), [there for own in known.values() for there in own], n=1)
            exist = [f"{notebook} has {_listing(own)}" for notebook, own in known.items()]
            meant = f"did you mean {close[0]}?" if close else "leave it out, or choose one that exists:"
            raise RunError(f"{place}: there is no parameter {name!r}; {meant} {'; '.join(exist)}")


def check_values(given: Mapping[str, Any], known: Mapping[str, Parameter], place: str) -> dict[str, Any]:
    """What `place` (a profile, `-p`) gives, each value checked. Raises RunError for an unknown name, ParameterError
    for a wrong type."""
    check_names(given, {"the notebook": known}, place)
    return {name: known[name].accept(value, place) for name, value in given.items()}


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`["workers=2", "names=[a, b]"]` as names and YAML values. Raises RunError if one is not name=value."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise RunError(f"-p {assignment!r} is not name=value; write for example -p workers=2")
        if name.strip() in values:
            raise RunError(f"-p {name.strip()} is given twice; give it once")
        try:
            values[name.strip()] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise RunError(f"-p {assignment!r}: the value is not YAML ({error}); quote it") from error
    return values


def read_profile(path: Path) -> dict[str, dict[str, Any]]:
    """A profile: for each notebook the values that differ from its defaults. Raises RunError if it is not that."""
    if not path.is_file():
        there = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml"))) or "none"
        raise RunError(f"profile {path.stem!r} does not exist; there are: {there}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise RunError(f"profile {path.name} is not YAML: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(values or {}, dict) for values in content.values()):
        raise RunError(f"profile {path.name} must map a notebook's name to its parameters, each as name: value")
    return {str(notebook): dict(values or {}) for notebook, values in content.items()}


def _listing(known: Mapping[str, Parameter]) -> str:
    return ", ".join(f"{p.name}: {p.type_name} = {p.default!r}" for p in known.values()) or "none to set"

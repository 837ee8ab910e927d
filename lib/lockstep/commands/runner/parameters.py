"""A notebook's parameters: their names, types and defaults, and the check of what a profile or `-p` gives."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lockstep.commands.runner.errors import RunError

SCALARS = ("int", "float", "bool", "str")
CONTAINERS = ("list", "dict")


@dataclass(frozen=True)
class Parameter:
    """One line of the `parameters` cell."""

    name: str
    kind: str  # int | float | bool | str | list | dict
    element: str  # of a list's elements or a dict's values: one of SCALARS, or "" for anything
    default: Any

    @property
    def type_name(self) -> str:
        if self.kind == "list" and self.element:
            return f"list[{self.element}]"
        return f"dict[str, {self.element}]" if self.kind == "dict" and self.element else self.kind

    def accept(self, value: Any, place: str) -> Any:
        """`value` as this parameter's type; an int is taken for a float. Raises RunError otherwise."""
        fits, converted = _convert(self.kind, value)
        if fits and self.element and self.kind == "list":
            elements = [_convert(self.element, item) for item in converted]
            fits, converted = all(ok for ok, _ in elements), [item for _, item in elements]
        if fits and self.element and self.kind == "dict":
            values = {key: _convert(self.element, item) for key, item in converted.items()}
            fits, converted = all(ok for ok, _ in values.values()), {key: item for key, (_, item) in values.items()}
        if not fits:
            hint = f"; write '{self.name}=\"{value}\"' for a text" if self.kind == "str" else ""
            raise RunError(
                f"{place}: {self.name}={value!r} is {type(value).__name__}, but {self.name} is {self.type_name} "
                f"(default {self.default!r}){hint}"
            )
        return converted


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook, in its order.

    The cell is parsed as Python, since papermill's own inspection returns defaults as text and reads no annotation.
    Raises RunError if there is not exactly one cell tagged `parameters`, or if a line is not `name: type = literal`.
    """
    try:
        # As JSON: importing nbformat takes seconds, and a mistyped name should be told at once.
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{notebook} can't be read as a notebook: {error!r}") from error
    tagged = ["".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1:
        raise RunError(f"{notebook.name} has {len(tagged)} cells tagged 'parameters'; it needs exactly one")
    try:
        lines = ast.parse(tagged[0]).body
    except SyntaxError as error:
        raise RunError(f"{notebook.name}: the parameters cell is not Python: {error}") from error
    found = [_of_line(line, notebook.name) for line in lines if not _is_text(line)]
    return {parameter.name: parameter for parameter in found}


def check_names(names: Iterable[str], known: Mapping[str, Mapping[str, Parameter]], place: str) -> None:
    """`known`: the parameters of each notebook. Raises RunError for a name that none has, listing what each has."""
    for name in names:
        if not any(name in own for own in known.values()):
            close = difflib.get_close_matches(str(name), [there for own in known.values() for there in own], n=1)
            exist = [f"{notebook} has {_listing(own)}" for notebook, own in known.items()]
            meant = f"did you mean {close[0]}?" if close else "leave it out, or choose one that exists:"
            raise RunError(f"{place}: there is no parameter {name!r}; {meant} {'; '.join(exist)}")


def check_values(given: Mapping[str, Any], known: Mapping[str, Parameter], place: str) -> dict[str, Any]:
    """What `place` (a profile, `-p`) gives, each value checked. Raises RunError for an unknown name or a wrong type."""
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


def _convert(kind: str, value: Any) -> tuple[bool, Any]:
    if kind == "float":
        if isinstance(value, str):  # YAML reads 1e-3 as a text
            try:
                return True, float(value)
            except ValueError:
                return False, value
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return fits, float(value) if fits else value
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool), value
    return isinstance(value, {"bool": bool, "str": str, "list": list, "dict": dict}[kind]), value


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)


def _of_line(line: ast.stmt, place: str) -> Parameter:
    target = line.target if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [None])[0]
    if not isinstance(line, ast.AnnAssign | ast.Assign) or not isinstance(target, ast.Name) or line.value is None:
        raise RunError(f"{place}: the parameters cell holds {ast.unparse(line)!r}; write name: type = value")
    try:
        default = ast.literal_eval(line.value)
    except ValueError as error:
        raise RunError(
            f"{place}: the default of {target.id} is not a plain value: {ast.unparse(line.value)}"
        ) from error
    annotation = line.annotation if isinstance(line, ast.AnnAssign) else None
    kind, element = _annotated(annotation) if annotation else _inferred(default)
    if kind not in (*SCALARS, *CONTAINERS):
        raise RunError(
            f"{place}: the type of {target.id} is {ast.unparse(annotation) if annotation else kind!r}; "
            f"a parameter is {', '.join(SCALARS)}, list[...] or dict[str, ...]"
        )
    parameter = Parameter(target.id, kind, element, default)
    parameter.accept(default, f"{place}, parameters cell")
    return parameter


def _annotated(annotation: ast.expr) -> tuple[str, str]:
    if isinstance(annotation, ast.Subscript):
        inner = annotation.slice.elts[-1] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
        element = ast.unparse(inner)
        return ast.unparse(annotation.value), element if element in SCALARS else ""
    return ast.unparse(annotation), ""


def _inferred(default: Any) -> tuple[str, str]:
    items = list(default) if isinstance(default, list) else []
    kinds = {type(item).__name__ for item in items}
    element = kinds.pop() if len(kinds) == 1 else ""
    return type(default).__name__, element if element in SCALARS else ""

"""A notebook's parameters: their names, types and defaults, read from the notebook's own cell.

The one reader of that cell: the runner checks with it what a profile or `-p` gives, and an experiment opens itself with
the names.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.experiments.refusals import unlike

SCALARS = ("int", "float", "bool", "str")
CONTAINERS = ("list", "dict")


class ParameterError(ValueError):
    """A parameters cell that can't be read, or a value of another type; the message names the place and the fix."""


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
        """`value` as this parameter's type; an int is taken for a float. Raises ParameterError otherwise."""
        fits, converted = _convert(self.kind, value)
        if fits and self.element and self.kind == "list":
            elements = [_convert(self.element, item) for item in converted]
            fits, converted = all(ok for ok, _ in elements), [item for _, item in elements]
        if fits and self.element and self.kind == "dict":
            values = {key: _convert(self.element, item) for key, item in converted.items()}
            fits, converted = all(ok for ok, _ in values.values()), {key: item for key, (_, item) in values.items()}
        if not fits:
            hint = f"; write '{self.name}=\"{value}\"' for a text" if self.kind == "str" else ""
            raise ParameterError(
                f"{place}: {self.name}={value!r} is {type(value).__name__}, but {self.name} is {self.type_name} "
                f"(default {self.default!r}){hint}"
            )
        if found := unlike(converted, self.default):
            raise ParameterError(f"{place}: {self.name}={value!r}: {found}; give one like {self.default!r}")
        return converted


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook, in its order.

    The cell is parsed as Python, since papermill's own inspection returns defaults as text and reads no annotation.
    Raises ParameterError if there is not exactly one cell tagged `parameters`, or for a line that is not
    `name: type = literal`.
    """
    try:
        # As JSON: importing nbformat takes seconds, and a mistyped name should be refused at once.
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ParameterError(f"{notebook} can't be read as a notebook: {error!r}") from error
    tagged = ["".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1:
        raise ParameterError(f"{notebook.name} has {len(tagged)} cells tagged 'parameters'; it needs exactly one")
    try:
        lines = ast.parse(tagged[0]).body
    except SyntaxError as error:
        raise ParameterError(f"{notebook.name}: the parameters cell is not Python: {error}") from error
    found = [_of_line(line, notebook.name) for line in lines if not _is_text(line)]
    return {parameter.name: parameter for parameter in found}


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
        raise ParameterError(f"{place}: the parameters cell holds {ast.unparse(line)!r}; write name: type = value")
    try:
        default = ast.literal_eval(line.value)
    except ValueError as error:
        raise ParameterError(
            f"{place}: the default of {target.id} is not a plain value: {ast.unparse(line.value)}"
        ) from error
    annotation = line.annotation if isinstance(line, ast.AnnAssign) else None
    kind, element = _annotated(annotation) if annotation else _inferred(default)
    if kind not in (*SCALARS, *CONTAINERS):
        raise ParameterError(
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

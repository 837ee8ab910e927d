"""`module:name` as the object of that name, from the reader's own folder too; the nearest names if there is none."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.advisor.calibration import CalibrationError
from lockstep.engine.files import repository_above

_MOST_FILES = 5000  # of a package that are looked through for a name


def make_importable() -> None:
    """Modules of the working folder, and of the clone of Lockstep that holds it, can be imported from now on.

    Workers get this process's sys.path.
    """
    here = Path.cwd()
    root = repository_above(here)
    for place, folder in ((0, here), (len(sys.path), root)):
        if folder is not None and str(folder) not in sys.path:
            sys.path.insert(place, str(folder))


def referred(reference: str, option: str = "--model") -> Any:
    """The object that `reference` names. Raises CalibrationError, which names what is wrong and what comes near it."""
    module_name, colon, name = reference.partition(":")
    if not colon or not module_name.strip() or not name.strip():
        raise CalibrationError(
            f"{option} {reference!r} must be module:name, such as lockstep.engine.models.alexnet:alexnet"
        )
    make_importable()
    module = _module(module_name.strip(), option, reference)
    found: Any = module
    for part in name.strip().split("."):
        if not hasattr(found, part):
            public = [each for each in dir(found) if not each.startswith("_")]
            raise CalibrationError(f"{option} {reference!r}: {module_name} has no {part!r}{_nearest(part, public)}")
        found = getattr(found, part)
    return found


def _module(name: str, option: str, reference: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise CalibrationError(
                f"{option} {reference!r}: importing {name} fails: {error}; install what it needs"
            ) from error
        raise CalibrationError(
            f"{option} {reference!r}: there is no module {error.name!r}{_nearest(name, _modules_like(name))}"
        ) from None
    except (Exception, SystemExit) as error:
        raise CalibrationError(
            f"{option} {reference!r}: importing {name} fails with {type(error).__name__}: {error}"
        ) from error


def _modules_like(name: str) -> list[str]:
    """Full names of modules among which `name` may have been meant: those of the same package, or of the top."""
    parts = name.replace("/", ".").split(".")
    for length in range(len(parts) - 1, 0, -1):
        package = ".".join(parts[:length])
        with contextlib.suppress(Exception):
            spec = importlib.util.find_spec(package)
            if spec is not None and spec.submodule_search_locations:
                return _files_below(package, list(spec.submodule_search_locations))
    return sorted({found.name for found in pkgutil.iter_modules()} | set(sys.builtin_module_names))


def _files_below(package: str, folders: list[str]) -> list[str]:
    found: list[str] = []
    for folder in folders:
        for path, _, files in os.walk(folder):
            inside = os.path.relpath(path, folder).replace(os.sep, ".")
            prefix = package if inside == "." else f"{package}.{inside}"
            found += [f"{prefix}.{file[:-3]}" for file in files if file.endswith(".py") and file != "__init__.py"]
            if len(found) > _MOST_FILES:
                break
    return found


def _nearest(name: str, names: list[str]) -> str:
    """`; did you mean a or b?`, or what there is, if it is little."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    last = name.rpartition(".")[2]
    near = near or [each for each in names if each.rpartition(".")[2] == last][:3]
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are: {', '.join(sorted(names))}" if 0 < len(names) <= 12 else ""


def checked_arguments(
    factory: Any, given: Mapping[str, Any], numbers: Mapping[tuple[str, ...], int], reference: str
) -> dict[str, Any]:
    """The arguments to call `factory` with: `given`, and each of `numbers` (names that a parameter may have -> its
    value, 0: none) where the factory has such a parameter. Raises CalibrationError for missing and unknown ones."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # built in C
        return dict(given)
    arguments = dict(given)
    for names, number in numbers.items():
        taken = [name for name in names if name in parameters]
        if number and taken and taken[0] not in arguments:
            arguments[taken[0]] = number
    named = {n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in arguments:
            if name not in named:
                there_are = f"; it takes: {', '.join(named)}" if named else "; it takes none"
                raise CalibrationError(
                    f"--model-args {name!r}: {reference} has no such argument{_nearest(name, [*named]) or there_are}"
                )
    required = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in arguments
    ]
    if required:
        sample = ", ".join(f'"{name}": ...' for name in required)
        counts = [name for names in numbers for name in names if name in required]
        hint = " or, for a number of classes, --classes" if counts else ""
        raise CalibrationError(
            f"--model {reference!r} needs {'arguments' if len(required) > 1 else 'an argument'}: "
            f"{', '.join(required)}; give --model-args '{{{sample}}}'{hint}"
        )
    return arguments

"""A calibration as a JSON file that can be handed on: written whole or not at all, and checked field by field.

    {"schema": 1, "model": {...}, "machine": {...}, "cells": [{...}, ...], "optimiser_seconds": [...], ...}

The fields are those of `lockstep.advisor.calibration.Calibration`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

from lockstep.advisor.calibration import (
    SCHEMA,
    CalibratedMachine,
    CalibratedModel,
    Calibration,
    CalibrationCell,
    CalibrationError,
)
from lockstep.engine.files import write_atomically
from lockstep.predict.layout_model import LayerTime

_AT_LEAST_ONE = (
    "workers", "per_worker_batch_size", "threads_per_worker", "parameters", "gradient_bytes", "cores", "memory_bytes"
)  # fmt: skip
"""Whole numbers that are never 0. No number of a calibration is negative."""
_OF_ROUNDS = ("step_seconds", "compute_seconds", "exchange_seconds", "update_seconds")
_MADE_BY = "calibrate anew with `lockstep advise --save`"


def write_calibration(path: str | Path, calibration: Calibration) -> None:
    """Raises WriteError if the file can't be written."""
    text = json.dumps(dataclasses.asdict(calibration), indent=1, allow_nan=False)
    write_atomically(Path(path), text + "\n")


def read_calibration(path: str | Path) -> Calibration:
    """Raises CalibrationError for a file that is not there, is no JSON, is of another schema, lacks a field, has an
    unknown one, or holds a value of another type, a negative or infinite number, or lists that don't go together."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"calibration {str(path)!r} can't be read: {_reason(error)}") from error
    return parse_calibration(text, str(path))


def parse_calibration(text: str, name: str = "the text") -> Calibration:
    """The calibration of a file's text; `name` begins every message. Raises CalibrationError."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, a number of thousands of digits, lists in lists in lists
        raise CalibrationError(f"calibration {name!r} is no JSON ({str(error)[:100]}); {_MADE_BY}") from None
    if not isinstance(values, dict) or "schema" not in values:
        raise CalibrationError(f"calibration {name!r} has no field 'schema', so it is none; {_MADE_BY}")
    if values["schema"] != SCHEMA:
        raise CalibrationError(
            f"calibration {name!r} has schema {values['schema']!r}, and this version of Lockstep reads {SCHEMA}; "
            f"{_MADE_BY}, or use the version that wrote it"
        )
    found: Calibration = _read(Calibration, values, f"calibration {name!r}")
    _check_together(found, f"calibration {name!r}")
    return found


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is no text"


def _read(kind: Any, value: Any, place: str) -> Any:
    """`value` as `kind`: a dataclass, a tuple or dict of some kind, a number or a text. Raises CalibrationError."""
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, place)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _read_tuple(inner, value, place)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(place, value, "an object")
        return {str(key): _read(inner[1], each, f"{place}: {key}") for key, each in value.items()}
    if kind is str:
        if not isinstance(value, str):
            raise _wrong(place, value, "a text")
        return value
    return _read_number(kind, value, place)


def _read_tuple(inner: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(place, value, "a list")
    if inner[-1] is ...:
        return tuple(_read(inner[0], each, f"{place}: {number}") for number, each in enumerate(value))
    if len(value) != len(inner):
        raise _wrong(place, value, f"a list of {len(inner)}")
    return tuple(_read(kind, each, place) for kind, each in zip(inner, value, strict=True))


def _read_fields(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(place, value, "an object")
    hints = typing.get_type_hints(kind, localns={"LayerTime": LayerTime})
    known = {each.name: each for each in dataclasses.fields(kind)}
    unknown = [name for name in value if name not in known]
    if unknown:
        raise CalibrationError(f"{place}: field {unknown[0]!r} is unknown; {_MADE_BY}")
    given = {}
    for name, each in known.items():
        if name not in value:
            if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
                raise CalibrationError(f"{place}: field {name!r} is missing; {_MADE_BY}")
            continue
        given[name] = _read(hints[name], value[name], f"{place}: {name}")
        if name in _AT_LEAST_ONE and given[name] < 1:
            raise _wrong(f"{place}: {name}", value[name], "at least 1")
    return kind(**given)


def _read_number(kind: Any, value: Any, place: str) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and not isinstance(value, int)):
        raise _wrong(place, value, "a whole number" if kind is int else "a number")
    if not 0 <= value <= sys.float_info.max:  # NaN, infinity, and whole numbers that no float holds
        raise _wrong(place, value, "a finite number of at least 0")
    return kind(value)


def _wrong(place: str, value: Any, wanted: str) -> CalibrationError:
    try:
        shown = json.dumps(value)
    except RecursionError:
        shown = "nested too deeply"
    return CalibrationError(f"{place} is {shown[:60]}{'...' if len(shown) > 60 else ''}, and must be {wanted}")


def _check_together(calibration: Calibration, place: str) -> None:
    """Raises CalibrationError unless there is a cell of one worker, and each cell's lists are of the same rounds."""
    for number, cell in enumerate(calibration.cells):
        lengths = {name: len(getattr(cell, name)) for name in _OF_ROUNDS}
        lengths |= {"step_spread": len(cell.step_spread)} if cell.step_spread else {}
        if len(set(lengths.values())) > 1 or not cell.step_seconds:
            raise CalibrationError(f"{place}: cells: {number} has lists of different rounds, or of none: {lengths}")
        if not all(cell.step_seconds):
            raise CalibrationError(f"{place}: cells: {number}: step_seconds holds 0; a step takes some time")
    if not any(_is_baseline(cell) for cell in calibration.cells):
        raise CalibrationError(f"{place}: cells: none is of one worker with one thread; {_MADE_BY}")


def _is_baseline(cell: CalibrationCell) -> bool:
    return cell.workers == 1 and cell.threads_per_worker == 1


def without_paths(text: str) -> str:
    """`text` with only the last part of what looks like a path, so that a file can be handed on."""
    return re.sub(r"(?<![\w.])(?:[A-Za-z]:|~|\.{1,2})?(?:[\\/]+[^\s\\/'\",;:()]+)+[\\/]*", _last_part, text)


def _last_part(path: re.Match[str]) -> str:
    return re.split(r"[\\/]", path[0].rstrip("\\/"))[-1]


def differences(
    calibration: Calibration, machine: CalibratedMachine | None, model: CalibratedModel | None = None
) -> list[str]:
    """What `machine` and `model` differ in from those that were calibrated, in words; None is not compared.

    Memory counts as different from 5 % on: what a system keeps for itself varies.
    """
    found: list[str] = []
    for kind, there, here in (("machine", calibration.machine, machine), ("model", calibration.model, model)):
        if here is None:
            continue
        for each in dataclasses.fields(there):
            calibrated, own = getattr(there, each.name), getattr(here, each.name)
            alike = each.name == "memory_bytes" and abs(calibrated - own) <= 0.05 * max(calibrated, own)
            if calibrated != own and not alike:
                named = each.name.replace("_", " ")
                if each.name == "memory_bytes":
                    named, calibrated, own = "memory", f"{calibrated / 2**30:.1f} GiB", f"{own / 2**30:.1f} GiB"
                found.append(f"{kind}'s {named}: {calibrated} was calibrated, {own} is here")
    return found

"""Whether stored rows are what was measured: values in their range, no cell twice in a round, no byte changed since.

    records.csv    header, then one row per cell and round
    checks.csv     round,crc32: one line for each of those rows, written just before it

A row that does not fit is named by file and line. Reading refuses it; a run that goes on in its folder drops the round
and measures it again. Folders without checks.csv are older, or shortened: only their values are looked at.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.files import clear_errors, write_atomically
from lockstep.engine.job import IDENTITY, Job
from lockstep.engine.options import JobError
from lockstep.records.schema import ADDED, COLUMNS, MEASUREMENTS, RecordError

CHECKS = "checks.csv"
_HEADER = "round,crc32"
_MOST = {"s": 1e9, "images_per_second": 1e9}
_MOST_OF_ALL = 1e18
_POSITIVE = ("images_per_second", "step_seconds")
_FIX = "measure its round again (lockstep run), or give another folder"
_CELL = (*IDENTITY, "source")


def most_of(name: str) -> float:
    """The largest value that a measurement may have: more is no measurement."""
    if "accuracy" in name or name == "test_auc":
        return 1.0
    return _MOST.get(name, _MOST.get(MEASUREMENTS[name].unit, _MOST_OF_ALL))


def misfit_of(row: Mapping[str, Any]) -> str:
    """What is wrong with a row whose values have the types of their columns; empty if nothing is."""
    for name, option in Job.options().items():
        try:
            if option.kind in ("int", "float"):
                option.check(row[name])
        except JobError as error:
            return str(error)
    if row["session"] < 0:
        return f"session={row['session']!r} is not possible; sessions are numbered from 0, as in run.json"
    for name in MEASUREMENTS:
        value = row[name]
        if value is None or value != value:
            continue
        if not (0 <= value <= most_of(name)) or (name in _POSITIVE and value == 0):
            lowest = "above 0" if name in _POSITIVE else "from 0"
            return f"{name}={value!r} was never measured: it lies {lowest} to {most_of(name):g}"
    return ""


def problem_of_text(fields: Mapping[str, str]) -> str:
    """The same of a row as it stands in the file."""
    row: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        text = fields.get(name)
        if text is None:
            return f"{name} is missing"
        if column.allowed and text not in column.allowed:
            return f"{name}={text!r} is not allowed; there are: {', '.join(column.allowed)}"
        try:
            row[name] = _value(column.kind, text, name in MEASUREMENTS)
        except ValueError:
            return f"{name}={text!r} is not {column.kind}"
    return misfit_of(row)


def _value(kind: str, text: str, may_lack: bool) -> Any:
    if kind == "text":
        return text
    if not text and may_lack:
        return math.nan
    if kind == "flag":
        if text not in ("True", "False"):
            raise ValueError(text)
        return text == "True"
    return int(float(text)) if kind == "integer" and float(text).is_integer() else _number(kind, text)


def _number(kind: str, text: str) -> float:
    if kind == "integer":
        raise ValueError(text)
    return float(text)


def check_unique(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raises RecordError if a cell stands twice in its round."""
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        cell = tuple(row[name] for name in _CELL)
        if cell in seen:
            raise RecordError(f"round {row['round']} holds {_named(row)} twice; merge its visits into one row")
        seen.add(cell)


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['experiment']} {row['strategy']} of {row['use_case']} with {row['workers']} worker(s)"


@dataclass
class Damage:
    """What is wrong with a file of records: `said` in sentences, the `rounds` that must be measured again, and the
    `sound` lines of all others, without the header."""

    said: list[str]
    rounds: set[int]
    sound: list[bytes]


def damage(path: Path) -> Damage:
    """Slow, for every field is parsed: ask `intact` and `plausible` first."""
    header, *lines = _lines(path)
    names = _fields(header)
    if not set(COLUMNS) - set(_defaults(names)) <= set(names):
        return Damage([f"{path}, line 1: these are not the columns of records"], set(), [])
    bad, short = _changed(path, lines)
    rounds = set(short)
    seen: dict[tuple[str, ...], int] = {}
    rows: list[Mapping[str, str]] = []
    for number, line in enumerate(lines, start=2):
        values = _fields(line)
        fields = dict(zip(names, values, strict=False))
        rows.append(fields)
        cell = tuple(fields.get(name, "") for name in _CELL)
        if len(values) != len(names):
            bad[number] = f"{len(values)} fields instead of {len(names)}"
        elif why := problem_of_text(_defaults(names) | fields):
            bad[number] = why
        elif cell in seen:
            bad[number] = f"{_named(fields)} stands in line {seen[cell]} already, for round {fields['round']}"
        seen.setdefault(cell, number)
        if number in bad:
            rounds |= _round_of(fields)
    said = [f"{path}, line {number}: {why}" for number, why in sorted(bad.items())]
    said += [f"{path}: round {number} {why}" for number, why in sorted(short.items())]
    whole = [not (number in bad or _round_of(fields) & rounds) for number, fields in enumerate(rows, start=2)]
    return Damage(said, rounds, [line for line, fine in zip(lines, whole, strict=True) if fine])


def _defaults(names: Sequence[str]) -> dict[str, str]:
    return {name: str(Job.options()[name].default) for name in ADDED if name not in names}


def _round_of(fields: Mapping[str, str]) -> set[int]:
    text = fields.get("round", "")
    return {int(text)} if text.isdecimal() else set()


def _fields(line: bytes) -> list[str]:
    """The fields of a line; none of what is no CSV."""
    try:
        return next(csv.reader([line.decode(errors="replace")]), [])
    except csv.Error:
        return []


def _lines(path: Path) -> list[bytes]:
    with clear_errors(path):
        return path.read_bytes().removesuffix(b"\n").split(b"\n")


def _changed(path: Path, lines: Sequence[bytes]) -> tuple[dict[int, str], dict[int, str]]:
    """By checks.csv: what is wrong with which lines, and with which rounds."""
    expected = read_checks(path)
    if expected is None:
        return {}, {}
    rounds_of: dict[int, list[int]] = {}
    for number, crc in expected:
        rounds_of.setdefault(crc, []).append(number)
    bad: dict[int, str] = {}
    for place, line in enumerate(lines, start=2):
        if left := rounds_of.get(zlib.crc32(line)):
            left.pop(0)
        else:
            bad[place] = f"not as it was written, by its checksum in {CHECKS}"
    written = Counter(number for number, _ in expected)
    missing = Counter(number for left in rounds_of.values() for number in left)
    last = expected[-1][0] if expected else -1
    # Of a last round that lacks all its rows the checks alone were written: nothing was ever read of it.
    short = {number: count for number, count in missing.items() if count < written[number] or number != last}
    return bad, {n: f"has {written[n] - count} of its {written[n]} rows" for n, count in short.items()}


def read_checks(path: Path) -> list[tuple[int, int]] | None:
    """Round and checksum of each row of the records `path`, from the file beside; None where there is none."""
    file = path.with_name(CHECKS)
    if not file.is_file():
        return None
    found = []
    for line in _lines(file)[1:]:
        number, _, crc = line.decode(errors="replace").partition(",")
        if number.isdecimal() and crc.isdecimal():
            found.append((int(number), int(crc)))
    return found


def seal(path: Path, content: bytes, length: int = 0) -> None:
    """Write the checks of the records `content`, which is about to be written to `path`; those of its first `length`
    bytes are there already, perhaps before some of rows that were then not written. Raises WriteError."""
    file = path.with_name(CHECKS)
    header, _, rest = content.partition(b"\n")
    place = next(csv.reader([header.decode()])).index("round")
    lines = (content[length:] if length else rest).removesuffix(b"\n").split(b"\n")
    rows = (next(csv.reader([line.decode()])) for line in lines if line)
    checks = [f"{row[place]},{zlib.crc32(line)}\n" for line, row in zip(filter(None, lines), rows, strict=True)]
    with clear_errors(file):
        known = file.read_text().splitlines(keepends=True) if length and file.is_file() else [f"{_HEADER}\n"]
    write_atomically(file, "".join([*known[: content[:length].count(b"\n") or 1], *checks]))


def unseal(path: Path) -> None:
    """Forget the checks of the records `path`, whose rows are about to be written anew."""
    path.with_name(CHECKS).unlink(missing_ok=True)


def check_columns(path: Path) -> None:
    """Raises RecordError unless the columns of the records `path` are ours, those left out that may be added."""
    found = _lines(path)[0].decode(errors="replace").split(",")
    if found != [name for name in COLUMNS if name in found or name not in ADDED]:
        raise RecordError(f"{path} was written with other columns; give another folder with --out or remove it")


def refuse_damage(path: Path) -> None:
    """Raises RecordError, which names the first damaged line, if there is one."""
    said = damage(path).said
    if said:
        more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
        raise RecordError(f"{said[0]}{more}; {_FIX}")


def intact(path: Path) -> bool:
    """Whether every row is as it was written, by checks.csv alone; True where there is none."""
    return _changed(path, _lines(path)[1:]) == ({}, {})


def plausible(frame: pd.DataFrame) -> bool:
    """Whether all numbers of typed records lie in their ranges, and no cell stands twice in a round."""
    for name, option in Job.options().items():
        values = frame[name]
        if option.kind not in ("int", "float"):
            continue
        bounds: Any = ((option.least, values.ge), (option.above, values.gt), (option.most, values.le))
        bounds += ((option.below, values.lt),)
        if not all(bool(compare(bound).all()) for bound, compare in bounds if bound is not None):
            return False
    if bool((frame["session"] < 0).any()):
        return False
    for name in MEASUREMENTS:
        values = frame[name].dropna()
        if not bool(values.between(0, most_of(name)).all()) or (name in _POSITIVE and bool((values == 0).any())):
            return False
    return not bool(frame.duplicated(list(_CELL)).any())

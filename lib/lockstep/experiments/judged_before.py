"""Verdicts that were computed before, from the same files by the same code: judging all claims takes many seconds, and
every notebook's answer needs all of them, since they are corrected for their number together.

    <cache>/verdicts/<fingerprint>.json    of one notebook: its files, its claims, the published figures, the library

Anything that could change a verdict changes the fingerprint. What can't be read is computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pandas

import lockstep
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.stored import with_gpu
from lockstep.analysis.verdicts import Verdict, VerdictFunction
from lockstep.engine.data.readable_cache import cache_folder
from lockstep.engine.files import WriteError, write_atomically
from lockstep.records.places import repository_root

KEPT = 200
"""Files in the cache: some ten folders of results."""
_PLAIN = ("value", "low", "high", "rounds", "logarithmic")


def judged_before(
    folder: Path, claims: Sequence[Mapping[str, Any]], rules: Mapping[str, VerdictFunction], compute: Judge
) -> list[Verdict]:
    """The verdicts on `claims` from what `folder` holds, as `compute` finds them: computed now, or read if nothing has
    changed since. Where the cache can't be used they are computed."""
    try:
        path = cache_folder() / "verdicts" / f"{fingerprint(folder, claims, rules)}.json"
    except RuntimeError:  # a user without a home
        return compute()
    try:
        known = [_verdict(row) for row in json.loads(path.read_text(encoding="utf-8"))]
        with contextlib.suppress(OSError):  # a cache that can only be read
            os.utime(path)  # what is read stays, however much is written after it
        return known
    except (OSError, ValueError, KeyError, TypeError):
        found = [_row(each) for each in compute()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, json.dumps(found, default=lambda number: number.item()), private=True)
        _keep_newest(path.parent)
    except (OSError, WriteError):  # a full disk, or a folder that is somebody else's: next time it is computed again
        pass
    return [_verdict(row) for row in found]


Judge = Callable[[], list[Verdict]]


def fingerprint(folder: Path, claims: Sequence[Mapping[str, Any]], rules: Mapping[str, VerdictFunction]) -> str:
    """32 hexadecimal digits of all that verdicts are made of."""
    found = hashlib.sha256(json.dumps([sys.version, numpy.__version__, pandas.__version__]).encode())
    there = [*folder.iterdir(), *(with_gpu(folder).iterdir() if with_gpu(folder).is_dir() else [])]
    for path in sorted(each for each in there if each.suffix == ".csv" or each.name == "run.json"):
        found.update(path.name.encode() + path.read_bytes())
    found.update(json.dumps([dict(claim) for claim in claims], sort_keys=True, default=str).encode())
    for name, function in sorted(rules.items()):
        found.update(f"{name} {_code(function)}".encode())
    for path in _sources():
        told = path.stat()
        found.update(f"{path} {told.st_size} {told.st_mtime_ns}".encode())
    return found.hexdigest()[:32]


def _code(function: VerdictFunction) -> str:
    """Where a rule is from and what it does: rules that tests make up have no file in the library."""
    code = getattr(function, "__code__", None)
    if code is None:  # such as a partial: not known from one process to the next
        return repr(function)
    constants = [each for each in code.co_consts if isinstance(each, str | int | float)]
    return f"{function.__module__} {code.co_code.hex()} {code.co_names} {constants}"


def _sources() -> Iterable[Path]:
    library = Path(lockstep.__file__).parent
    published = repository_root() / "data" / "published"
    return sorted([*library.rglob("*.py"), *published.rglob("*.csv")])


def _keep_newest(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[KEPT:]:
        path.unlink(missing_ok=True)


def _row(verdict: Verdict) -> dict[str, Any]:
    plain = {name: getattr(verdict, name) for name in vars(verdict) if name != "numbers"}
    return plain | {"numbers": [[name, _of_estimate(number)] for name, number in verdict.numbers]}


def _verdict(row: Mapping[str, Any]) -> Verdict:
    numbers = tuple((name, _estimate(number)) for name, number in row["numbers"])
    return Verdict(**{**row, "numbers": numbers})


def _of_estimate(number: Estimate) -> dict[str, Any]:
    apart = [[name, _of_estimate(each)] for name, each in number.apart]
    return {name: getattr(number, name) for name in _PLAIN} | {"apart": apart}


def _estimate(row: Mapping[str, Any]) -> Estimate:
    apart = tuple((name, _estimate(each)) for name, each in row["apart"])
    return Estimate(**{name: row[name] for name in _PLAIN}, apart=apart)



"""run.json: parameters, and the sessions in which rounds were measured, as they were written or refused.

Its checksum stands in table_checks.csv, as those of traced tables do. Folders without it are older: of their sessions
it is only asked whether every field is there and has a value that a machine may have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from lockstep.engine.files import write_atomically
from lockstep.records.schema import SCHEMA_VERSION, RecordError
from lockstep.records.traced import RUN, refuse_changed, seal_table

_FIX = "restore the file, or give another folder with --out"
_MOST_CORES, _MOST_BYTES = 1 << 20, 1 << 60


def read_run(folder: str | Path) -> dict[str, Any]:
    """`<folder>/run.json`. Raises RecordError if it is missing, damaged or of another schema version."""
    path = _path(folder)
    if not path.is_file():
        raise RecordError(f"{path} does not exist; the folder holds no run")
    content = path.read_bytes()
    try:
        run: dict[str, Any] = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} can't be read ({error}); give another folder with --out or remove it") from error
    if not isinstance(run, dict):
        raise RecordError(f"{path} is not a description of a run; give another folder with --out or remove it")
    if run.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(f"{path} is schema {run.get('schema_version')!r}, this code reads {SCHEMA_VERSION}")
    if not isinstance(run.get("sessions"), list) or not run["sessions"]:
        raise RecordError(f"{path} names no session; it was not written by this code: give another folder with --out")
    for number, session in enumerate(run["sessions"]):
        if why := _misfit_of_session(session):
            raise RecordError(f"{path}, session {number}: {why}; {_FIX}")
    refuse_changed(path, content)
    return run


def write_run(folder: Path, run: Mapping[str, Any]) -> None:
    """Write `<folder>/run.json` and its checksum. Raises WriteError, and RecordError if the file that stands there is
    not as it was written."""
    content = (json.dumps(run, indent=2, sort_keys=True) + "\n").encode()
    seal_table(_path(folder), content)
    write_atomically(_path(folder), content)


def seal_run(folder: Path) -> None:
    """Write the checksum of `<folder>/run.json` as it is, which may be older than checksums are."""
    seal_table(_path(folder), _path(folder).read_bytes())


def _path(folder: str | Path) -> Path:
    return Path(folder) / f"{RUN}.json"


def _misfit_of_session(session: Any) -> str:
    """What is wrong with a session; empty if nothing is."""
    if not isinstance(session, dict):
        return f"{_shown(session)} is no session: it has no fields"
    for name, (fits, wanted) in _FIELDS.items():
        value: Any = session
        for part in name.split("."):
            if not isinstance(value, dict) or part not in value:
                return f"{name} is missing"
            value = value[part]
        if not fits(value):
            return f"{name}={_shown(value)} is not {wanted}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _whole(most: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: type(value) is int and 1 <= value <= most, f"a whole number from 1 to {most}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_day(value: Any) -> bool:
    try:
        return date.fromisoformat(value).isoformat() == value
    except (TypeError, ValueError):
        return False


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_versions(value: Any) -> bool:
    return isinstance(value, dict) and all(each is None or isinstance(each, str) for each in value.values())


_TEXT = (_is_text, "a text")
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "day": (_is_day, "a day such as 2026-11-22"),
    "git.commit": (lambda value: value is None or isinstance(value, str), "a text or null"),
    "git.dirty": (lambda value: value is None or isinstance(value, bool), "true, false or null"),
    "machine.cpu": _TEXT,
    "machine.cores": _whole(_MOST_CORES),
    "machine.cores_total": _whole(_MOST_CORES),
    "machine.memory_bytes": _whole(_MOST_BYTES),
    "machine.gpu": (_are_texts, "a list of texts"),
    "machine.bfloat16": _TEXT,
    "machine.os": _TEXT,
    "machine.kernel": _TEXT,
    "versions": (_are_versions, "versions by name, each a text or null"),
}
"""What whoever reads a session may rely on."""

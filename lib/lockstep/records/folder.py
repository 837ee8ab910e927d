"""A results folder that is written to, round by round."""

from __future__ import annotations

import fcntl
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.files import clear_errors, write_atomically
from lockstep.engine.job import Job
from lockstep.records.checking import check_columns, check_unique, damage, misfit_of, seal, unseal
from lockstep.records.checking_run import read_run, seal_run, write_run
from lockstep.records.growing import append_csv, take_in_new_columns
from lockstep.records.reading import read_records
from lockstep.records.schema import ADDED, COLUMNS, SCHEMA_VERSION, TABLES, RecordError, Row, check_row
from lockstep.records.traced import read_traced_table, seal_table

_HEADER = ",".join(COLUMNS) + "\n"
_DAMAGED = "records.damaged-{}.csv"
_SAME_SESSION = ("machine", "versions", "git", "day")
"""What rounds of one session share. With another machine, other software or on another day a new session begins."""
_MEMORY_BYTES = 1 << 28
_SOFTWARE = ("versions",)
_COMPARABLE = ("machine", *_SOFTWARE)
"""What sessions share whose rounds say the same, as far as anyone can tell before they are compared."""


class RunFolder:
    """One results folder, held by one process at a time; rounds are appended to it.

    `info` says what is measured, which a folder holds once; `session` under which circumstances, of which it may hold
    several: `number` is that of this one, and every row names its own; `same_software` are those with the same
    software, of whichever machine, day and commit, and `comparable` those of them on the same machine; this one is
    among both. Raises RecordError if another process holds the folder, or if what it holds was measured with other
    parameters or on other images (resuming would mix two experiments); WriteError if it can't be written.
    """

    def __init__(self, path: str | Path, info: Mapping[str, Any], session: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.info = {"schema_version": SCHEMA_VERSION, **info}
        self.number = 0
        self.comparable: frozenset[int] = frozenset()
        self.same_software: frozenset[int] = frozenset()
        self._rounds: set[int] = set()
        self._lengths: dict[Path, int] = {}  # bytes of each file that whole rounds take
        self._session: dict[str, Any] = json.loads(json.dumps(session))  # as it will be read
        self._lock: Any = None

    def __enter__(self) -> RunFolder:
        with clear_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RecordError(
                f"{self.path} is in use by another run; wait for it or give another folder with --out"
            ) from None
        try:
            self._check_resumable()
            self._read_rounds()
            self._enter_session()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The lock file stays: unlinking it would let two later runs lock two different files of that name.
        self._lock.close()

    def _check_resumable(self) -> None:
        """Whether this run may go on here; nothing is changed unless it may."""
        records = self.path / "records.csv"
        if (self.path / "run.json").is_file():
            stored = read_run(self.path)
            for name in ("parameters", "data"):
                if stored.get(name) != json.loads(json.dumps(self.info.get(name))):
                    raise RecordError(
                        f"{self.path} holds a run with another {name} ({stored.get(name)} there, {self.info.get(name)} "
                        f"now): resuming would mix two experiments; give another folder with --out or remove this one"
                    )
        elif records.is_file():
            raise RecordError(f"{records} has no run.json beside it that says of what; give another folder with --out")
        if records.is_file():
            check_columns(records)

    def _repaired(self, path: Path) -> pd.DataFrame:
        """The records, without the rounds that are not as they were measured: those are measured again."""
        try:
            return read_records(self.path)
        except RecordError:
            found = damage(path)
            if not found.said:
                raise
        kept = next(free for number in count(1) if not (free := path.with_name(_DAMAGED.format(number))).exists())
        for said in found.said:
            warnings.warn(f"{said}; its round is measured again ({kept.name} is as it was)", stacklevel=4)
        content = path.read_bytes()
        write_atomically(kept, content)
        unseal(path)
        write_atomically(path, b"\n".join([content.partition(b"\n")[0], *found.sound]) + b"\n")
        return read_records(self.path)

    def _read_rounds(self) -> None:
        """Which rounds are stored whole: the only time that files are parsed, for a long run must not slow down.

        What was traced of a round that was never written whole goes: its number will be another round's.
        """
        records = self.path / "records.csv"
        if records.is_file():
            self._rounds = set(self._repaired(records)["round"].tolist())
            if not records.read_text().startswith(_HEADER):
                unseal(records)
                take_in_new_columns(records, COLUMNS, {name: Job.options()[name].default for name in ADDED})
            seal(records, records.read_bytes())
        for name in TABLES:
            table = read_traced_table(self.path, name)
            if table is not None and not table["round"].isin(self._rounds).all():
                kept = table[table["round"].isin(self._rounds)]
                content = kept.to_csv(index=False).encode()
                seal_table(self.path / f"{name}.csv", content)
                write_atomically(self.path / f"{name}.csv", content)
        paths = [self.path / f"{name}.csv" for name in ("records", *TABLES)]
        self._lengths = {path: path.stat().st_size for path in paths if path.is_file()}

    def _enter_session(self) -> None:
        """Go on with the stored session under the same circumstances, or begin a new one."""
        known = (self.path / "run.json").is_file()
        sessions: list[dict[str, Any]] = read_run(self.path)["sessions"] if known else []
        self.number = next(self._sessions_like(sessions, _SAME_SESSION), len(sessions))
        self.comparable = frozenset({self.number, *self._sessions_like(sessions, _COMPARABLE)})
        self.same_software = frozenset({self.number, *self._sessions_like(sessions, _SOFTWARE)})
        if self.number < len(sessions):
            seal_run(self.path)
        else:
            write_run(self.path, {**self.info, "sessions": [*sessions, self._session]})

    def _sessions_like(self, sessions: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[int]:
        """The numbers of those under the same circumstances as this one, as far as `names` go."""
        own = _circumstances(self._session, names)
        return (number for number, known in enumerate(sessions) if _circumstances(known, names) == own)

    @property
    def rounds_done(self) -> list[int]:
        """Numbers of the rounds that are stored whole, in ascending order."""
        return sorted(self._rounds)

    @property
    def next_round(self) -> int:
        """The number of the round that is measured next, in whichever way: one more than the highest stored one."""
        return max(self._rounds, default=-1) + 1

    def write_round(self, rows: Sequence[Row], tables: Mapping[str, pd.DataFrame] | None = None) -> None:
        """Append a whole round: its rows, and its part of traced tables such as `resources`.

        Raises WriteError if the disk is full or the folder is not writable, RecordError for rows that were never
        measured, or if a traced table has been changed since; what was stored before stays.
        """
        for row in rows:
            check_row(row)
            if why := misfit_of(row):
                raise RecordError(why)
        check_unique(rows)
        # Tables first: a crash between the two leaves samples of a round that records.csv does not know. They are
        # dropped by the next run, or by the next round of this one.
        frames = {**(tables or {}), "records": pd.DataFrame(rows, columns=list(COLUMNS))}
        lengths = {}
        for name, frame in frames.items():
            if frame.empty:
                continue
            path = self.path / f"{name}.csv"
            length = self._lengths.get(path, 0)
            checks = partial(seal, path, length=length) if name == "records" else partial(seal_table, path)
            lengths[path] = append_csv(path, length, frame, checks)
        self._lengths |= lengths
        self._rounds |= {int(row["round"]) for row in rows}


def _circumstances(session: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """These entries of a session, memory rounded: what the system keeps for itself differs by some KiB."""
    found = {name: session.get(name) for name in names}
    if isinstance(machine := found.get("machine"), dict) and isinstance(memory := machine.get("memory_bytes"), int):
        found["machine"] = machine | {"memory_bytes": round(memory / _MEMORY_BYTES)}
    return found

"""A results folder that is written to, round by round."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.files import clear_errors, write_atomically
from lockstep.records.reading import read_records, read_run, read_traced_table
from lockstep.records.schema import COLUMNS, SCHEMA_VERSION, RecordError, Row, check_row

_HEADER = ",".join(COLUMNS) + "\n"


class RunFolder:
    """One results folder, held by one process at a time; rounds are appended to it.

    Raises RecordError if another process holds it, or if what it holds was measured under another commit, with
    other parameters, on other images or another machine (resuming would mix two experiments); WriteError if it
    can't be written.
    """

    def __init__(self, path: str | Path, info: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.info = {"schema_version": SCHEMA_VERSION, **info}
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
            if not (self.path / "run.json").is_file():
                write_atomically(self.path / "run.json", json.dumps(self.info, indent=2, sort_keys=True) + "\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The lock file stays: unlinking it would let two later runs lock two different files of that name.
        self._lock.close()

    def _check_resumable(self) -> None:
        path = self.path / "records.csv"
        if path.is_file() and not path.read_text().startswith(_HEADER):
            raise RecordError(f"{path} was written with other columns; give another folder with --out or remove it")
        if not (self.path / "run.json").is_file():
            return
        stored = read_run(self.path)
        for name in ("git", "parameters", "data", "machine", "versions"):
            if stored.get(name) != json.loads(json.dumps(self.info.get(name))):
                raise RecordError(
                    f"{self.path} holds a run with another {name} ({stored.get(name)} there, {self.info.get(name)} "
                    f"now): resuming would mix two experiments; give another folder with --out or remove this one"
                )

    @property
    def rounds_done(self) -> list[int]:
        """Numbers of the rounds that are stored whole."""
        if not (self.path / "records.csv").is_file():
            return []
        return sorted(int(number) for number in read_records(self.path)["round"].unique())

    def write_round(self, rows: Sequence[Row], tables: Mapping[str, pd.DataFrame] | None = None) -> None:
        """Append a whole round: its rows, and its part of traced tables such as `resources`.

        Raises WriteError if the disk is full or the folder is not writable; what was stored before stays.
        """
        for row in rows:
            check_row(row)
        # Tables first: a crash between the two leaves samples of a round that records.csv does not know, and
        # those are dropped when the round is measured again.
        for name, frame in (tables or {}).items():
            done = self.rounds_done
            old = read_traced_table(self.path, name)
            old = old[old["round"].isin(done)] if old is not None else None
            write_atomically(self.path / f"{name}.csv", pd.concat([old, frame]).to_csv(index=False))
        frame = pd.DataFrame(rows, columns=list(COLUMNS))
        text = frame.to_csv(index=False, header=False)
        path = self.path / "records.csv"
        before = path.read_text() if path.is_file() else _HEADER
        write_atomically(path, before + text)

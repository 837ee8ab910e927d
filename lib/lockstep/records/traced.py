"""Traced tables beside records.csv, such as steps.csv: read as they were written, or refused.

    table_checks.csv   table,crc32: of each table, and of run.json, the last two checksums of all its bytes, written
                       just before it

Folders without it are older: of their tables it is only asked whether they can be read.
"""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.files import write_atomically
from lockstep.engine.job import OF_SIZES, Job
from lockstep.records.schema import COMPUTED, TABLES, TEXTS_OF_TABLES, RecordError

TABLE_CHECKS = "table_checks.csv"
NO_ROUND = -1
RUN = "run"
"""By which name the checksum of run.json stands among those of tables."""


def read_traced_table(folder: str | Path, name: str) -> pd.DataFrame | None:
    """`<folder>/<name>.csv` of a traced run (one of TABLES or COMPUTED), or None where nothing was traced.

    Raises RecordError if it is no table, or not as it was written.
    """
    path = Path(folder) / f"{name}.csv"
    if not path.is_file():
        return None
    content = path.read_bytes()
    refuse_changed(path, content)
    try:
        columns = list(pd.read_csv(BytesIO(content), nrows=0).columns)
        # Exact numbers: the table is read and written again for every round. "none", "" and "0" (a class may be called
        # so) are texts, never missing ones or numbers.
        missing = {column: [""] for column in columns if column not in TEXTS_OF_TABLES}
        texts = {column: str for column in columns if column in TEXTS_OF_TABLES}
        options: dict[str, Any] = {"keep_default_na": False, "na_values": missing, "float_precision": "round_trip"}
        if "round" not in columns:
            raise ValueError(f"it has no column 'round', but {', '.join(columns)}")
        return _with_added(pd.read_csv(BytesIO(content), dtype=texts, **options))
    except ValueError as error:
        raise RecordError(f"{path} can't be read: {error}; restore it or remove it") from error


def _with_added(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that are older than an option have its default, in a table that has got its column since."""
    for name in OF_SIZES:
        if name in frame:
            default = Job.options()[name].default
            frame[name] = frame[name].replace("", default).fillna(default).astype(type(default))
    return frame


def write_computed_table(folder: Path, name: str, frame: pd.DataFrame) -> None:
    """Write one of COMPUTED in place of what stands there, whole or not at all. Raises WriteError."""
    content = frame.assign(round=NO_ROUND).to_csv(index=False, float_format="%.6g").encode()
    path = folder / f"{name}.csv"
    path.unlink(missing_ok=True)  # whatever it is: it is computed anew
    seal_table(path, content)
    write_atomically(path, content)


def seal_table(path: Path, content: bytes) -> None:
    """Write the check of `content`, which is about to be written to the traced table `path`; that of what stands there
    now is kept, for runs that are killed in between. Raises WriteError, and RecordError if what stands there now, whose
    bytes are among those of `content`, is not as it was written."""
    contents = [content]
    if path.is_file():
        contents.insert(0, path.read_bytes())
        refuse_changed(path, contents[0])
    file = path.with_name(TABLE_CHECKS)
    rows = [(name, crc) for name, crc in _table_checks(file) if name != path.stem]
    rows += [(path.stem, str(zlib.crc32(each))) for each in contents]
    write_atomically(file, "".join(f"{name},{crc}\n" for name, crc in [("table", "crc32"), *dict.fromkeys(rows)]))


def refuse_changed(path: Path, content: bytes) -> None:
    """Raises RecordError if `content` is not what was written to the traced table or run.json `path`; older ones have
    no check.

    Which of the two files has changed, the table or that of the checks, can't be known.
    """
    written = {crc for name, crc in _table_checks(path.with_name(TABLE_CHECKS)) if name == path.stem}
    if written and str(zlib.crc32(content)) not in written:
        without = f"remove {path.name} and do without what was traced"
        raise RecordError(
            f"{path} is not as it was written, by its checksum in {TABLE_CHECKS} beside it, unless that file has "
            f"changed; restore the one that has, or {'give another folder' if path.stem == RUN else without}"
        )


def _table_checks(file: Path) -> list[tuple[str, str]]:
    """Table and checksum of each line of table_checks.csv. Raises RecordError for a line that is no such pair: its
    table would be read unchecked."""
    lines = file.read_bytes().split(b"\n")[1:] if file.is_file() else []
    found = []
    for number, line in enumerate(lines, start=2):
        text = line.decode(errors="replace")
        name, _, crc = text.partition(",")
        if text and not (name in (*TABLES, *COMPUTED, RUN) and crc.isdecimal()):
            raise RecordError(
                f"{file}, line {number}: {text!r} is no traced table and its checksum; restore the file, or remove it "
                "and do without its checks"
            )
        found += [(name, crc)] if text else []
    return found

"""Traced tables beside records.csv, such as steps.csv: read as they were written, or refused.

    table_checks.csv   table,crc32: of each table the last two checksums of all its bytes, written just before it

Folders without it are older: of their tables it is only asked whether they can be read.
"""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.engine.files import write_atomically
from lockstep.records.schema import TEXTS_OF_TABLES, RecordError

TABLE_CHECKS = "table_checks.csv"


def read_traced_table(folder: str | Path, name: str) -> pd.DataFrame | None:
    """`<folder>/<name>.csv` of a traced run (one of TABLES), or None where nothing was traced.

    Raises RecordError if it is no table, or not as it was written.
    """
    path = Path(folder) / f"{name}.csv"
    if not path.is_file():
        return None
    content = path.read_bytes()
    _refuse_changed(path, content)
    try:
        columns = list(pd.read_csv(BytesIO(content), nrows=0).columns)
        # Exact numbers: the table is read and written again for every round. "none", "" and "0" (a class may be called
        # so) are texts, never missing ones or numbers.
        missing = {column: [""] for column in columns if column not in TEXTS_OF_TABLES}
        texts = {column: str for column in columns if column in TEXTS_OF_TABLES}
        options: dict[str, Any] = {"keep_default_na": False, "na_values": missing, "float_precision": "round_trip"}
        return pd.read_csv(BytesIO(content), dtype=texts, **options)
    except ValueError as error:
        raise RecordError(f"{path} can't be read: {error}; restore it or remove it") from error


def seal_table(path: Path, content: bytes) -> None:
    """Write the check of `content`, which is about to be written to the traced table `path`; that of what stands there
    now is kept, for runs that are killed in between. Raises WriteError."""
    file = path.with_name(TABLE_CHECKS)
    known = _table_checks(file)
    before = {crc for name, crc in known if name == path.stem}
    now = str(zlib.crc32(path.read_bytes())) if path.is_file() else ""
    mine = [*([now] if now and now in (before or {now}) else []), str(zlib.crc32(content))]
    rows = [*((name, crc) for name, crc in known if name != path.stem), *((path.stem, crc) for crc in mine)]
    write_atomically(file, "".join(f"{name},{crc}\n" for name, crc in [("table", "crc32"), *rows]))


def _refuse_changed(path: Path, content: bytes) -> None:
    """Raises RecordError if `content` is not what was written to the traced table `path`; older ones have no check."""
    written = {crc for name, crc in _table_checks(path.with_name(TABLE_CHECKS)) if name == path.stem}
    if written and str(zlib.crc32(content)) not in written:
        raise RecordError(
            f"{path} is not as it was written, by its checksum in {TABLE_CHECKS}; restore it, or remove it and do "
            "without what was traced"
        )


def _table_checks(file: Path) -> list[tuple[str, str]]:
    """Table and checksum of each line of table_checks.csv."""
    lines = file.read_bytes().split(b"\n")[1:] if file.is_file() else []
    found = (line.decode(errors="replace").partition(",") for line in lines)
    return [(name, crc) for name, _, crc in found if crc.isdecimal()]

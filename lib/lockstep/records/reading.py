"""Reading what stands in a results folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import LEARNING, Job
from lockstep.records.checking import intact, plausible, refuse_damage
from lockstep.records.schema import (
    ADDED,
    COLUMNS,
    COMPUTED,
    CONTENDED,
    MEASUREMENTS,
    MEMORY,
    SCHEMA_VERSION,
    SIMULATED,
    TABLES,
    RecordError,
)
from lockstep.records.traced import read_traced_table


def read_records(folder: str | Path) -> pd.DataFrame:
    """All rows of `<folder>/records.csv`, typed by `COLUMNS`.

    Raises RecordError if the file is missing, is of another schema, or holds a value that is not allowed.
    """
    path = Path(folder) / "records.csv"
    if not path.is_file():
        raise RecordError(f"{path} does not exist; measure it first with `lockstep run` or name another results folder")
    kinds: dict[str, Any] = {"text": str, "number": float, "flag": bool}
    dtypes = {n: kinds.get(c.kind, "Int64" if n in MEASUREMENTS else "int64") for n, c in COLUMNS.items()}
    texts = [name for name, column in COLUMNS.items() if column.kind == "text"]
    try:
        header = list(pd.read_csv(path, nrows=0).columns)
        if header != [name for name in COLUMNS if name in header or name not in ADDED]:
            raise RecordError(f"{path}, line 1 has other columns than schema {SCHEMA_VERSION}: {_of_header(header)}")
        # "none" and "" are values here, never missing ones.
        missing = {n: [""] for n in COLUMNS if n not in texts}
        frame = pd.read_csv(path, dtype=dtypes, keep_default_na=False, na_values=missing, float_precision="round_trip")
        frame = _with_added(frame).astype(dtypes)[list(COLUMNS)]
    except (ValueError, pd.errors.ParserError) as error:
        if isinstance(error, RecordError):
            raise
        refuse_damage(path)
        raise RecordError(f"{path} can't be read: {error}") from error
    known = all(set(frame[name]) <= set(column.allowed) for name, column in COLUMNS.items() if column.allowed)
    if not (known and intact(path) and plausible(frame)):
        refuse_damage(path)
    return frame


def _of_header(header: list[str]) -> str:
    """What is wrong with the columns of a file."""
    lacking = [name for name in COLUMNS if name not in header and name not in ADDED]
    unknown = [name for name in header if name not in COLUMNS]
    if lacking or unknown:
        parts = (("missing", lacking), ("unknown", unknown))
        return "; ".join(f"{what}: {', '.join(names[:5])}" for what, names in parts if names)
    expected = [name for name in COLUMNS if name in header]
    pairs = enumerate(zip(header, expected, strict=False))
    place = next((number for number, (one, other) in pairs if one != other), len(expected))
    wanted = f"and {expected[place]!r} belongs there" if place < len(expected) else "once more"
    return f"column {place + 1}: {header[place]!r} stands there, {wanted}"


def _with_added(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that are older than an option of a strategy have its default."""
    return frame.assign(**{name: Job.options()[name].default for name in ADDED if name not in frame})


def contended(rows: pd.DataFrame) -> np.ndarray:
    """Which of these rows say that others used the machine, and can have been changed by it."""
    if "reason" not in rows:
        return np.zeros(len(rows), dtype=bool)
    codes, texts = pd.factorize(rows["reason"])  # few texts, each of many rows
    marked = np.array([*(CONTENDED in str(text) for text in texts), False])[codes]
    return marked & ~beyond_others(rows).to_numpy() if marked.any() else marked


def beyond_others(rows: pd.DataFrame | Mapping[str, pd.Series]) -> pd.Series:
    """Which rows no other program changes: what is learnt or simulated, and what processes hold at their peak."""
    return repeated_by_seed(rows) | (rows["experiment"] == MEMORY)


def repeated_by_seed(rows: pd.DataFrame | Mapping[str, pd.Series]) -> pd.Series:
    """Which rows are repetitions with another seed: what is learnt or simulated depends on no machine and no day."""
    return rows["experiment"].isin(LEARNING) | (rows["source"] == SIMULATED)


def read_tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """All traced tables of a run by name, without what was not traced there."""
    found = {name: read_traced_table(folder, name) for name in (*TABLES, *COMPUTED)}
    return {name: frame for name, frame in found.items() if frame is not None}

"""CSV files that grow round by round.

What stands in a file is never parsed or formatted again: its bytes are copied, and the new rows follow. Five thousand
rounds take some ten megabytes, which are written whole in some hundredths of a second.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd

from lockstep.engine.files import clear_errors, write_atomically


def append_csv(
    path: Path, length: int, frame: pd.DataFrame, before_writing: Callable[[bytes], None] | None = None
) -> int:
    """Write a frame's rows behind the first `length` bytes of a CSV file, whole or not at all; returns its new length.

    Columns that only the file has, or only the frame, are empty in the other's rows. Raises WriteError.
    """
    with clear_errors(path):
        before = path.read_bytes()[:length] if length else b""
    columns = next(csv.reader([before.split(b"\n", 1)[0].decode()]), [])
    new = [name for name in frame.columns if name not in columns]
    if before and new:  # rare: a cell of another kind, or a file from before these columns
        before = _with_columns(before, new)
    text = frame.reindex(columns=[*columns, *new]).to_csv(index=False, header=not before)
    content = before + text.encode()
    if before_writing is not None:
        before_writing(content)
    write_atomically(path, content)
    return len(content)


def take_in_new_columns(path: Path, columns: Iterable[str], defaults: Mapping[str, object]) -> None:
    """Give a CSV file the columns among `defaults` that it lacks, with these values, if it is complete then: its rows
    are older than an option that a new strategy has brought. All else stays as it is written. Raises WriteError."""
    order = list(columns)
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    lacking = [name for name in order if name not in frame]
    if not lacking or not set(lacking) <= set(defaults) or set(frame.columns) - set(order):
        return
    frame = frame.assign(**{name: defaults[name] for name in lacking})[order]
    with clear_errors(path):
        write_atomically(path, frame.to_csv(index=False))


def _with_columns(content: bytes, names: Sequence[str]) -> bytes:
    """The same CSV with empty columns of these names behind the others; every field stays as it is written."""
    frame = pd.read_csv(BytesIO(content), dtype=str, keep_default_na=False)
    return frame.assign(**dict.fromkeys(names, "")).to_csv(index=False).encode()

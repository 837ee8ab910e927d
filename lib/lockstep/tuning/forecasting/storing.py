"""Arrays by name in a `.npz` file, without pickle."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.engine.files import write_atomically


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Whole or not at all. Raises WriteError with the fix if it can't be written."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(Path(path), content.getvalue())


def read_arrays(path: Path) -> dict[str, Any]:
    """What `write_arrays` wrote. Raises ValueError for a damaged file, and OSError where there is none."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no file of arrays, or a damaged one ({error}); remove it") from error

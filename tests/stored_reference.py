"""What the reference holds, read once for all tests that only look at it."""

from __future__ import annotations

import functools
from pathlib import Path

from lockstep.analysis.stored import Stored, read_stored


@functools.cache
def stored_reference(folder: Path) -> Stored:
    """One for all of a process: what is computed of it once (`lockstep.analysis.stored.once`) is computed once for all
    of them, too. Whoever changes anything changes a copy."""
    return read_stored(folder)

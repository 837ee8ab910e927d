"""How a run can end badly."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]  # lockstep


class RunError(ValueError):
    """A run that is refused before anything runs; the message names the value, the place and the fix."""


class RunFailed(RuntimeError):
    """A notebook that did not get to its end; the message holds the cell's error and where the executed notebook is."""


class Stopped(KeyboardInterrupt):
    """SIGINT or SIGTERM. A KeyboardInterrupt, since asyncio keeps any other exception inside its task."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def is_own_error(name: str, traceback: Sequence[str]) -> bool:
    """Whether an error that a kernel reports is a ValueError of this library, raised by it: then its message says
    all, and the frames nothing. A kernel tells the bare name of the class, so the names are looked up in our source."""
    raised_here = len(traceback) > 1 and f"{PACKAGE.parent.name}/{PACKAGE.name}/" in traceback[-2]  # [-1]: the message
    sources = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")) if raised_here else ()
    return any(re.search(rf"^class {re.escape(name)}\(ValueError\)", source, re.MULTILINE) for source in sources)

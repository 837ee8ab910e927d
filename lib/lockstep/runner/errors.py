"""How a run can end badly."""

from __future__ import annotations

import signal


class RunError(ValueError):
    """A run that is refused before anything runs; the message names the value, the place and the fix."""


class RunFailed(RuntimeError):
    """A notebook that did not get to its end; the message holds the cell's error and where the executed notebook is."""


class Stopped(KeyboardInterrupt):
    """SIGINT or SIGTERM. A KeyboardInterrupt, since asyncio keeps any other exception inside its task."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number

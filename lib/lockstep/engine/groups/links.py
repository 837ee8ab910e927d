"""The bytes that this host's link has carried, as the system counts them: with headers and acknowledgements."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "LOCKSTEP_LINK"
"""Environment variable of a rank that names the interface to count on; only emulated hosts have it."""


class LinkMeter:
    """Counts the bytes on the link since the meter was last read."""

    def __init__(self) -> None:
        name = os.environ.get(VARIABLE, "")
        self._folder = Path("/sys/class/net", name, "statistics") if name else None
        self._before = self._counts()

    def read(self) -> dict[str, float]:
        """link_bytes_sent and link_bytes_received, as in `loop.STEP_COLUMNS`; 0 without a link to count on."""
        now = self._counts()
        sent, received = (float(new - old) for new, old in zip(now, self._before, strict=True))
        self._before = now
        return {"link_bytes_sent": sent, "link_bytes_received": received}

    def _counts(self) -> tuple[int, int]:
        if self._folder is None:
            return 0, 0
        return int((self._folder / "tx_bytes").read_text()), int((self._folder / "rx_bytes").read_text())

"""What this host's link has carried: counted by the system, headers and acknowledgements included."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "LOCKSTEP_LINK"
"""Names the interface to count on, in the environment of a rank; emulated hosts have it, others have not."""


class LinkMeter:
    """Bytes since it was last read."""

    def __init__(self) -> None:
        name = os.environ.get(VARIABLE, "")
        self._folder = Path("/sys/class/net", name, "statistics") if name else None
        self._before = self._counts()

    def read(self) -> dict[str, float]:
        """link_bytes_sent and link_bytes_received, as `loop.STEP_COLUMNS` has them; 0 without a link to count on."""
        now = self._counts()
        sent, received = (float(new - old) for new, old in zip(now, self._before, strict=True))
        self._before = now
        return {"link_bytes_sent": sent, "link_bytes_received": received}

    def _counts(self) -> tuple[int, int]:
        if self._folder is None:
            return 0, 0
        return int((self._folder / "tx_bytes").read_text()), int((self._folder / "rx_bytes").read_text())

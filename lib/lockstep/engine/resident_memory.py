"""The memory of this process that is resident, and its peak, as Linux counts them."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path


def reset_peak_rss() -> None:
    """Reset the peak of this process's resident memory; does nothing except on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5)


def rss_bytes(peak: bool = False) -> float:
    """The resident memory, or its peak since `reset_peak_rss` or since this program began (unlike `ru_maxrss`, which
    begins with that of the parent); NaN where the system does not report it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:" if peak else "VmRSS:"):
                return float(line.split()[1]) * 1024
    return math.nan

"""The memory of this process that is resident, and its peak, as the kernel counts them."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

_RESET_PEAK = "5"  # proc(5), /proc/pid/clear_refs


def reset_peak_rss() -> None:
    """Reset the peak of this process's resident memory; does nothing except on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def peak_rss_bytes() -> float:
    """The peak of the resident memory since `reset_peak_rss`, or since this program began (unlike `ru_maxrss`, which
    begins with that of the parent); NaN where the system does not report it."""
    return _status_bytes("VmHWM")


def rss_bytes() -> float:
    """The resident memory; NaN where the system does not report it."""
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1]) * 1024
    return math.nan

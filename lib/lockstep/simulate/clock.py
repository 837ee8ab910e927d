"""Virtual time: whole nanoseconds, so that sums and maxima have the same bits in whatever order they are taken.

Delays and policies are asked in seconds; what they answer is rounded to the nanosecond here, and nowhere else.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

NANOSECONDS = 1e9
NEVER = 2**62
"""The time of what does not happen: 146 years."""
_LATEST = NEVER / NANOSECONDS


def nanoseconds(seconds: float) -> int:
    """The nearest whole nanosecond; NEVER for infinity."""
    return round(seconds * NANOSECONDS) if seconds < _LATEST else NEVER


def nanoseconds_of(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """`nanoseconds` of each, with the same bits."""
    scaled = seconds * NANOSECONDS
    if seconds.max(initial=0.0) < _LATEST:
        return np.rint(scaled, out=scaled).astype(np.int64)
    out = np.full(scaled.shape, NEVER, dtype=np.int64)
    np.rint(scaled, out=scaled)
    np.copyto(out, scaled, where=seconds < _LATEST, casting="unsafe")
    return out


def seconds(time: int) -> float:
    """Infinity for NEVER."""
    return time / NANOSECONDS if time < NEVER else math.inf

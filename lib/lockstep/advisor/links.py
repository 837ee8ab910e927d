"""`--link`: the link between hosts, as a rate or as latency and rate.

    1gbit, 10gbit, 2.5Gbit/s    the rate that is written on it; of it PAYLOAD carries data, and a message waits for
                                ASSUMED_LATENCY_SECONDS, which `lockstep advise` says is assumed
    25us,1.2e9                  seconds of any message, and bytes per second: what a ping-pong gives
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lockstep.advisor.calibration import CalibrationError

if TYPE_CHECKING:  # pandas is behind it, and a refusal must not wait for that
    from lockstep.predict.link_model import AlphaBeta

ASSUMED_LATENCY_SECONDS = 50e-6
"""Of a short message between two hosts of one room, with TCP and the MPI library above it."""
PAYLOAD = 1448 / 1538
"""Of an Ethernet frame of the usual size: 1448 bytes of data in 1538 with all headers, preamble and gap."""

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_RATE = re.compile(rf"{_NUMBER}\s*([kmgt]?)(?:bit(?:/s)?|bps)", re.IGNORECASE)
_PAIR = re.compile(rf"{_NUMBER}\s*(ns|us|µs|ms|s)\s*,\s*{_NUMBER}", re.IGNORECASE)
_LEAST_RATE, _MOST_RATE = 1e3, 1e14
_MOST_LATENCY = 10.0


def parse_link(text: str) -> AlphaBeta:
    """The link that a text describes: `1gbit`, `10gbit`, `25us,1.2e9` (latency, bytes/s). Raises CalibrationError."""
    given = text.strip()
    if found := _RATE.fullmatch(given):
        rate = float(found[1]) * _PREFIXES[found[2].lower()]
        latency, bytes_per_second = ASSUMED_LATENCY_SECONDS, rate * PAYLOAD / 8
    elif found := _PAIR.fullmatch(given):
        latency, bytes_per_second = float(found[1]) * _SECONDS[found[2].lower()], float(found[3])
    else:
        raise CalibrationError(
            f"--link {text!r} is not a link; give its rate, such as 1gbit or 10gbit, or latency and bytes per second, "
            "such as 25us,1.2e9"
        )
    if not _LEAST_RATE <= 8 * bytes_per_second <= _MOST_RATE or not latency <= _MOST_LATENCY:
        raise CalibrationError(
            f"--link {text!r} is {8 * bytes_per_second:.3g} bit/s with {latency:.3g} s for a message; give "
            f"{_LEAST_RATE:g} to {_MOST_RATE:g} bit/s and at most {_MOST_LATENCY:g} s"
        )
    from lockstep.predict.link_model import AlphaBeta

    return AlphaBeta(latency, 1 / bytes_per_second)


def has_assumed_latency(link: AlphaBeta) -> bool:
    """Whether the latency of a link is the one that stands in for a rate alone."""
    return link.alpha_seconds == ASSUMED_LATENCY_SECONDS


def emulated_rate(link: AlphaBeta) -> float:
    """The rate (bit/s) of an emulated link over which data travels as quickly: that of frames with their headers."""
    return 8 * link.bytes_per_second / PAYLOAD


def fitted_link(ping_pong: Sequence[tuple[int, float]]) -> str:
    """The link of (bytes, seconds one way), the shortest first, as `--link` takes it. Raises CalibrationError.

    The rate is that between the two longest messages, the latency that of the shortest: between them buffers and the
    MPI library's protocols decide. A shaped link lets a short message pass at memory speed, so no line through all of
    them has the link's rate.
    """
    from lockstep.predict.link_model import AlphaBeta

    points = sorted(set(ping_pong))
    none = "no link can be fitted to a ping-pong"
    if len(points) < 2:
        raise CalibrationError(f"{none}: {points}: alpha and beta need two sizes")
    if not all(0 < seconds < math.inf for _, seconds in points):
        raise CalibrationError(f"{none}: {points}; give times above 0")
    (size, shortest), (shorter, before), (longest, last) = points[0], points[-2], points[-1]
    if last <= before:
        raise CalibrationError(f"{none}: long messages took no longer: {points}")
    beta = (last - before) / (longest - shorter)
    found = AlphaBeta(max(0.0, shortest - size * beta), beta)
    text = f"{found.alpha_seconds * 1e6:.4g}us,{found.bytes_per_second:.4g}"
    parse_link(text)  # refuses what no link can be
    return text

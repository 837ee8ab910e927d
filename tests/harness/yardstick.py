"""How fast a core is just now, so that a budget of CPU seconds means the same work on every machine.

CPU seconds grow where a core is slower, and where another guest of the same host keeps the core's second hardware
thread busy: the same tests have taken 1 768 and 4 662 of them. So the meter times a fixed piece of work as it goes, and
counts in *standard* CPU seconds: those of a core on which this piece takes `STANDARD_SECONDS`.
"""

from __future__ import annotations

import json
import mmap
import time

import numpy as np

STANDARD_SECONDS = 0.0083  # on an AMD EPYC of the third generation with nothing beside it
_RECORDS = [{"name": f"cell {at}", "value": at * 1.5, "tags": ["a", "b", str(at)]} for at in range(150)]


def measured() -> float:
    """CPU seconds of this thread for what tests do most: interpreting, records, new pages, arrays."""
    before = time.thread_time()
    total = 0
    for at in range(20_000):
        total += at % 7
    for _ in range(4):
        json.loads(json.dumps(_RECORDS))
    with mmap.mmap(-1, 4 << 20) as pages:
        for at in range(0, len(pages), mmap.PAGESIZE):
            pages[at] = 1
    numbers = np.arange(262_144, dtype=np.float32)
    for _ in range(4):
        numbers = numbers * 1.0001 + 1
    return time.thread_time() - before


def slowness(times: int = 1) -> float:
    """How many CPU seconds of this core one standard CPU second is now, as the mean of `times` measurements."""
    return sum(measured() for _ in range(times)) / times / STANDARD_SECONDS

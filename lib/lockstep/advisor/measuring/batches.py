"""Which batches a calibration trains with."""

from __future__ import annotations

from collections.abc import Mapping

STEP_SECONDS, LONGEST_STEP_SECONDS = 0.6, 1.5
"""The longest step that is measured: of a batch that takes longer, half is, and less than half only where that takes
more than LONGEST_STEP_SECONDS."""
_CLEARLY = 0.25  # of a step's time
_SMALL = 4  # the larger batch is so many times the smaller one


def timed_batch(large: int, seconds: Mapping[int, float]) -> int:
    """The batch to time: `large`, or half of it, again and again, as long as its step takes too long (STEP_SECONDS) and
    half the batch takes clearly less. `seconds`: of a step, by batch; a line through them tells all others."""
    if len(seconds) < 2:
        return large
    (few, little), (many, much) = sorted(seconds.items())
    each = max(0.0, (much - little) / (many - few))
    step, asked = much, large
    while large > 1 and each * large / 2 > _CLEARLY * step:
        if step <= (STEP_SECONDS if large == asked else LONGEST_STEP_SECONDS):
            break
        step -= each * (large - large // 2)
        large //= 2
    return large


def pair_of_batches(large: int) -> tuple[int, int]:
    """Two different batches, `large` the larger one where that can be; the other has 2 samples or more where it can,
    for batch normalization of one is impossible."""
    return (large, max(2, large // _SMALL)) if large > 2 else (2, 1)

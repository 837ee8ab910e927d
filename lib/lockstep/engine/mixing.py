"""Randomness that is a function of its key: a hash of integers, the same for one of them and for an array.

What is drawn depends on the numbers that it is keyed by alone, not on the order of asking. `engine.data` keys draws by
(seed, epoch, stream, sample, position), `engine.delays` by (seed, stream, worker, task or window of the clock).

The rule, on unsigned 64-bit integers that wrap around:

    fold(key, value) = mix64(key + GOLDEN * (value + 1))

mix64 is the finaliser of splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", with
Stafford's variant 13 constants).
"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER_1 = 0xBF58476D1CE4E5B9
MULTIPLIER_2 = 0x94D049BB133111EB
SHIFTS = (30, 27, 31)

_MASK = (1 << 64) - 1


@overload
def mix64(value: int) -> int: ...
@overload
def mix64(value: NDArray[np.uint64]) -> NDArray[np.uint64]: ...
def mix64(value: int | NDArray[np.uint64]) -> int | NDArray[np.uint64]:
    """splitmix64's finaliser, a bijection of 64-bit integers: of a Python integer, or of a uint64 array (a new one)."""
    if isinstance(value, int):
        word = value & _MASK
        word = ((word ^ (word >> SHIFTS[0])) * MULTIPLIER_1) & _MASK
        word = ((word ^ (word >> SHIFTS[1])) * MULTIPLIER_2) & _MASK
        return word ^ (word >> SHIFTS[2])
    words = value ^ (value >> np.uint64(SHIFTS[0]))
    words *= np.uint64(MULTIPLIER_1)
    words ^= words >> np.uint64(SHIFTS[1])
    words *= np.uint64(MULTIPLIER_2)
    words ^= words >> np.uint64(SHIFTS[2])
    return words


def stream_key(seed: int, epoch: int, stream: int) -> int:
    """The 64-bit key of all draws of one seed, epoch and stream.

    Raises ValueError unless all three are whole numbers of at least 0.
    """
    key = 0
    for name, value in (("seed", seed), ("epoch", epoch), ("stream", stream)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise ValueError(f"{name}={value!r} can't key a draw; give a whole number of at least 0")
        key = mix64(key + GOLDEN * (int(value) + 1))
    return key

"""What no policy can exceed that has no further node: capacity, and images that can't be divided. Arithmetic alone.

n nodes, m of them s times slower; undelayed, an update takes 1; waiting for all it takes s

capacity        all nodes together do n - m + m/s of n: an update takes at least t = n / (n - m + m/s)
whole images    of shares of b images the slow nodes keep k of theirs, and the largest of the other shares takes
                t = max(k s, ceil((n b - m k) / (n - m))) / b for the best k
mitigation      (s - t) / (s - 1)
"""

from __future__ import annotations

import math

PUBLISHED = 0.98
"""*DPro-SM* section 6 and Figure 3: about 98 % of the straggling is mitigated."""


def mitigation_of(time: float, slower: float) -> float:
    """Of an update that takes `time`, where it takes 1 undelayed and `slower` if all are waited for. NaN where nothing
    is slower."""
    return (slower - time) / (slower - 1) if slower > 1 else math.nan


def capacity_bound(workers: int, slower: float, slow: int = 1) -> float:
    """The most that can be mitigated of `slow` nodes of `workers` that are `slower` times slower, with no node more.

    4, 8, 16, 32 workers, one twice as slow: 0.857, 0.933, 0.968, 0.984.
    """
    _check(workers, slow)
    return mitigation_of(workers / (workers - slow + slow / slower), slower)


def whole_images_bound(workers: int, share: int, slower: float, slow: int = 1) -> float:
    """The same where an update has `share` images for each worker, none left out and none divided.

    8 workers, shares of 8, one twice as slow: others must take 9, an update 9/8, and at most 0.875 is mitigated.
    """
    _check(workers, slow)
    if share < 1:
        raise ValueError(f"share={share} images is not possible; give at least 1")
    if slow == workers:
        return mitigation_of(slower, slower)
    best = math.inf
    for kept in range(share + 1):
        others = -(-(workers * share - slow * kept) // (workers - slow))
        best = min(best, max(kept * slower, others) / share)
    return mitigation_of(best, slower)


def fewest_workers(mitigation: float, slower: float, most: int = 100_000) -> int | None:
    """From how many workers on capacity allows this mitigation of one slow node; None if not up to `most`.

    t <= 1 + (1 - mitigation)(s - 1) = T, and so n >= (1 - 1/s) T / (T - 1).
    """
    if not mitigation < 1:
        return None
    longest = 1 + (1 - mitigation) * (slower - 1)
    found = max(2, math.ceil((1 - 1 / slower) * longest / (longest - 1) - 1e-9))
    return found if found <= most else None


def least_share(mitigation: float, workers: int, slower: float, most: int = 4096) -> int | None:
    """From which share on whole images allow this mitigation of one slow node; None if not up to `most`, as where
    capacity forbids it."""
    if capacity_bound(workers, slower) < mitigation:
        return None
    return next(
        (share for share in range(1, most + 1) if whole_images_bound(workers, share, slower) >= mitigation - 1e-12),
        None,
    )


def _check(workers: int, slow: int) -> None:
    if not 0 < slow <= workers:
        raise ValueError(f"slow={slow} of {workers} workers is not possible; give 1 to {workers}")

"""The places of the sample sequence that nobody has taken yet.

    epoch 0                              epoch 1
    | batch 0 | batch 1 | batch 2 (short)| batch 0 | ...        places 0 ... samples - 1, samples ... 2 samples - 1
    | w0 | w1 |                                                 shares of a batch, as `sampling.share_of` cuts it

What was taken and not used is given to somebody else before anything new, the earliest places first, so that nothing is
lost. Until something is given back, batches are those of `lockstep.engine.sync.plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.engine.policies.base import Ranges, Setting


class Pool:
    """Hands out places once, and again what was given back."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._returned: list[tuple[int, int]] = []
        self._in_order = True  # whether these are sorted, and neighbours are one
        self._waiting = 0  # places of these
        self._next = 0

    def batch_size(self) -> int:
        """Samples of the next global batch; the last one of an epoch may be short."""
        setting = self.setting
        return min(setting.global_batch, self._waiting + setting.samples - self._next % setting.samples)

    def take(self, samples: int) -> Ranges:
        """So many places: first those that were given back, then new ones."""
        ranges: list[tuple[int, int]] = []
        if self._returned and samples:
            samples = self._take_returned(samples, ranges)
        if samples:
            if ranges and sum(ranges[-1]) == self._next:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + samples)
            else:
                ranges.append((self._next, samples))
            self._next += samples
        return tuple(ranges)

    def _take_returned(self, samples: int, ranges: list[tuple[int, int]]) -> int:
        if not self._in_order:
            self._returned, self._in_order = _merged(self._returned), True
        whole = 0
        for first, there in self._returned:
            if there > samples:
                break
            ranges.append((first, there))
            samples -= there
            whole += 1
        del self._returned[:whole]
        if samples and self._returned:
            first, there = self._returned[0]
            ranges.append((first, samples))
            self._returned[0] = (first + samples, there - samples)
            samples = 0
        self._waiting -= sum(own for _, own in ranges)
        return samples

    def give_back(self, ranges: Ranges, used: int = 0) -> None:
        """These places, but for the first `used` of them, were taken and not used."""
        for first, samples in ranges:
            skipped = min(used, samples)
            used -= skipped
            if samples > skipped:
                self._returned.append((first + skipped, samples - skipped))
                self._in_order = False
                self._waiting += samples - skipped

    def state(self, under_way: Iterable[Ranges] = ()) -> dict[str, Any]:
        """For a checkpoint. Whoever computes `under_way` starts anew, so these places count as given back."""
        returned = _merged([*self._returned, *(one for ranges in under_way for one in ranges)])
        return {"next": self._next, "returned": [list(one) for one in returned]}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._next = int(state["next"])
        self._returned = [(int(first), int(samples)) for first, samples in state["returned"]]
        self._in_order = True
        self._waiting = sum(samples for _, samples in self._returned)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """In the order of places; neighbours become one."""
    found: list[tuple[int, int]] = []
    for first, samples in sorted(ranges):
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + samples)
        else:
            found.append((first, samples))
    return found

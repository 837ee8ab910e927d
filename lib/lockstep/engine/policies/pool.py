"""The places of the sample sequence that nobody has taken yet.

    epoch 0                              epoch 1
    | batch 0 | batch 1 | batch 2 (short)| batch 0 | ...        places 0 ... samples - 1, samples ... 2 samples - 1
    | w0 | w1 |                                                 shares of a batch, as `sampling.share_of` cuts it

What was taken and not used is given to somebody else before anything new, so that nothing is lost. Until something is
given back, batches are those of `lockstep.engine.sync.plan.Plan`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from lockstep.engine.policies.base import Ranges, Setting


class Pool:
    """Hands out places once, and again what was given back."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._returned: deque[tuple[int, int]] = deque()
        self._waiting = 0  # places of these
        self._next = 0

    def batch_size(self) -> int:
        """Samples of the next global batch; the last one of an epoch may be short."""
        setting = self.setting
        return min(setting.global_batch, self._waiting + setting.samples - self._next % setting.samples)

    def take(self, samples: int) -> Ranges:
        """So many places: first those that were given back, then new ones."""
        ranges = []
        while samples and self._returned:
            first, there = self._returned.popleft()
            if there > samples:
                self._returned.appendleft((first + samples, there - samples))
            own = min(there, samples)
            ranges.append((first, own))
            self._waiting -= own
            samples -= own
        if samples:
            ranges.append((self._next, samples))
            self._next += samples
        return tuple(ranges)

    def give_back(self, ranges: Ranges, used: int = 0) -> None:
        """These places, but for the first `used` of them, were taken and not used."""
        for first, samples in ranges:
            skipped = min(used, samples)
            used -= skipped
            if samples > skipped:
                self._returned.append((first + skipped, samples - skipped))
                self._waiting += samples - skipped

    def state(self) -> dict[str, Any]:
        return {"next": self._next, "returned": [list(one) for one in self._returned]}

    def load(self, state: dict[str, Any]) -> None:
        self._next = int(state["next"])
        self._returned = deque((int(first), int(samples)) for first, samples in state["returned"])
        self._waiting = sum(samples for _, samples in self._returned)

"""Workers that stop by themselves after a fixed time, and contribute what they have finished until then.

    worker 0  |--mb--|--mb--|--mb--|            |         contributes 3 micro-batches
    worker 1  |----mb----|----mb----|           |         2: a third would begin in time, but there are only two
    worker 2  |--------mb--------|------mb------|--       2: the one that is under way is finished
                                                deadline

Nobody is recalled, so a worker that never comes holds everybody up. A "task" of MapReduce is what one worker computes
for an update. What was not computed goes back to the pool, and every sample of an update weighs the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from lockstep.engine.options import JobError, option
from lockstep.engine.policies.base import Needs, Setting
from lockstep.engine.policies.deadlines import ShortestMicroBatch
from lockstep.engine.policies.rounds import Closed, Floats, RoundPolicy, Whole, even


class FixedTime(RoundPolicy):
    """`deadline_seconds` after a worker has its parameters it begins no further micro-batch."""

    needs = Needs(partial=True)

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._shortest = ShortestMicroBatch()

    def closed(self, over: Closed) -> None:
        """Raises JobError for a fixed time in which nobody has ever finished a micro-batch."""
        if self.options.seconds:
            here = np.flatnonzero(~np.isnan(over.seconds)).tolist()
            seen = [(worker, int(over.samples[worker]), float(over.seconds[worker])) for worker in here]
            self._shortest.seen(seen, self.micro_batch(int(over.given.max())), self.options.seconds)


@dataclass(frozen=True)
class AnytimeOptions:
    seconds: float = option(1.0, "how long a worker computes for an update", above=0)
    most: float = option(2.0, "times an even share of the global batch that a worker computes at most", above=0)


class AnytimeMiniBatches(FixedTime):
    """Ferdinand et al. 2019, "Anytime minibatch: exploiting stragglers in online distributed optimization": the time
    of a step is fixed, and its batch is whatever has been finished. Fast workers compute more than an even share, up
    to `most` times; the global batch is therefore no constant."""

    does = "workers compute for a fixed time; an update takes whatever has been finished"
    label = "anytime mini-batches"
    Options = AnytimeOptions

    @classmethod
    def fitted(cls, setting: Setting, share_seconds: float) -> Self:
        return cls(setting, AnytimeOptions(seconds=share_seconds))

    def check_setting(self) -> None:
        setting = self.setting
        if not setting.micro_batch:
            raise JobError("anytime mini-batches end between micro-batches; micro_batch=0 is a whole share: give one")
        if self.cap < setting.micro_batch:
            raise JobError(
                f"most={self.options.most:g} of an even share are {self.cap} images, less than one micro-batch of "
                f"{setting.micro_batch}; give more, or smaller micro-batches"
            )

    @property
    def cap(self) -> int:
        """Samples that a worker computes at most."""
        return int(self.options.most * self.setting.global_batch / self.setting.training)

    def sizes(self, samples: int, present: Whole) -> Whole:
        """The same for everybody, whatever is left of the epoch; most of it comes back."""
        del samples
        return np.full(len(present), self.cap)

    def deadline_seconds(self) -> float:
        return float(self.options.seconds)


@dataclass(frozen=True)
class DropComputeOptions:
    seconds: float = option(0.0, "the threshold; 0: chosen after the first rounds", least=0)
    warm_up: int = option(20, "rounds without a threshold, from which it is chosen", least=1)


class DropCompute(FixedTime):
    """Giladi et al. 2023, "DropCompute: simple and more robust distributed synchronous training via compute variance
    reduction": even shares, and a threshold on computing time after which a worker drops the rest of its micro-batches.

    Algorithm 2 of the source chooses the threshold t with the largest speedup from the first rounds:
    E[end without it] / E[end with it] x E[micro-batches finished] / all. Here a worker's micro-batches are taken to
    be of equal length within a round. A threshold that gains nothing is not set.
    """

    does = "workers drop the micro-batches that are left after a threshold of computing time"
    label = "DropCompute"
    Options = DropComputeOptions

    def __init__(self, setting: Setting, options: Any = None) -> None:
        super().__init__(setting, options)
        self._threshold: float | None = self.options.seconds or None
        self._seen: list[Floats] = []  # of each round of the warm-up, seconds of all who worked

    def check_setting(self) -> None:
        share = int(even(self.setting.global_batch, self.setting.training)[0])
        if not 0 < self.setting.micro_batch < share:
            raise JobError(
                f"DropCompute drops micro-batches of a share of {share} images, and micro_batch="
                f"{self.setting.micro_batch} leaves one of them; give fewer images than a share"
            )

    def deadline_seconds(self) -> float | None:
        return self._threshold

    def closed(self, over: Closed) -> None:
        super().closed(over)
        if self.options.seconds or self.round >= self.options.warm_up:
            return
        self._seen.append(over.seconds[~np.isnan(over.seconds)])
        if self.round == self.options.warm_up - 1:
            share = int(even(self.setting.global_batch, self.setting.training)[0])
            self._threshold = best_threshold(self._seen, -(-share // self.setting.micro_batch))

    def facts(self) -> dict[str, float]:
        return {"threshold_seconds": self._threshold} if self._threshold is not None else {}

    def state(self) -> dict[str, Any]:
        own = {"threshold": self._threshold, "seen": [one.tolist() for one in self._seen]}
        return super().state() | {"drop_compute": own}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        own = state["drop_compute"]
        self._threshold = None if own["threshold"] is None else float(own["threshold"])
        self._seen = [np.array(one) for one in own["seen"]]


def best_threshold(rounds: list[Floats], micro_batches: int) -> float | None:
    """The threshold in seconds with the largest speedup over these rounds, an array of the workers' seconds each; None
    if none speeds up. Candidates are the ends of micro-batches of all workers, at most 200 of them."""
    own = [one / micro_batches for one in rounds]  # seconds of a micro-batch
    candidates = np.unique(np.concatenate(own)[:, None] * np.arange(1, micro_batches + 1))
    candidates = candidates[:: -(-len(candidates) // 200)]
    done, lasts = np.zeros(len(candidates)), np.zeros(len(candidates))
    for seconds in own:
        # A worker finishes the micro-batch that it computes as the threshold comes, and always the first one.
        counts = np.clip(np.ceil(candidates[:, None] / seconds * (1 - 1e-12)), 1, micro_batches)
        done += counts.mean(axis=1) / micro_batches
        lasts += (counts * seconds).max(axis=1)
    slowest = sum(float(one.max()) for one in rounds)
    speedup = slowest / lasts * done / len(rounds)
    best = int(np.argmax(speedup))
    return float(candidates[best]) if speedup[best] > 1 + 1e-9 else None

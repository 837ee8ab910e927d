"""When a worker is done with a task, and when it listens: computed at the moment the task begins.

    began   micro-batch 0        micro-batch 1                         ready
      |-- computes --|~ delay ~|-- computes --|~~ delay ~~|  alpha  |--> the server's queue
                     ^ listens ~~~~~~~~~~~~~~~^ listens ~~~

A worker that computes can't hear that it is recalled; one that a delay holds can.
"""

from __future__ import annotations

from typing import NamedTuple

from lockstep.engine.delays import Delays
from lockstep.engine.policies.base import Work
from lockstep.engine.policies.places import part_sizes
from lockstep.predict.cost_model import Costs
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds


class MicroBatch(NamedTuple):
    """A micro-batch: when it began, when its computing ended, and when its delay ended, all in nanoseconds. One that a
    trace has faster than the median ends before all its work would have been done: its computing ends then, too."""

    began: int
    computed: int
    ended: int
    samples: int


class Course(NamedTuple):
    """What a task will have been if nobody recalls it. Times in nanoseconds."""

    worker: int
    task: int
    version: int
    work: Work
    began: int
    ended: int
    samples: int
    compute: int
    pieces: tuple[MicroBatch, ...]

    def listens(self, time: int) -> int:
        """When a recall that comes at `time` is heard; `ended` or later if the task is over by then. One that is still
        busy with what was before hears it as it would begin."""
        if time <= self.began:
            return self.began
        for piece in self.pieces:
            if time < piece.computed:
                return piece.computed
            if time < piece.ended:
                return time
        return time

    def computed(self, until: int) -> int:
        """Nanoseconds of computing before `until`."""
        return sum(min(piece.computed, until) - piece.began for piece in self.pieces if piece.began < until)


class Times:
    """How long micro-batches take: `Costs.compute_seconds`, asked once for each size, and delays."""

    def __init__(self, costs: Costs, delays: Delays, workers: int) -> None:
        self.delays, self.workers = delays, workers
        self._costs = costs
        self._known: dict[int, tuple[float, int]] = {}

    def of(self, images: int) -> tuple[float, int]:
        """Seconds of computing a micro-batch, and the same in nanoseconds."""
        known = self._known.get(images)
        if known is None:
            seconds = self._costs.compute_seconds(images)
            known = self._known[images] = (seconds, nanoseconds(seconds))
        return known


def course_of(worker: int, task: int, version: int, work: Work, began: int, times: Times) -> Course:
    """How the task goes that `worker` begins at `began`."""
    sizes = _micro_batches(work, times.workers)
    start = now = began / NANOSECONDS
    count, done, compute, at, end = len(sizes), 0, 0, began, times.delays.end
    deadline, margin, pieces, known = work.deadline_seconds, work.micro_batch_seconds, [], -1
    for place, size in enumerate(sizes):
        if place and deadline is not None and (now - start >= deadline or now - start + margin > deadline):
            break
        if size != known:
            (seconds, computing), known = times.of(size), size
        now = end(worker, task, now, seconds, place, count)
        ended = nanoseconds(now)
        computed = at + computing
        if computed > ended:
            computed = ended
        compute += computed - at
        done += size
        pieces.append(MicroBatch(at, computed, ended, size))
        at = ended
        if ended >= NEVER:
            break
    return Course(worker, task, version, work, began, at, min(done, work.samples), compute, tuple(pieces))


def _micro_batches(work: Work, workers: int) -> list[int]:
    """Samples of each; of coded work, of each part. A worker without samples computes nothing, and comes along."""
    if work.parts or work.micro_batch == work.samples:
        return part_sizes(work, workers) if work.samples else []
    full, rest = divmod(work.samples, max(work.micro_batch, 1))
    return [work.micro_batch] * full + ([rest] if rest else [])

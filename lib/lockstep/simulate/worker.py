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
from lockstep.predict.cost_model import Costs
from lockstep.simulate.clock import NANOSECONDS, NEVER, nanoseconds


class Piece(NamedTuple):
    """A micro-batch: when it began, when its computing ended, and when its delay ended, all in nanoseconds."""

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
    pieces: tuple[Piece, ...]

    def listens(self, time: int) -> int:
        """When a recall that comes at `time` is heard; `ended` or later if the task is over by then."""
        for piece in self.pieces:
            if time < piece.computed:
                return piece.computed
            if time < piece.ended:
                return time
        return time

    def computed(self, until: int) -> int:
        """Nanoseconds of computing before `until`."""
        return sum(min(piece.computed, until) - piece.began for piece in self.pieces if piece.began < until)


def course_of(
    worker: int, task: int, version: int, work: Work, began: int, costs: Costs, delays: Delays, workers: int
) -> Course:
    """How the task goes that `worker` begins at `began`."""
    sizes = _micro_batches(work, workers)
    start = now = began / NANOSECONDS
    count, done, compute, pieces = len(sizes), 0, 0, []
    deadline, margin = work.deadline_seconds, work.micro_batch_seconds
    at = began
    for place, size in enumerate(sizes):
        if place and deadline is not None and (now - start >= deadline or now - start + margin > deadline):
            break
        seconds = costs.compute_seconds(size)
        now = delays.end(worker, task, now, seconds, place, count)
        computed, ended = at + nanoseconds(seconds), nanoseconds(now)
        compute += computed - at
        done += size
        pieces.append(Piece(at, computed, ended, size))
        at = ended
        if ended >= NEVER:
            break
    return Course(worker, task, version, work, began, at, min(done, work.samples), compute, tuple(pieces))


def _micro_batches(work: Work, workers: int) -> list[int]:
    """Samples of each; of coded work, of each part."""
    if work.parts:
        size, larger = divmod(work.samples, workers)
        return [size + (part < larger) for part, _ in work.parts]
    full, rest = divmod(work.samples, max(work.micro_batch, 1))
    return [work.micro_batch] * full + ([rest] if rest else [])

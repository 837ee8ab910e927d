"""What a delay is: when work ends that would have taken so many seconds on an undisturbed worker.

Two families:

- *states* are functions of (worker, clock). A slow worker is slow at this time, whatever it does: its work is
  stretched, and work across several states is integrated exactly.
- *pauses* are keyed by (worker, task) and add to the task, wherever in it. The task of a worker has its pause, whenever
  it is done and whoever else has done what before. It falls into one of the micro-batches that were given out, so a
  policy that gives out more than it waits for meets it in proportion to what was computed.

So nothing is keyed by the number of a step alone, and nothing depends on who asked before or on how many workers there
are: two policies meet the same world, and differ by what they make of it (common random numbers). A worker in a pause
sends nothing, not even what it has finished: its message begins when its work has ended.

Real ranks sleep `end - start - work_seconds` after their computation; a simulator adds it in virtual time. Both ask the
same object. Delays of messages are for the simulator alone, which knows what a message takes; real ranks refuse them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.option_text import NoOptions, named_text
from lockstep.engine.options import at_least

Floats = NDArray[np.float64]


class Delays(ABC):
    """The delays of one kind for `workers` workers, as `seed` draws them. All times are seconds on the run's clock.

    Two families: *states* are functions of (worker, clock) and stretch work; *pauses* are keyed by (worker, task) and
    add to it, wherever in the task.
    """

    name: ClassVar[str]  # in the text of a job
    family: ClassVar[str]  # states | pauses | none
    options_kind: ClassVar[type[Any]] = NoOptions  # a frozen dataclass of lockstep.engine.options.option
    readings: ClassVar[tuple[str, ...]] = ()  # the numbers of a worker's state that its node shows, such as credits
    of_messages: ClassVar[bool] = False  # they slow messages, whose bare seconds a simulator alone knows

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        """Raises JobError for less than one worker, and for options that these workers don't allow."""
        at_least("workers", workers, 1)
        at_least("seed", seed, 0)
        self.options = options
        self.workers = workers
        self.seed = seed

    @property
    def text(self) -> str:
        """The canonical text from which these delays can be made again."""
        return named_text(self.name, self.options)

    @abstractmethod
    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        """When work of `work_seconds` ends that `worker` begins at `start`; infinite for one that never comes.

        A task may be done in `pieces` micro-batches of equal size; then `work_seconds` is that of one, `piece` its
        number, and the task's pause falls into one of them.
        """

    @abstractmethod
    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        """The same for arrays that are broadcast against each other; bit for bit equal to `end`."""

    def message_end(self, worker: int, task: int, start: float, seconds: float) -> float:
        """When a message of `worker` is through that begins at `start` and takes `seconds` on the bare link."""
        del worker, task
        return start + seconds

    def message_ends(self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, seconds: ArrayLike) -> Floats:
        """The same for arrays that are broadcast against each other; bit for bit equal to `message_end`."""
        return _sum(workers, tasks, starts, seconds)

    def begins_anew(self, task: int) -> bool:
        """Was something left out between this task and the one before it? Then nothing may be forecast from there."""
        del task
        return False

    def system(self, worker: int, clock: float) -> dict[str, float] | None:
        """What the node of `worker` shows of its state at `clock`, seconds of the run: `readings` by name; None where
        it shows nothing."""
        del worker, clock
        return None

    def systems(self, clocks: ArrayLike) -> dict[str, Floats] | None:
        """The same of all workers, [workers], at their own `clocks`; NaN where a clock is. Bit for bit as `system`."""
        del clocks
        return None

    def _who(self, workers: ArrayLike) -> NDArray[np.int64]:
        """Workers as an array. Raises ValueError for one that does not exist."""
        who = np.asarray(workers, dtype=np.int64)
        if who.size:
            least, most = int(who.min()), int(who.max())
            if least < 0 or most >= self.workers:
                self._refuse(min(least, 0) or most)
        return who

    @staticmethod
    def _what(tasks: ArrayLike) -> NDArray[np.int64]:
        """Tasks as an array. Raises ValueError for a negative one."""
        what = np.asarray(tasks, dtype=np.int64)
        if what.size and (least := what.min()) < 0:
            raise ValueError(f"task {least} does not exist; tasks are counted from 0")
        return what

    def _refuse(self, worker: int) -> None:
        raise ValueError(f"worker {worker} does not exist; there are {self.workers}: 0 … {self.workers - 1}")


class NoDelays(Delays):
    """Nothing is delayed: work ends at exactly `start + work_seconds`."""

    name = "none"
    family = "none"

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        return start + work_seconds

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        return _sum(workers, tasks, starts, work_seconds)


def _sum(workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, seconds: ArrayLike) -> Floats:
    """starts + seconds, in the shape that all four have together."""
    shape = np.broadcast_shapes(np.shape(workers), np.shape(tasks), np.shape(starts), np.shape(seconds))
    total = np.asarray(starts, dtype=np.float64) + np.asarray(seconds, dtype=np.float64)
    return total if total.shape == shape else np.broadcast_to(total, shape).copy()

"""States that a worker enters once and never leaves: a bad node, and a worker that is gone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lockstep.engine.delays.base import Delays, Floats
from lockstep.engine.options import JobError, option


class Switch(Delays):
    """Work takes `after[worker]` times as long from the clock's `at[worker]` on, and its usual time before."""

    family = "states"

    def __init__(self, options: Any, workers: int, seed: int) -> None:
        super().__init__(options, workers, seed)
        self._at, self._after = self._switches()
        self._one = list(zip(self._at.tolist(), self._after.tolist(), strict=True))

    @abstractmethod
    def _switches(self) -> tuple[Floats, Floats]:
        """For each worker when it switches, in seconds of the run's clock (infinite: never), and its factor after."""

    def _of_some(self, worker: int, nodes: int, at: float, after: float) -> tuple[Floats, Floats]:
        """`nodes` workers from `worker` on switch, the others never. Raises JobError for one that does not exist."""
        last, most = worker + nodes - 1, self.workers - 1
        if last > most:
            raise JobError(f"delays={self.text!r}: worker={last} does not exist; there are {most + 1}: 0 … {most}")
        all_at, all_after = np.full(self.workers, np.inf), np.ones(self.workers)
        all_at[worker : last + 1], all_after[worker : last + 1] = at, after
        return all_at, all_after

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        if not 0 <= worker < self.workers:
            self._refuse(worker)
        at, after = self._one[worker]
        begin = start if start > at else at
        late = work_seconds - (begin - start)
        return begin + late * after if late > 0.0 else start + work_seconds

    def ends(
        self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, work_seconds: ArrayLike, piece: ArrayLike = 0,
        pieces: ArrayLike = 1,
    ) -> Floats:
        who, begun, work = self._who(workers), np.asarray(starts, np.float64), np.asarray(work_seconds, np.float64)
        usual = super().message_ends(who, tasks, begun, work)
        begin = np.maximum(begun, self._at[who])
        with np.errstate(invalid="ignore"):  # work that would begin where what never comes has ended
            late = np.asarray(work - (begin - begun))
        stretched = np.zeros(late.shape)
        np.multiply(late, self._after[who], where=late > 0.0, out=stretched)
        return np.where(late > 0.0, begin + stretched, usual)


class BadNode(Switch):
    """One worker or more are slower than the others, from `at` on, as in trace AR of the three public ones.

    `slow` is a multiple of the work, `at` seconds of the run's clock. The workers are named, not drawn: drawn ones
    would be others for another number of workers.
    """

    name = "bad_node"

    @dataclass(frozen=True)
    class Options:
        worker: int = option(0, "the worker that is slower", least=0)
        slow: float = option(3.0, "times as long as work takes on the others", least=1)
        at: float = option(0.0, "when it begins, in seconds of the run's clock", least=0)
        nodes: int = option(1, "workers that are slower: this one and those after it", least=1)

    options_kind = Options

    def _switches(self) -> tuple[Floats, Floats]:
        chosen = self.options
        return self._of_some(chosen.worker, chosen.nodes, chosen.at, chosen.slow)


class Gone(Switch):
    """A worker that never comes: what it does not end before `at` it never ends, and its messages stop as well.

    `at` is in seconds of the run's clock. The end is infinite; a real rank sleeps without end, and it is for the
    caller to let it answer a recall.
    """

    name = "gone"

    @dataclass(frozen=True)
    class Options:
        worker: int = option(0, "the worker that never comes", least=0)
        at: float = option(0.0, "when it goes, in seconds of the run's clock", least=0)

    options_kind = Options

    def _switches(self) -> tuple[Floats, Floats]:
        return self._of_some(self.options.worker, 1, self.options.at, np.inf)

    def message_end(self, worker: int, task: int, start: float, seconds: float) -> float:
        return self.end(worker, task, start, seconds)

    def message_ends(self, workers: ArrayLike, tasks: ArrayLike, starts: ArrayLike, seconds: ArrayLike) -> Floats:
        return self.ends(workers, tasks, starts, seconds)

"""*DPro-SM*'s forecaster (5.3): an LSTM over each worker's past times and the state of the system.

The paper states neither shape nor inputs nor training. Ours, for each worker, with logarithms throughout:

- **Network**: one for all workers, a memory for each; 32 units, and a linear head that sees inputs and memory: 5 200
  parameters (`lockstep.engine.forecasts.sequence_model`).
- **Inputs** after each task: log of the worker's seconds over the running median of all workers; how much more the
  tasks one, two and three before took; how much more their exponentially weighted mean (1/4) and the median of the last
  32; three features of each number of the system's state, if there are any (`SystemFeatures`).
- **Output**: the first of these inputs for the next task.
- **Training online**: every 4th round one update of Adam falls due, on 16 random windows of 32 tasks from the last 256
  of each worker. It happens in `idle`, never when something is seen or asked for; at most 4 updates wait for that.
- **Or beforehand**: `pretrain` on simulated mixtures, and then tuned online. `save_weights`, `read_weights`: `.npz`.

Until it has learned something it forecasts the last value. torch is imported with the first observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockstep.engine.forecasts.base import Array, Forecast, Seen
from lockstep.engine.forecasts.history import RecentSeconds
from lockstep.engine.forecasts.kept import Kept
from lockstep.engine.forecasts.system import FEATURES_PER_NUMBER, SystemFeatures
from lockstep.engine.options import option

if TYPE_CHECKING:
    from lockstep.engine.forecasts.sequence_model import SequenceModel

LAGS = 3
OWN_INPUTS = LAGS + 3
"""Inputs from times; those of the system's state come after them."""
SHORT = 0.25
"""Weight of the latest task in the exponentially weighted mean."""
LONG = 32
"""Tasks of the running median."""
LEARNERS = 64
"""Training takes examples from at most so many workers, evenly spread, which bounds its memory."""
UPDATE_SECONDS = 0.003
"""What an update is taken to cost, in seconds of one core. A constant: what is learned must not depend on a clock."""
MOST_DUE = 4
"""Updates that wait for idle time at most; those beyond are left out."""


@dataclass(frozen=True)
class LstmOptions:
    """Its size and how it is trained online."""

    hidden: int = option(32, "units of the LSTM", least=1)
    every: int = option(4, "rounds from one update to the next", least=1)
    batch: int = option(16, "windows of an update", least=1)
    window: int = option(32, "tasks of a window", least=1)
    memory: int = option(256, "tasks of each worker to choose windows from", least=2)
    rate: float = option(0.03, "learning rate of Adam", above=0)


class LstmInputs(Kept):
    """Makes the network's inputs from what is seen."""

    kept: ClassVar[tuple[str, ...]] = ("_history", "_mean", "_system", "level", "lowest", "highest")

    def __init__(self, workers: int, numbers: int) -> None:
        self._history = RecentSeconds(workers, LONG)
        self._mean = np.full(workers, np.nan)
        self._system = SystemFeatures(workers, numbers)
        self.level = float("nan")  # the running median of all workers, in logarithms
        self.lowest, self.highest = np.inf, -np.inf  # logarithms seen so far

    def take(self, who: NDArray[np.intp], seconds: Array, readings: Array) -> Array:
        """[k, inputs] of the workers `who`."""
        logs = np.log(seconds)
        self.lowest, self.highest = min(self.lowest, float(logs.min())), max(self.highest, float(logs.max()))
        self._history.add(who, logs)
        before = np.where(np.isnan(self._mean[who]), logs, self._mean[who])
        self._mean[who] = before + SHORT * (logs - before)
        own = self._history.medians()
        self.level = float(np.nanmedian(own))
        lags = self._history.latest(who, 1 + LAGS)[:, 1:]
        averages = np.stack([self._mean[who], own[who]], axis=1)
        state = self._system.take(who, readings)
        return np.column_stack([logs - self.level, lags - logs[:, None], averages - logs[:, None], state])


class Lstm(Forecast):
    """See the module."""

    does = "an LSTM over times and state of the system, trained while the server waits (DPro-SM 5.3)"
    options_kind = LstmOptions
    kept: ClassVar[tuple[str, ...]] = (
        "_numbers", "_inputs", "_next", "_h", "_c", "_seen", "_follow", "_count", "_rounds", "_due", "_updates"
    )  # fmt: skip

    def __init__(self, workers: int, options: LstmOptions, seed: int) -> None:
        super().__init__(workers, options, seed)
        self._model: SequenceModel | None = None
        self._next = np.full(workers, np.nan)  # forecasts, seconds
        self._h, self._c = (np.zeros((workers, options.hidden), np.float32) for _ in range(2))
        self._rounds, self._due, self._updates = 0.0, 0, 0
        self._learners = np.arange(0, workers, -(-workers // LEARNERS))
        self._size(0)

    # Forecasting ------------------------------------------------------------------------------------------------------

    def learn(self, seen: Seen) -> None:
        """Goes one step on; what was seen becomes an example, and an update may fall due."""
        model = self._begun(seen.readings.shape[1])
        inputs = self._inputs.take(seen.who, seen.seconds, seen.readings)
        mean, _, (h, c) = model.step(inputs, (self._h[seen.who], self._c[seen.who]))
        self._h[seen.who], self._c[seen.who] = h, c
        # Nothing is forecast beyond twice what was ever seen.
        known = self._inputs
        log = np.clip(mean[:, 0] + known.level, known.lowest - np.log(2), known.highest + np.log(2))
        self._next[seen.who] = np.exp(log)
        self._keep(seen, inputs)
        before = int(self._rounds) // self.options.every
        self._rounds += len(seen.who) / self.workers
        self._due = min(MOST_DUE, self._due + int(self._rounds) // self.options.every - before)

    def centre(self) -> Array:
        """What the last step of each worker forecast."""
        return self._next.copy()

    # Training ---------------------------------------------------------------------------------------------------------

    def idle(self, budget_seconds: float) -> None:
        """Makes the updates that are due, as many as the budget holds at UPDATE_SECONDS each."""
        self._absorb()
        while self._due and budget_seconds >= UPDATE_SECONDS and self._model is not None:
            budget_seconds -= UPDATE_SECONDS
            self._due -= 1
            self._updates += 1
            self._update(self._model)

    def pretrain(self, sequences: Sequence[ArrayLike], seed: int, steps: int = 400) -> list[float]:
        """Learns from runs of any kind before anything is seen; the loss of each of `steps` updates.

        sequences: seconds per sample, [rounds, workers] each, or [rounds, workers, 1 + numbers of the system's state].
        Raises ValueError where a run has another shape or a time that is not a finite number above 0, and after the
        first observation.
        """
        if self._model is not None:
            raise ValueError("the LSTM is trained beforehand once, and before the first observation")
        runs = [np.asarray(run, np.float64) for run in sequences]
        numbers = {run.shape[2] - 1 if run.ndim == 3 else 0 for run in runs if run.ndim in (2, 3)}
        if len(numbers) != 1 or any(run.ndim not in (2, 3) for run in runs):
            raise ValueError(f"give runs of [rounds, workers], all with as many numbers, not {[r.shape for r in runs]}")
        cubes = [run[..., None] if run.ndim == 2 else run for run in runs]
        for number, run in enumerate(cubes):
            if not (np.isfinite(run[..., 0]) & (run[..., 0] > 0)).all():
                raise ValueError(f"run {number} has seconds that are not finite numbers above 0")
        examples = [sequence for run in cubes for sequence in _sequences(run)]
        model = self._made(numbers.pop(), steps=steps)
        losses = model.fit(examples, seed)
        self._adopt(model)
        return losses

    def save_weights(self, path: Path) -> None:
        """To a `.npz` file. Raises ValueError where there are none yet."""
        if self._model is None:
            raise ValueError("the LSTM has no weights before it is trained beforehand or has seen something")
        self._model.save(path)

    def read_weights(self, path: Path) -> None:
        """What `save_weights` wrote, to be tuned. Raises ValueError for another shape, and after an observation."""
        from lockstep.engine.forecasts.sequence_model import SequenceModel

        if self._model is not None:
            raise ValueError("the LSTM reads weights before the first observation")
        self._adopt(SequenceModel.read(path))

    def _update(self, model: SequenceModel) -> None:
        """On random windows, which are shorter where a worker's past is."""
        ready = np.flatnonzero(self._count >= 2)
        if not ready.size:
            return
        memory, window, batch = self.options.memory, self.options.window, self.options.batch
        random = np.random.default_rng([self.seed, self._updates])
        row = random.choice(ready, size=batch)
        count = self._count[row]
        oldest = count - np.minimum(count, memory)
        first = random.integers(oldest, np.maximum(oldest, count - 1 - window) + 1)
        at = first[:, None] + np.arange(window)
        after = (at + 1) % memory
        known = (at + 1 < count[:, None]) & self._follow[row[:, None], after]
        targets = self._seen[row[:, None], after, :1]
        model.train(self._seen[row[:, None], at % memory], targets, known[..., None])

    def _keep(self, seen: Seen, inputs: Array) -> None:
        row = np.searchsorted(self._learners, seen.who)
        here = self._learners[np.minimum(row, len(self._learners) - 1)] == seen.who
        row = row[here]
        place = self._count[row] % self.options.memory
        self._seen[row, place] = inputs[here]
        self._follow[row, place] = seen.follows[here]
        self._count[row] += 1

    # Beginning --------------------------------------------------------------------------------------------------------

    def _size(self, numbers: int) -> None:
        """For so many numbers of the system's state."""
        self._numbers = numbers
        self._inputs = LstmInputs(self.workers, numbers)
        rows, memory = len(self._learners), self.options.memory
        self._seen = np.zeros((rows, memory, OWN_INPUTS + FEATURES_PER_NUMBER * numbers))
        self._follow = np.zeros((rows, memory), bool)
        self._count = np.zeros(rows, np.int64)

    def _begun(self, numbers: int) -> SequenceModel:
        if self._model is None:
            self._adopt(self._made(numbers))
        if self._numbers != numbers or self._model is None:
            raise ValueError(f"the LSTM learned from {self._numbers} numbers of the system's state; {numbers} come now")
        return self._model

    def _made(self, numbers: int, **training: int) -> SequenceModel:
        from lockstep.engine.forecasts.sequence_model import SequenceModel, SequenceOptions

        inputs = OWN_INPUTS + FEATURES_PER_NUMBER * numbers
        options = SequenceOptions(inputs=inputs, hidden=self.options.hidden, rate=self.options.rate, **training)
        return SequenceModel(options, self.seed)

    def _adopt(self, model: SequenceModel) -> None:
        numbers, odd = divmod(model.options.inputs - OWN_INPUTS, FEATURES_PER_NUMBER)
        if odd or numbers < 0 or (model.options.hidden, model.options.horizon) != (self.options.hidden, 1):
            raise ValueError(f"the weights are of {model.options}, which does not fit {self.options}")
        model.options = replace(model.options, rate=self.options.rate)  # of what is tuned from here on
        self._model = model
        self._size(numbers)

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """With the weights and what Adam remembers."""
        return super().state() | {"weights": {} if self._model is None else self._model.arrays()}

    def load(self, state: Mapping[str, Any]) -> None:
        """As every forecaster's."""
        rest = dict(state)
        weights = rest.pop("weights", {})
        self._model = None
        self._size(int(rest.get("_numbers", 0)))
        super().load(rest)
        if weights:
            self._model = self._made(self._numbers)
            self._model.restore(weights)


def _sequences(run: Array) -> list[Array]:
    """[rounds, workers, 1 + numbers] as one [rounds, inputs] per worker."""
    rounds, workers, columns = run.shape
    inputs, everybody = LstmInputs(workers, columns - 1), np.arange(workers)
    steps = [inputs.take(everybody, run[step, :, 0], run[step, :, 1:]) for step in range(rounds)]
    return list(np.stack(steps, axis=1))

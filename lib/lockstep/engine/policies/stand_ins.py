"""Gradients made up for workers that are missing, from what was seen of them.

    nothing        a zero: the weights of the others sum to 1 without it
    zero           a zero of the worker's weight: the others keep theirs, so that the step is shorter. A control: what
                   does no better than this is worth nothing
    last           the worker's last gradient
    average        the exponential average of its gradients
    lstm           the next value of every coordinate, forecast by one small LSTM (DPro-SM section 5, "replaced by the
                   output of the LSTM node")
    lstm_weights   the same of the worker's parameters ("the LSTM node substitutes the weights"): what it would have had
                   after a step of its own. The gradient that this amounts to is the way back from there

The LSTM sees every coordinate as a sequence of its own, less the coordinate's mean and divided by the spread of all; so
it is small, whatever the model. In virtual time, which counts none of it, it learns when it is asked; on a real server
as soon as that waits for its workers (`idle`), so that no update is held up by it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lockstep.engine.forecasts.sequence_model import SequenceModel

Floats = NDArray[np.float64]

GRADIENTS = ("nothing", "zero", "last", "average", "lstm")
WEIGHTS = "lstm_weights"
KINDS = (*GRADIENTS, WEIGHTS)
DECAY = 0.5
"""Weight of a new gradient in the average."""
REMEMBERED = 8
"""Gradients of a worker that the LSTM sees."""
HIDDEN = 8
COORDINATES = 256
"""Coordinates that an update of the LSTM learns from, at most."""
UPDATES = 2
"""Of the LSTM, for each gradient that it makes up."""
MOST_UPDATES = 16
"""At one time, where the server has not waited for long: who comes meanwhile is held up by them."""


class StandIns:
    """Remembers of each worker's gradients, float64 [length], what `kinds` need, and makes up missing ones: for an LSTM
    the last `REMEMBERED`, which of a large model are many numbers.

    Whatever it makes up is zero until something of the worker was seen. torch is imported by the LSTM alone. The same
    calls with the same seed give the same numbers. `learns_idle`: the LSTM learns in `idle` alone.
    """

    def __init__(self, length: int, seed: int = 0, kinds: Sequence[str] = KINDS, learns_idle: bool = False) -> None:
        self.length, self.seed, self.kinds, self.learns_idle = length, seed, tuple(kinds), learns_idle
        self._due: Counter[str] = Counter()  # updates of each kind's LSTM
        self._seen: set[int] = set()
        self._average: dict[int, Floats] = {}
        self._gradients: dict[int, deque[Floats]] = {}
        self._weights: dict[int, deque[Floats]] = {}
        self._way = np.zeros(length)  # from the first parameters to the present ones, in units of - learning rate
        self._models: dict[str, SequenceModel] = {}
        self._random = np.random.default_rng([seed, length])

    def seen(self, worker: int, gradient: Floats) -> None:
        """A gradient of `worker`, of the present parameters; `moved` comes after those of one update."""
        if not self.kinds:
            return
        gradient = np.asarray(gradient, np.float64)
        self._seen.add(worker)
        if "average" in self.kinds:
            before = self._average.get(worker)
            self._average[worker] = gradient if before is None else before + DECAY * (gradient - before)
        if "last" in self.kinds or "lstm" in self.kinds:
            many = REMEMBERED if "lstm" in self.kinds else 1
            self._gradients.setdefault(worker, deque(maxlen=many)).append(gradient)
        if WEIGHTS in self.kinds:
            self._weights.setdefault(worker, deque(maxlen=REMEMBERED)).append(self._way + gradient)

    def moved(self, way: Floats) -> None:
        """The parameters have moved by -learning rate x `way`: the update itself, or with momentum something else."""
        if WEIGHTS in self.kinds:
            self._way = self._way + way

    def made(self, worker: int, kind: str) -> Floats:
        """The gradient of `kind` for `worker`, float64 [length]. Raises ValueError for a kind that does not exist."""
        if kind not in self.kinds:
            raise ValueError(f"a stand-in of kind {kind!r} does not exist; there are: {', '.join(self.kinds)}")
        if kind in ("nothing", "zero") or worker not in self._seen:
            return np.zeros(self.length)
        if kind == "last":
            return self._gradients[worker][-1].copy()
        if kind == "average":
            return self._average[worker].copy()
        if kind == "lstm":
            return self._forecast("lstm", worker)
        return self._forecast(WEIGHTS, worker) - self._way

    def idle(self) -> None:
        """The caller waits: the LSTM makes up for the updates that are due, but for no more than MOST_UPDATES."""
        for kind, updates in self._due.items():
            self._learn(kind, min(updates, MOST_UPDATES))
        self._due.clear()

    def _forecast(self, kind: str, worker: int) -> Floats:
        """What follows the worker's sequence."""
        own = np.stack(self._histories(kind)[worker])  # [steps, length]
        centre, spread = own.mean(axis=0), (own - own.mean(axis=0)).std()
        if not spread:
            return own[-1].copy()
        if self.learns_idle:
            self._due[kind] += UPDATES
        else:
            self._learn(kind, UPDATES)
        model = self._model(kind)
        hidden = (np.zeros((self.length, HIDDEN), np.float32), np.zeros((self.length, HIDDEN), np.float32))
        mean = np.zeros((self.length, 1))
        for step in (own - centre) / spread:
            mean, _, hidden = model.step(step[:, None], hidden)
        return mean[:, 0] * spread + centre

    def _histories(self, kind: str) -> dict[int, deque[Floats]]:
        return self._weights if kind == WEIGHTS else self._gradients

    def _learn(self, kind: str, updates: int) -> None:
        """With the sequences of all workers."""
        usable = [np.stack(history) for history in self._histories(kind).values() if len(history) > 2]
        for _ in range(updates if usable else 0):
            self._update(self._model(kind), usable)

    def _update(self, model: SequenceModel, sequences: list[Floats]) -> None:
        """With some coordinates of one worker: what followed the steps before the last one."""
        steps = sequences[self._random.integers(len(sequences))]
        places = self._random.choice(self.length, min(COORDINATES, self.length), replace=False)
        before = steps[:-1]
        centre, spread = before.mean(axis=0), (before - before.mean(axis=0)).std()
        if not spread:
            return
        scaled = ((steps - centre) / spread)[:, places].T[:, :, None]  # [coordinates, steps, 1]
        known = np.zeros(scaled[:, 1:].shape, np.bool_)
        known[:, -1] = True
        model.train(scaled[:, :-1], scaled[:, 1:], known)

    def _model(self, kind: str) -> SequenceModel:
        from lockstep.engine.forecasts.sequence_model import SequenceModel, SequenceOptions

        if kind not in self._models:
            self._models[kind] = SequenceModel(SequenceOptions(inputs=1, hidden=HIDDEN, rate=0.01), self.seed)
        return self._models[kind]

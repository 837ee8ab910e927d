"""The LSTM, and what is left of it without pre-training, without recalibration, or with its weights learned further.

By default it learns the prior's curves once for all studies, and of the study only its forecasts' offset and spread:
a study has too few finished curves to teach 5 198 weights, and enough to correct two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.tuning.forecasting import network
from lockstep.tuning.forecasting.base import Array, Forecaster
from lockstep.tuning.forecasting.pretraining import PriorSettings, pretrained
from lockstep.tuning.forecasting.recalibration import Recalibration

if TYPE_CHECKING:
    from lockstep.engine.forecasts.sequence_model import SequenceModel

MODEL = "model."
"""Before the names of the network's arrays in a file."""


class CurveLstm(Forecaster):
    """Pre-trained, and recalibrated on the study's finished curves."""

    name = "lstm"
    does = "an LSTM pre-trained on synthetic curves, its offset and spread recalibrated on finished ones"
    recalibration = Recalibration()

    def __init__(self, prior: PriorSettings | None = None) -> None:
        """prior: how it is pre-trained, which happens when it is first asked."""
        super().__init__()
        self.prior = prior or PriorSettings()
        self._model: SequenceModel | None = None

    @property
    def model(self) -> SequenceModel:
        """The network as it is now."""
        if self._model is None:
            self._model = self.beginning()
        return self._model

    def beginning(self) -> SequenceModel:
        """The network before it has seen the study."""
        return pretrained(self.prior)

    def raw(self, curves: Array, end: int) -> tuple[Array, Array]:
        """See `Forecaster.raw`: one pass of the network."""
        return network.forecast_ends(self.model, curves, end)

    def learned(self) -> dict[str, Any]:
        """The network."""
        return {f"{MODEL}{name}": value for name, value in self.model.stored().items()}

    def relearn(self, arrays: dict[str, Any], path: Path) -> None:
        """Raises ValueError where there is no network."""
        from lockstep.engine.forecasts.sequence_model import SequenceModel

        found = {name.removeprefix(MODEL): value for name, value in arrays.items() if name.startswith(MODEL)}
        self._model = SequenceModel.from_stored(found, str(path))


class LstmNotRecalibrated(CurveLstm):
    """Pre-trained; the study's curves change nothing."""

    name = "lstm_not_recalibrated"
    does = "the pre-trained LSTM as it is"
    recalibration = Recalibration(math.inf, math.inf)


class LstmRefitted(CurveLstm):
    """Pre-trained, then its weights are learned further on the study's finished curves.

    They are learned anew whenever there are half as many curves more, at REFITS; offset and spread are recalibrated
    on the curves that were finished since, as those that were learned from say nothing of misses. So what `fit` finds
    follows from its arguments alone.
    """

    name = "lstm_refitted"
    does = "the pre-trained LSTM, its weights learned further on finished curves"
    learns = True
    steps: int = 60
    batch: int = 16
    rate: float = 0.002

    def __init__(self, prior: PriorSettings | None = None) -> None:
        super().__init__(prior)
        self._taught: tuple[int, list[Array]] = (0, [])  # seed and curves that the weights have learned

    def learn(self, curves: Sequence[Array], seed: int) -> int:
        """Learns from the first REFITS curves; how many these are."""
        count = max((number for number in REFITS if number <= len(curves)), default=0)
        chosen = list(curves[:count])
        known_seed, known = self._taught
        same = len(known) == count and all(map(np.array_equal, known, chosen)) and seed == known_seed
        if self._model is None or not same:
            self._model = self.beginning()
            self._refit(self._model, [curve for curve in chosen if len(curve) > 1], seed)
            self._taught = seed, chosen
        return count

    def _refit(self, model: SequenceModel, curves: Sequence[Array], seed: int) -> None:
        if not curves:
            return
        model.options = replace(model.options, rate=self.rate)
        random = np.random.default_rng(seed)
        with network.one_thread():
            for step in range(self.steps):
                drawn = [curves[number] for number in random.integers(len(curves), size=self.batch)]
                ended = [curve[: int(random.integers(2, len(curve) + 1))] if step % 2 else curve for curve in drawn]
                network.learn_ends(model, ended, fade=1 - step / self.steps)

    def relearn(self, arrays: dict[str, Any], path: Path) -> None:
        """As `CurveLstm`'s; a later `fit` learns anew."""
        super().relearn(arrays, path)
        self._taught = -1, []


REFITS = (4, 6, 9, 14, 21, 32, 48, 72, 108, 162, 243)
"""Finished curves at which weights are learned anew, each half as many more as before."""


class LstmNotPretrained(LstmRefitted):
    """Learns from the study's own finished curves alone; with fewer than REFITS[0] its raw one is the last value."""

    name = "lstm_not_pretrained"
    does = "the same LSTM, taught on the study's finished curves alone"
    steps = 200
    rate = 0.01

    def beginning(self) -> SequenceModel:
        """Weights that have learned nothing."""
        from lockstep.engine.forecasts.sequence_model import SequenceModel, SequenceOptions

        return SequenceModel(SequenceOptions(network.INPUTS, hidden=self.prior.hidden, rate=self.rate), self.prior.seed)

    def _refit(self, model: SequenceModel, curves: Sequence[Array], seed: int) -> None:
        if curves:
            network.scale_by(model, curves)
        super()._refit(model, curves, seed)

"""States that begin without a sign: how much can be forecast there from the past alone, and why that is no leak.

clock        |---- step t-1 ----|---- step t ----|        a state begins on the clock, within a task: that task is
worker       |------|~~~~~~~~~~~|~~~~~~~~~~~~~~~~|        slowed down in part, often too little for a straggler, and
                    begins            an onset            the next one is an onset that could be seen coming

The worlds of the stored seeds are simulated anew (less than a second for all of them), for records hold no task's work
without its noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate, highest, lowest
from lockstep.analysis.sentences import finding, listed, require_rounds, sentence
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored, once
from lockstep.engine.delays import make_delays
from lockstep.engine.forecasts.scores import LATER, mean_absolute_error, onsets
from lockstep.experiments.e10_straggler_forecasts.forecasters import BASE, READINGS, SIMULATED
from lockstep.experiments.e10_straggler_forecasts.grid import FORECASTS, KINDS, SUDDEN
from lockstep.experiments.e10_straggler_forecasts.ratios import error_ratio, lead_over_chance
from lockstep.experiments.e10_straggler_forecasts.worlds import Array, simulated_world

_WHOLE = 1e-6  # a task that is slowed down by less, or by so little less than in full, is not slowed down in part


@once
def past_alone(stored: Stored) -> pd.DataFrame:
    """A row per kind of SUDDEN and stored seed, from step 60 on: kind, seed, last_seconds (the last value's mean
    absolute error), noise_free and continued (errors over it: of repeating a task's slowdown without the noise of its
    work, and of continuing a change that began within it, too), and recall (the share of onsets that the latter
    names)."""
    rows = []
    for kind in SUDDEN:
        own = stored.of(FORECASTS)
        own = own[(own["delays"] == KINDS[kind]) & (own["status"] == "ok")].drop_duplicates("seed")
        for workers, steps, seed in own[["workers", "steps", "seed"]].astype(int).itertuples(index=False):
            rows.append({"kind": kind, "seed": seed} | _of_world(KINDS[kind], workers, steps, seed))
    return pd.DataFrame(rows)


def _of_world(delays: str, workers: int, steps: int, seed: int) -> dict[str, float]:
    world = simulated_world(delays, workers, steps, seed)
    repeated, continued = _said(world.seconds / world.work, float(make_delays(delays, workers, seed).options.slow))
    last = np.vstack([world.seconds[:1], world.seconds[:-1]])
    seen = world.seconds[LATER]
    base, *errors = (mean_absolute_error(seen, said[LATER]) for said in (last, repeated, continued))
    found = dict(zip(("noise_free", "continued"), (error / base for error in errors), strict=True))
    return found | {"last_seconds": base, "recall": onsets(seen, continued[LATER]).recall}


def _said(slowed: Array, slow: float) -> tuple[Array, Array]:
    """[steps, workers], twice: forecasts of tasks of a second from `slowed`, how many times as long tasks took as their
    work; `slow` is a whole task's in the slow state. Nothing of a step itself is in its forecast."""
    before = np.vstack([slowed[:1], slowed[:-1]])
    earlier = np.vstack([before[:1], before[:-1]])
    in_part = (before > 1 + _WHOLE) & (before < slow - _WHOLE)
    return before, np.where(in_part, np.where(before > earlier, slow, 1.0), before)


def possible(stored: Stored, column: str, kind: str) -> Estimate:
    """The mean over seeds of a column of `past_alone`. Raises AnalysisError where that kind was not simulated."""
    table = past_alone(stored)
    own = table[table["kind"] == kind] if len(table) else table
    if own.empty:
        raise AnalysisError(f"{kind} was not simulated")
    values = own.set_index("seed")[column].dropna()
    return mean_of(values) if column == "recall" else interval_of(values)


@finding
def sudden(stored: Stored) -> str:
    """How both readings of the LSTM stand on states that begin without a sign, and what the past alone allows."""
    parts = []
    for reading, name in READINGS.items():
        found = [interval_of(error_ratio(stored, kind, name)) for kind in SUDDEN]
        for ratio in found:
            require_rounds(ratio)
        parts.append(f"{_by_kind(found)} {reading}")
    return " ".join([
        sentence(f"the LSTM's error, relative to the last value's, is {', and '.join(parts)}"),
        _allowed(stored), _compared(stored),
    ])  # fmt: skip


def _by_kind(found: Sequence[Estimate], unit: str = "") -> str:
    return listed(f"{one.value:.3g}{unit} {one.interval} on {kind}" for kind, one in zip(SUDDEN, found, strict=True))


def _allowed(stored: Stored) -> str:
    noise_free, continued, recall = (
        [possible(stored, column, kind) for kind in SUDDEN] for column in ("noise_free", "continued", "recall")
    )
    return sentence(
        f"repeating a worker's last slowdown without the noise of its work has an error of {_by_kind(noise_free)}; "
        f"whoever also continues a change that began within the last task has {_by_kind(continued)}, and from the past "
        f"alone names so many of the onsets beforehand: {_by_kind([each.times(100) for each in recall], ' %')}"
    )


def _compared(stored: Stored) -> str:
    """Whether any forecaster knows more than that, by whole intervals that pay for the choice."""
    least = [lowest([interval_of(error_ratio(stored, kind, name)) for name in SIMULATED if name != BASE])
             for kind in SUDDEN]  # fmt: skip
    most = [highest([mean_of(lead_over_chance(stored, kind, name)) for name in SIMULATED]) for kind in SUDDEN]
    allowed = [(possible(stored, "continued", kind), possible(stored, "recall", kind)) for kind in SUDDEN]
    beyond = [
        kind for kind, low, high, (error, recall) in zip(SUDDEN, least, most, allowed, strict=True)
        if low.low < error.high or high.high > recall.low
    ]  # fmt: skip
    open_ = f"the intervals do not show that the past is enough for both on {listed(beyond)}"
    end = open_ if beyond else "neither needs the future"
    return sentence(
        f"of all forecasters compared, the least error is {_by_kind(least)}, and the largest recall of onsets above "
        f"chance {_by_kind([each.times(100) for each in most], ' %')}: {end}"
    )

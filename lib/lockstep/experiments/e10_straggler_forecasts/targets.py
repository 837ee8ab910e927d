"""What we aim at in notebook 10: the table "to reach" of the plan, whose numbers a prototype had shown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate, highest, lowest
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_LEAST, AT_MOST, Read, Reading, Target, lacking
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BASE,
    BEST,
    DECIDING,
    LABELS,
    LEARNED,
    LSTM,
    MEMBERS,
    READINGS,
    SIMULATED,
    TRIVIAL,
)
from lockstep.experiments.e10_straggler_forecasts.grid import COSTS, FORECASTS, KINDS, PAUSES, SUDDEN, TRACE_OF, TRACED
from lockstep.experiments.e10_straggler_forecasts.ratios import (
    EARLY,
    LATER,
    cost,
    error_ratio,
    known_onsets,
    lead_over_chance,
    per_seed,
    scored,
    share_of,
    trace_error,
)
from lockstep.experiments.e10_straggler_forecasts.sudden import possible
from lockstep.experiments.e10_straggler_forecasts.worlds import MICRO_BATCHES
from lockstep.experiments.simulated_targets import seconds_of_a_round, with_time_to_decide

STEP_MILLISECONDS, COST_SHARE = 100.0, 0.02


def _reading(experiment: str, find: Callable[[Stored], tuple[Estimate, str]]) -> Read:
    """What `find` finds, with a remark; in its place why the cells of `experiment` have no number."""

    def read(stored: Stored) -> Reading:
        try:
            found, remark = find(stored)
        except AnalysisError as error:
            return lacking([stored.of(experiment)], str(error))
        return Reading(found, reason=remark)

    return read


def _errors(kind: str, name: str, over: str = BASE) -> Read:
    return _reading(FORECASTS, lambda stored: (interval_of(error_ratio(stored, kind, name, over)), ""))


def _onsets(kind: str, name: str) -> Read:
    return _reading(FORECASTS, lambda stored: (mean_of(known_onsets(stored, kind, name)), ""))


def _onsets_told(kind: str, name: str) -> Read:
    """Of a forecaster that is told the state of the system; the remark names it, and what the LSTM has, told it too."""

    def find(stored: Stored) -> tuple[Estimate, str]:
        others = []
        for reading, other in READINGS.items():
            try:
                others.append(f"{reading} {share_of(known_onsets(stored, kind, other, told=True))}")
            except AnalysisError:
                continue
        beside = f"; LSTM {', '.join(others)}" if others else ""
        return mean_of(known_onsets(stored, kind, name, told=True)), f"{LABELS[name]}{beside}"

    return _reading(FORECASTS, find)


def _extreme(
    pick: Callable[[list[Estimate]], Estimate], choices: Iterable[tuple[str, Callable[[Stored], Estimate]]]
) -> Callable[[Stored], tuple[Estimate, str]]:
    """The largest or smallest of several estimates, which pays for the choice; the remark names it."""
    kept = list(choices)

    def find(stored: Stored) -> tuple[Estimate, str]:
        found = {}
        for name, read in kept:
            try:
                found[name] = read(stored)
            except AnalysisError:
                continue
        if not found:
            raise AnalysisError("nothing of the kind was simulated")
        picked = pick(list(found.values()))
        return picked, next(name for name, each in found.items() if each.value == picked.value)

    return find


def _nobody_beats_the_last_value() -> Read:
    """The least error of any forecaster on kinds that begin without a sign."""
    choices = [
        (f"{LABELS[name]}, on {kind}", functools.partial(_ratio, kind=kind, name=name))
        for kind in SUDDEN for name in SIMULATED if name != BASE
    ]  # fmt: skip
    return _reading(FORECASTS, _beside_the_past(_extreme(lowest, choices), "continued", "an error of {:.2g}"))


def _beside_the_past(
    find: Callable[[Stored], tuple[Estimate, str]], column: str, text: str
) -> Callable[[Stored], tuple[Estimate, str]]:
    """With a remark on what the past alone allows on the kind that was chosen, which is no leak."""

    def beside(stored: Stored) -> tuple[Estimate, str]:
        found, chosen = find(stored)
        kind = next(kind for kind in SUDDEN if chosen.endswith(kind))
        return found, f"{chosen}, where the past alone allows {text.format(possible(stored, column, kind).value)}"

    return beside


def _ratio(stored: Stored, kind: str, name: str) -> Estimate:
    return interval_of(error_ratio(stored, kind, name))


def _nobody_sees_them_coming() -> Read:
    """The largest recall of onsets above chance there: more would mean that the future leaked."""
    choices = [
        (f"{LABELS[name]}, on {kind}", functools.partial(_lead, kind=kind, name=name))
        for kind in SUDDEN for name in SIMULATED
    ]  # fmt: skip
    return _reading(FORECASTS, _beside_the_past(_extreme(highest, choices), "recall", "{:.2g}"))


def _lead(stored: Stored, kind: str, name: str) -> Estimate:
    return mean_of(lead_over_chance(stored, kind, name))


def _close_to_the_best(period: str) -> Read:
    """The largest error of following the best over the member that was best on that kind, over all kinds."""
    choices = [(kind, functools.partial(_over_the_best, kind=kind, period=period)) for kind in KINDS]
    return _reading(FORECASTS, _extreme(highest, choices))


def _over_the_best(stored: Stored, kind: str, period: str) -> Estimate:
    table = scored(stored)
    found = {}
    for name in MEMBERS:
        values = per_seed(table, "relative", kind=kind, forecaster=name, period=period, state="none")
        found[name] = float(np.log(values).mean())
    return interval_of(error_ratio(stored, kind, BEST, min(found, key=lambda name: found[name]), period))


def _learned_over_trivial(name: str) -> Read:
    """The least error of a forecaster that learns over the least of one that does not."""

    def find(stored: Stored) -> tuple[Estimate, str]:
        sides = [_least(stored, name, group) for group in (LEARNED, TRIVIAL)]
        ratio = (sides[0][1] / sides[1][1]).dropna()
        return interval_of(ratio), f"{LABELS[sides[0][0]]} over {LABELS[sides[1][0]]}, {MICRO_BATCHES}"

    return _reading(TRACED, find)


def _least(stored: Stored, trace: str, names: Iterable[str]) -> tuple[str, pd.Series]:
    found = {name: trace_error(stored, trace, name) for name in names}
    best = min(found, key=lambda name: float(np.log(found[name]).mean()))
    return best, found[best]


def _cost(stored: Stored, name: str = LSTM) -> tuple[Estimate, str]:
    spent = interval_of(cost(stored, name) / STEP_MILLISECONDS)
    return spent, f"of a step of {STEP_MILLISECONDS:g} ms, training included"


def _of(kinds: Sequence[str], *targets: Target) -> list[Target]:
    """Targets on simulated worlds of these kinds of delays, each of which a further seed simulates once."""
    delays = [KINDS[kind] for kind in kinds]
    return [
        with_time_to_decide(target, lambda stored: seconds_of_a_round(stored, FORECASTS, delays=delays))
        for target in targets
    ]


def _of_trace(delays: str, name: str) -> Target:
    target = Target(
        f"trace {name}: error of the best that learns over the best that does not", 1.0, _learned_over_trivial(name)
    )
    return with_time_to_decide(target, lambda stored: seconds_of_a_round(stored, TRACED, delays=[delays]))


def _of_cost(text: str, name: str) -> Target:
    target = Target(text, COST_SHARE, _reading(COSTS, functools.partial(_cost, name=name)), AT_MOST)
    return with_time_to_decide(target, lambda stored: seconds_of_a_round(stored, COSTS))


TARGETS: tuple[Target, ...] = (
    *_of(
        ("periodic",),
        Target("periodic: error of the LSTM over the last value's", 0.65, _errors("periodic", LSTM), AT_MOST),
        Target("periodic: error of the LSTM over autoregression's", 0.85, _errors("periodic", LSTM, "ar"), AT_MOST),
        Target("periodic: onsets that the LSTM forecast", 0.4, _onsets("periodic", LSTM)),
    ),
    *_of(
        ("drift",),
        Target("drift: error of the LSTM over the last value's", 0.92, _errors("drift", LSTM), AT_MOST),
    ),
    *(
        one for kind in PAUSES for one in _of((kind,), Target(
            f"{kind}: error of the running median over the last value's", 0.75, _errors(kind, "median"), AT_MOST
        ))
    ),
    *_of(
        SUDDEN,
        Target(
            "Markov states, groups: least error of any forecaster over the last value's", 0.97,
            _nobody_beats_the_last_value(), AT_LEAST,
        ),
        Target(
            "Markov states, groups: onsets forecast, above chance, by any forecaster", 0.1, _nobody_sees_them_coming(),
            AT_MOST,
        ),
    ),
    *_of(tuple(KINDS), *(
        Target(f"follow the best over the best, worst kind, {period}", 1.03, _close_to_the_best(period), AT_MOST)
        for period in (EARLY, LATER)
    )),
    *_of(
        ("burst credits",),
        Target("burst credits: onsets forecast with the balance known", 0.9, _onsets_told("burst credits", "linear")),
    ),
    *(_of_trace(delays, name) for delays, name in TRACE_OF.items()),
    _of_cost("the LSTM's time of a core, of a step", LSTM),
    *(_of_cost(f"{LABELS[name]}, by the LSTM: time of a core, of a step", name) for name in DECIDING),
)  # fmt: skip
"""Ten per cent above chance on sudden states are allowed: one that begins at the end of a task already shows in it
(`sudden` computes how many do)."""

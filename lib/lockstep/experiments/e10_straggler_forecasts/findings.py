"""What each figure of notebook 10 shows, in a sentence or two computed from what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.sentences import Finding, counted, finding, listed, measure_of, require_rounds, sentence, times
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored
from lockstep.engine.forecasts.scores import FACTOR
from lockstep.experiments.e10_straggler_forecasts.answer import but_for_one, error_over_kinds, errs, seen_coming
from lockstep.experiments.e10_straggler_forecasts.by_processor import longer, slow_from
from lockstep.experiments.e10_straggler_forecasts.cause_tables import (
    decoding_share,
    gradients_table,
    input_parts_table,
    of_network,
    slow_loading_table,
    slowdown,
    waiting,
)
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BASE,
    BEST,
    CAUSAL,
    LABELS,
    LSTM,
    QUANTILES,
    READINGS,
    SIMPLE,
    TRAINED,
)
from lockstep.experiments.e10_straggler_forecasts.grid import KINDS, TRACE_OF
from lockstep.experiments.e10_straggler_forecasts.ratios import (
    EARLY,
    LATER,
    cost,
    error_ratio,
    known_onsets,
    over_kinds,
    per_seed,
    scored,
    share_of,
    trace_error,
)
from lockstep.experiments.e10_straggler_forecasts.tables import history_table, trace_table
from lockstep.experiments.e10_straggler_forecasts.trace_onsets import seen_on_traces
from lockstep.experiments.e10_straggler_forecasts.verdicts import DENORMAL_EXPONENT
from lockstep.experiments.e10_straggler_forecasts.worlds import STEPS

NEAR = 0.05
"""An error that differs by less from another one is about as large."""


def _ratio(stored: Stored, kind: str, name: str, over: str = BASE, period: str = LATER) -> Estimate:
    found = interval_of(error_ratio(stored, kind, name, over, period))
    require_rounds(found)
    return found


@finding
def errors(stored: Stored) -> str:
    """Both readings of the LSTM beside following the best; where each wins by more than NEAR."""
    return " ".join(_over_all(stored, reading, name) for reading, name in READINGS.items())


def _over_all(stored: Stored, reading: str, name: str) -> str:
    over = error_over_kinds(stored, name, BEST)
    ratios = {kind: interval_of(error_ratio(stored, kind, name, BEST, told=True)) for kind in KINDS}
    far = {kind: f"{kind} ({ratio.value:.3g})" for kind, ratio in ratios.items() if abs(ratio.value - 1) > NEAR}
    less = listed(far[kind] for kind in far if ratios[kind].high < 1) or "none"
    more = listed(far[kind] for kind in far if ratios[kind].low > 1) or "none"
    one, _, rest = but_for_one(stored, name, BEST)
    others = f"without {one} {rest.value:.3g} times {rest.interval}"
    mean = f"the LSTM {reading} {errs(over, 'following the best')}, {others}"
    return f"{sentence(mean)} By over {100 * NEAR:g} % it errs less on {less}, more on {more}."


@finding
def onsets(stored: Stored) -> str:
    """How many stragglers the LSTM that was trained beforehand names before they are one, what the state of the system
    adds, and what F1 says instead."""
    f1 = per_seed(scored(stored), "f1", kind="Markov states", forecaster=BASE, period=LATER, state="none")
    blind = share_of(known_onsets(stored, "Markov states", BASE))
    also = (
        f"on Markov states the last value has an F1 of {mean_of(f1)} and names {100 * blind.value:.2g} % of them "
        "beforehand: F1 counts those that are slow already"
    )
    before = seen_coming(stored, TRAINED, "also trained beforehand, the LSTM")
    return " ".join([sentence(before), _with_the_state(stored), sentence(also)])


def _with_the_state(stored: Stored) -> str:
    told, blind = (share_of(known_onsets(stored, "burst credits", "linear", each)) for each in (True, False))
    return sentence(
        f"told the balance of burst credits, {LABELS['linear']} names {measure_of(told.times(100), '%')} of those "
        f"that run out, and {100 * blind.value:.2g} % without it"
    )


@finding
def examples(stored: Stored) -> str:
    """What the drawn kinds have in common with their whole worlds: the LSTM's error there."""
    verdicts, parts = dict[str, list[str]](), []
    for kind in ("periodic", "Markov states"):
        last, own = (_ratio(stored, kind, LSTM, over) for over in (BASE, "ar"))
        verdicts.setdefault(f"{_than(last)} the last value and {_than(own)} autoregression", []).append(kind)
        parts.append(f"on {kind} {times(last, 'that of the last value')}, and {times(own, 'that of autoregression')}")
    first = "; ".join(f"{said} on {listed(kinds)}" for said, kinds in verdicts.items())
    return f"{sentence(f'the LSTM errs {first}')} {sentence('its error is ' + '; '.join(parts))}"


def _than(ratio: Estimate) -> str:
    """Whether an error is less or more than another one, as far as its interval tells."""
    return "less than" if ratio.high < 1 else "more than" if ratio.low > 1 else "not distinguishably less or more than"


@finding
def calibration(stored: Stored) -> str:
    """The share of times below the quantiles that the LSTM forecasts, over all kinds."""
    parts = []
    for quantile in QUANTILES:
        of_kind = partial(_below_quantile, stored, name=LSTM, quantile=quantile)
        share = share_of(over_kinds(stored, of_kind, logarithmic=False))
        require_rounds(share)
        parts.append(f"{measure_of(share.times(100), '%')} lie below its quantile {quantile:g}")
    return sentence(f"of all times, mean over kinds, with the LSTM trained online {listed(parts)}")


def _below_quantile(stored: Stored, kind: str, name: str, quantile: float) -> pd.Series:
    return per_seed(scored(stored), f"below_{quantile:g}", kind=kind, forecaster=name, period=LATER, state="none")


@finding
def history(stored: Stored) -> str:
    """The LSTM's error with little history and with much, on the kind that it learns best."""
    parts, needed = [], []
    table = history_table(stored)
    for reading, name in READINGS.items():
        early, later = (_ratio(stored, "periodic", name, period=period) for period in (EARLY, LATER))
        parts.append(f"{early} and {later} {reading}")
        own = table[(table["forecaster"] == name) & (table["relative_high"] < 1)] if len(table) else table
        first = own.groupby("kind", sort=False)["seen_rounds"].min() if len(own) else pd.Series(dtype=int)
        ends = f"{first.min()} to {first.max()} steps on {len(first)}" if len(first) else "no number of steps on any"
        needed.append(f"{reading} it first errs less after {ends} of {counted(len(KINDS), 'kind')}")
    periods = "on periodic delays the LSTM's error over the last value's is, after 5 to 60 steps and later,"
    return f"{sentence(' '.join([periods, '; '.join(parts)]))} {sentence('; '.join(needed))}"


@finding
def traces(stored: Stored) -> str:
    """On each recorded run: the simple forecaster that errs least, beside the LSTM, and who is seen to become a
    straggler; and where the LSTM errs most on whole steps."""
    table, parts, steps = trace_table(stored), [], {}
    for name in TRACE_OF.values() if len(table) else ():
        try:
            found = {each: interval_of(trace_error(stored, name, each)).value for each in CAUSAL}
            steps[name] = interval_of(trace_error(stored, name, LSTM, STEPS))
        except AnalysisError:
            continue
        best = min(SIMPLE, key=found.__getitem__)
        parts.append(f"{name}, {found[best]:.2f} ({LABELS[best]}) and {found[LSTM]:.2f}")
    if not parts:
        return "No recorded run was in the data folder."
    least = "on micro-batches, errors over the last value's, of the best simple forecaster and of the LSTM"
    worst = max(steps, key=lambda name: steps[name].value)
    most = f"on whole steps the LSTM's is the highest on {worst}, {times(steps[worst], 'the error of the last value')}"
    return " ".join(sentence(text) for text in (f"{least}: {'; '.join(parts)}", seen_on_traces(stored), most))


@finding
def costs(stored: Stored) -> str:
    """What the LSTM takes of a core for each step, and what the costliest of the others takes."""
    spent = {name: interval_of(cost(stored, name)) for name in CAUSAL}
    lstm = spent.pop(LSTM)
    require_rounds(lstm)
    most = max(spent, key=lambda name: spent[name].value)
    return sentence(
        f"for each step of eight workers the LSTM takes {measure_of(lstm, 'ms')} of a core, {LABELS[most]}, the "
        f"costliest of the others, {measure_of(spent[most], 'ms')}"
    )


@finding
def loading(stored: Stored) -> str:
    """How far a step falls behind where input comes slowly to some."""
    table = slow_loading_table(stored)
    if table.empty:
        raise AnalysisError("slow loading was not simulated")
    rows = table.to_dict("records")
    parts = []
    for row in rows if len(rows) < 3 else (rows[-1], rows[0]):
        lost = waiting(stored, str(row["delays"]))
        require_rounds(lost)
        shares = (100 * mean_of_input(str(row["delays"])), 100 * row["stragglers_of_slow"])
        parts.append((f"{shares[0]:g} %", f"{shares[1]:.0f} %", str(lost)))
    share, late, slow = (" rather than ".join(each) for each in zip(*parts, strict=True))
    return sentence(
        f"where input is {share} of the work, {late} of slowly loading tasks are stragglers, and a step's slowdown is "
        f"{slow} times that of its mean worker"
    )


def mean_of_input(delays: str) -> float:
    """The share of input in the work, as these delays say it."""
    from lockstep.engine.delays import make_delays

    return float(make_delays(delays, 1, 0).options.share)


@finding
def vanishing(stored: Stored) -> str:
    """What denormal gradients cost, how deep a network must be for them, and who is slow then."""
    plain, flushed = (slowdown(stored, DENORMAL_EXPONENT, each) for each in (False, True))
    require_rounds(plain)
    table = gradients_table(stored)
    if table.empty:
        raise AnalysisError("no network's gradients were timed")
    own = interval_of(of_network(stored, "passed_on", "cnn", 0))
    worst = table.loc[table["behind"].idxmax()]
    alike = "all eight workers slow down alike: " if table["behind_high"].max() < FACTOR else "of eight workers "
    return " ".join([
        sentence(
            f"with denormal gradients a convolution's backward pass takes {longer(stored, plain)}; "
            f"flushed, {flushed.value:.3g} times {flushed.interval}"
        ),
        sentence(f"a whole network's takes more than {FACTOR:g} times as long {slow_from(stored, FACTOR)}"),
        sentence(f"in the use case's network the first layer's gradients are {own.value:.3g} times the last's"),
        sentence(
            f"{alike}the slowest takes at most {worst['behind']:.2f} times its peers' median, a straggler {FACTOR:g}"
        ),
    ])  # fmt: skip


@finding
def input_parts(stored: Stored) -> str:
    """Decoding's share of the input's time: over all images and ways, and of each."""
    shares, parts = list[float](), dict[str, str]()
    for row in input_parts_table(stored).to_dict("records"):
        share = interval_of(decoding_share(stored, row["use_case"], row["way"]))
        require_rounds(share)
        shares.append(share.value)
        images = f"{row['use_case']} ({row['megapixels']:.2g} megapixels)"
        parts[images] = f"{parts.get(images, images)}, {row['way']} {measure_of(share, '%')}"
    if not parts:
        raise AnalysisError("the input was not timed")
    whole = f"decoding takes {min(shares):.0f} to {max(shares):.0f} % of the input's time"
    return f"{sentence(whole)} {sentence('; '.join(parts.values()))}"


FINDINGS: Mapping[str, Finding] = {
    "errors": errors,
    "onsets": onsets,
    "examples": examples,
    "calibration": calibration,
    "history": history,
    "traces": traces,
    "costs": costs,
    "loading": loading,
    "vanishing": vanishing,
    "input_parts": input_parts,
}

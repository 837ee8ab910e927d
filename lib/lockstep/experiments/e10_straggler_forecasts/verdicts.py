"""Verdicts on what *DPro-SM* says of forecasts, of vanishing gradients and of slow input.

Forecasts are judged in simulated worlds (grade *model*): the mean over all kinds of delays, each of which counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, highest
from lockstep.analysis.rules import above, enough, graded, within
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    MEASURED,
    MODEL,
    UNDECIDED,
    Claim,
    Verdict,
    Verdicts,
    any_of,
    join,
    opposite,
    settle,
)
from lockstep.engine.forecasts.scores import FACTOR
from lockstep.experiments.e10_straggler_forecasts.by_processor import longer, slow_from
from lockstep.experiments.e10_straggler_forecasts.cause_tables import (
    decoding_share,
    input_parts_table,
    network_rounds,
    of_network,
    slowdown,
    stragglers_of_slow,
    waiting,
)
from lockstep.experiments.e10_straggler_forecasts.forecasters import BASE, BEST, FEW_ROUNDS, LSTM, READINGS
from lockstep.experiments.e10_straggler_forecasts.grid import FORECASTS, INPUT_PARTS, KINDS, SLOW_LOADING, VANISHING
from lockstep.experiments.e10_straggler_forecasts.ratios import (
    ERROR,
    error_ratio,
    histories,
    known_onsets,
    over_kinds,
    per_seed,
)
from lockstep.experiments.simulated_targets import seconds_of_a_round

RULES = Verdicts()
SEEN_COMING = 0.5
"""Of onsets: from here on it may be said that forecasts tell beforehand who becomes a straggler."""
VANISHED = 0.01
"""First layer's gradients over the last one's: below it they may be called vanishing. Ten sigmoids leave 1e-8."""
DENORMAL_EXPONENT = -40
MUCH_HISTORY = 200
"""Rounds after which nothing more is learned that would matter."""


def _kinds_where(stored: Stored, name: str, over: str) -> str:
    """Which kinds the LSTM forecasts with less error than `over`, and which with more: by the whole interval."""
    better, worse = [], []
    for kind in KINDS:
        try:
            ratio = interval_of(error_ratio(stored, kind, name, over, told=True))
        except AnalysisError:
            continue
        better += [f"{kind} {ratio.value:.3f}"] if ratio.high < 1 else []
        worse += [f"{kind} {ratio.value:.3f}"] if ratio.low > 1 else []
    return f"better on {', '.join(better) or 'none'}; worse on {', '.join(worse) or 'none'}"


def _timed(found: Verdict, stored: Stored, experiment: str, delays: Sequence[str] = ()) -> Verdict:
    """With what one more round of the cells that it reads takes, so that an undecided one has minutes."""
    return replace(found, round_seconds=seconds_of_a_round(stored, experiment, delays=delays))


def _either(stored: Stored, read: Callable[[str], Verdict]) -> Verdict:
    """The paper says nothing of how its LSTM is trained: one way that supports a claim is enough."""
    parts = [(reading, settle(partial(read, name))) for reading, name in READINGS.items()]
    return _timed(graded(any_of(parts), MODEL), stored, FORECASTS, list(KINDS.values()))


def _errs_less(stored: Stored, over: str, text: str) -> Verdict:
    """Is the LSTM's error below that of another forecaster, in the geometric mean over all kinds?"""

    def read(name: str) -> Verdict:
        ratio = interval_of(over_kinds(stored, partial(error_ratio, stored, name=name, over=over, told=True)))
        enough(ratio.rounds)
        return graded(opposite(above(ratio, 1.0, 1.0, text, "1")), MODEL, _kinds_where(stored, name, over))

    return _either(stored, read)


@RULES.add
def lstm_forecasts(claim: Claim, stored: Stored) -> Verdict:
    """A forecast must err less than one that repeats the last value, or it forecasts nothing."""
    return _errs_less(stored, BASE, "times the error of the last value, mean over kinds of delays")


@RULES.add
def lstm_is_the_right_one(claim: Claim, stored: Stored) -> Verdict:
    """Beside the best forecaster so far of those whose memory is short: what one gets without any LSTM."""
    return _errs_less(stored, BEST, "times the error of following the best of six simple forecasters, mean over kinds")


@RULES.add
def stragglers_beforehand(claim: Claim, stored: Stored) -> Verdict:
    """Of workers that become stragglers, does the LSTM name more than half a round before?"""

    def read(name: str) -> Verdict:
        recall = mean_of(over_kinds(stored, partial(known_onsets, stored, name=name, told=True), logarithmic=False))
        enough(recall.rounds)
        text = "of onsets were forecast, mean over kinds of delays"
        found = above(recall, SEEN_COMING, SEEN_COMING, text, f"{SEEN_COMING:g}")
        return graded(found, MODEL, f"by kind: {_recalls(stored, name)}")

    return _either(stored, read)


def _recalls(stored: Stored, name: str) -> str:
    parts = []
    for kind in KINDS:
        try:
            parts.append(f"{kind} {known_onsets(stored, kind, name, told=True).mean():.2f}")
        except AnalysisError:
            continue
    return ", ".join(parts)


@RULES.add
def small_jobs_are_hard(claim: Claim, stored: Stored) -> Verdict:
    """Does the LSTM err more, beside the last value, while it has seen fewer than ten rounds?"""
    few = interval_of(over_kinds(stored, partial(_by_history, stored)))
    enough(few.rounds)
    text = f"times the error relative to the last value's, with fewer than ten steps seen over {MUCH_HISTORY} and more"
    return _timed(graded(above(few, 1.0, 1.0, text, "1"), MODEL), stored, FORECASTS, list(KINDS.values()))


def _by_history(stored: Stored, kind: str) -> pd.Series:
    def relative(first: int) -> pd.Series:
        table = histories(stored)
        sides = (per_seed(table, ERROR, kind=kind, forecaster=name, seen_rounds=first) for name in (LSTM, BASE))
        own, base = sides
        return (own / base).dropna()

    few = pd.concat([relative(first) for first in FEW_ROUNDS], axis=1).mean(axis=1)
    return (few / relative(MUCH_HISTORY)).dropna()


@RULES.add
def vanishing_makes_stragglers(claim: Claim, stored: Stored) -> Verdict:
    """A straggler is slower than its peers. Of workers with equal parameters and other images: how far is the slowest
    behind the median, at the worst depth of a network whose gradients vanish, with denormal numbers not flushed?"""
    table = network_rounds(stored)
    if not len(table):
        raise AnalysisError("no network was timed")
    depths = [tuple(keys) for keys in table[["name", "depth"]].drop_duplicates().itertuples(index=False)]
    behind = [interval_of(of_network(stored, "behind", *keys)) for keys in depths]
    worst = highest(behind)
    enough(worst.rounds)
    limit = f"{FACTOR:g} times the median, from which on a worker is a straggler"
    found = above(worst, FACTOR, FACTOR, "times the median of its peers, the slowest worker", limit)
    return _timed(graded(found, MEASURED, *_mechanism(stored)), stored, VANISHING)


def _mechanism(stored: Stored) -> list[str]:
    """That denormal gradients slow everybody down, and how deep a network must be for it, by processor."""
    plain, flushed = (slowdown(stored, DENORMAL_EXPONENT, each) for each in (False, True))
    return [
        f"a convolution's backward pass with denormal gradients takes {longer(stored, plain)}, flushed "
        f"{longer(stored, flushed)}, but all workers have the same parameters, and slow down together",
        f"a whole network's backward pass takes more than {FACTOR:g} times as long {slow_from(stored, FACTOR)}",
    ]


@RULES.add
def gradients_no_longer_vanish(claim: Claim, stored: Stored) -> Verdict:
    """Where nothing vanishes without the LSTM node, nothing can cease to. Judged by the first layer's
    gradients over the last one's in the use case's network. A node that forecasts times has no part in them."""
    ratio = interval_of(of_network(stored, "passed_on", "cnn", 0))
    enough(ratio.rounds)
    text = "first layer's gradient over the last one's, in the use case's network without any LSTM node"
    found = above(ratio, VANISHED, VANISHED, text, f"{VANISHED:g}: it does not vanish")
    node = "a node that forecasts times is no layer of the network, and no gradient passes it"
    if found.answer == CONTRADICTED:  # it vanishes here, and what a node could do about it was not tried
        return replace(found, answer=UNDECIDED, reason=f"it vanishes without the node; {node}")
    return _timed(graded(opposite(found), MEASURED, node), stored, VANISHING)


@RULES.add
def decoding_is_half(claim: Claim, stored: Stored) -> Verdict:
    """Of the time of reading, decoding, scaling and normalising; of all images that were timed, decoded either way:
    the paper names none."""
    table, parts = input_parts_table(stored), []
    for row in table.to_dict("records"):
        share = interval_of(decoding_share(stored, row["use_case"], row["way"]))
        about = f"{row['use_case']}, {row['way']}, {row['megapixels']:.2g} megapixels"
        parts.append((about, settle(partial(within, float(claim["value"]), share, f"{share} % of the input's time"))))
    if not parts:
        raise AnalysisError("no input was timed")
    unsaid = "files in memory; whose images and which machine is not said"
    return _timed(graded(any_of(parts), MEASURED, unsaid), stored, INPUT_PARTS)


@RULES.add
def slow_loading_makes_stragglers(claim: Claim, stored: Stored) -> Verdict:
    """Two halves: most tasks that load slowly are stragglers, and a step is slowed down more than its mean worker."""
    delays = KINDS["slow decoding"]
    behind, lost = stragglers_of_slow(stored, delays), waiting(stored, delays)
    enough(behind.rounds)
    text = "of the tasks that loaded slowly were stragglers"
    parts = [
        ("stragglers", above(behind, SEEN_COMING, SEEN_COMING, text, f"{SEEN_COMING:g}")),
        ("throughput", above(lost, 1.0, 1.0, "times as much slowed down as its mean worker, a step", "1")),
    ]
    about = "steps that wait for all, input as 0.3 of the work, three times as slow"
    return _timed(graded(join(parts), MODEL, about), stored, SLOW_LOADING, [delays])

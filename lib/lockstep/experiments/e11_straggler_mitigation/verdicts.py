"""Verdicts on time alone: mitigation, speed, delay and detection, over the kinds of delays that are simulated.

The paper says neither which stragglers there were nor, in one way, what DPro-SM does. So a number is supported if one
reading of its text gives it under every kind of delays, contradicted if no reading gives it under any, and undecided in
between: then it depends on what the paper leaves unsaid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from lockstep.analysis.confidence import Estimate, lowest
from lockstep.analysis.rules import above, above_one, graded, within
from lockstep.analysis.sentences import listed
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    DECIDED,
    MODEL,
    NOT_YET,
    SUPPORTED,
    UNDECIDED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    any_of,
    join,
    settle,
)
from lockstep.experiments.e11_straggler_mitigation.bounds import capacity_bound
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    BY_LAST_VALUE,
    DETECTED,
    DOLLY,
    DPRO_DETECTED,
    DPRO_GRADIENT,
    DPRO_READINGS,
    DPRO_STANDBY,
    DROP_QUARTER,
    GRASS,
    LATE,
    ROUND_BY_ROUND,
    SGC,
    WRANGLER,
    without_lstm,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import (
    gain_of_scale,
    mean_mitigation,
    mitigation,
    mix_ratio,
    throughput,
)
from lockstep.experiments.e11_straggler_mitigation.rows import SCALE, THROUGHPUT, kind_name, kinds_of, rows_of
from lockstep.experiments.simulated_targets import seconds_of_a_round

RULES = Verdicts()
PUBLISHED_PERCENT = 98.0
RIVALS = (GRASS, DOLLY, SGC, LATE, WRANGLER)
"""The other methods of Table 2."""


def simulated(found: Verdict, stored: Stored, *experiments: str) -> Verdict:
    """On the grade of a model, with what a further seed of these experiments takes."""
    return replace(graded(found, MODEL), round_seconds=seconds_of_a_round(stored, *experiments))


def by_kind(parts: Sequence[tuple[str, Verdict]], measured: str, what: str) -> Verdict:
    """Supported or contradicted if it is so for all parts, with their largest chance; undecided in between, which more
    seeds change only where a part is undecided itself. `what`: that is said to hold."""
    if not parts or all(part.answer == NOT_YET for _, part in parts):
        raise NotNow(NOT_YET, parts[0][1].reason if parts else "no kind of delays was simulated")
    holds, fails = ([name for name, part in parts if part.answer == word] for word in DECIDED)
    open_ = [name for name, part in parts if part.answer not in DECIDED]
    texts = [f"{what} under {listed(holds)}"] if holds else []
    texts += [f"not under {listed(fails)}"] if fails else []
    texts += [f"open under {listed(open_)}"] if open_ else []
    reason, chance = "; ".join(texts), max(part.chance for _, part in parts)
    if len(holds) == len(parts) or len(fails) == len(parts):
        return Verdict(SUPPORTED if holds else CONTRADICTED, measured, reason, chance=chance)
    more = max((part.rounds_more for _, part in parts if part.answer not in DECIDED), default=math.inf)
    return Verdict(UNDECIDED, measured, reason, rounds_more=more if not (holds and fails) else math.inf)


def _percent(found: Estimate | None) -> Estimate:
    if found is None:
        raise NotNow(NOT_YET, "not every seed has a number: the policy waits for ever, or was not simulated")
    return found.times(100)


def _near(stored: Stored, reading: str, delays: str) -> Verdict:
    found = _percent(mitigation(stored, reading, delays))
    return within(PUBLISHED_PERCENT, found, f"{found} %")


def _mitigated(stored: Stored, readings: Iterable[str]) -> Verdict:
    """98 % by these readings under each kind: of one reading under all, or of none under any."""
    rows = throughput(stored)
    kinds, found, texts = kinds_of(rows), {}, []
    if not kinds:
        raise NotNow(NOT_YET, "no policies were simulated")
    for reading in readings:
        parts = [(kind_name(kind), settle(partial(_near, stored, reading, kind))) for kind in kinds]
        mean = mean_mitigation(stored, reading)
        texts += [f"{reading}: {mean.times(100)} %"] if mean is not None else []
        found[reading] = settle(partial(by_kind, parts, "", f"{PUBLISHED_PERCENT:g} % ± 10 %"))
    measured = f"{'; '.join(texts)}, on average over {len(kinds)} kinds of delays" if texts else ""
    together = any_of(list(found.items()))
    workers = int(rows["workers"].iloc[0])
    bound = f"capacity leaves {100 * capacity_bound(workers, 3):.3g} % where one of {workers} is three times slower"
    return replace(together, measured=measured, reason=f"{together.reason}; {bound}", numbers=())


@RULES.add
def dpro_mitigation(claim: Claim, stored: Stored) -> Verdict:
    """The share that DPro-SM mitigates, in each of its readings and under each kind of delays."""
    return simulated(_mitigated(stored, DPRO_READINGS), stored, THROUGHPUT)


@RULES.add
def one_standby_node(claim: Claim, stored: Stored) -> Verdict:
    """Is one node enough for the published mitigation, where a forecast straggler's share goes to a standby node?"""
    return simulated(_mitigated(stored, [DPRO_STANDBY]), stored, THROUGHPUT)


def _quicker(stored: Stored, reading: str, rivals: Sequence[str]) -> Verdict:
    """Whether a reading takes less time than each of these: by the quickest of them, which pays for being chosen."""
    found = {rival: mix_ratio(stored, rival, reading) for rival in rivals}
    quickest = min(found, key=lambda rival: found[rival].value)
    return above_one(lowest(list(found.values())), 0.0, f"times as quick as {quickest}, the quickest of the others")


def _any_reading(stored: Stored, judge: Callable[[str], Verdict]) -> Verdict:
    found = any_of([(reading, settle(partial(judge, reading))) for reading in DPRO_READINGS])
    return simulated(found, stored, THROUGHPUT)


@RULES.add
def fastest_of_table_2(claim: Claim, stored: Stored) -> Verdict:
    """Seconds per image of the other methods over DPro-SM's, the geometric mean over all kinds of delays."""
    return _any_reading(stored, lambda reading: _quicker(stored, reading, RIVALS))


@RULES.add
def smaller_delay(claim: Claim, stored: Stored) -> Verdict:
    """Whoever takes less time for the same images under the same delays leaves less of them."""
    return _any_reading(stored, lambda reading: _quicker(stored, reading, [one for one in RIVALS if one != DOLLY]))


@RULES.add
def early_beats_detection(claim: Claim, stored: Stored) -> Verdict:
    """Forecast stragglers that are not waited for, against the same once they are detected, and against dropping them
    then: under each kind of delays, for a mean over kinds is that of the one that costs most."""
    found = [(rival, settle(partial(_sooner, stored, rival))) for rival in (DPRO_DETECTED, DETECTED)]
    return simulated(join(found), stored, THROUGHPUT)


def _sooner(stored: Stored, rival: str) -> Verdict:
    kinds = kinds_of(throughput(stored))
    parts = [(kind_name(kind), settle(partial(_sooner_under, stored, rival, kind))) for kind in kinds]
    mean = mix_ratio(stored, rival, DPRO_GRADIENT)
    text = f"{mean} (its time over that of {DPRO_GRADIENT}, mean over kinds)"
    return by_kind(parts, text, f"{DPRO_GRADIENT} is faster")


def _sooner_under(stored: Stored, rival: str, kind: str) -> Verdict:
    return above_one(mix_ratio(stored, rival, DPRO_GRADIENT, kind), 0.0, "")


@RULES.add
def few_slow_nodes(claim: Claim, stored: Stored) -> Verdict:
    """More than half of what delays cost is saved where the slowest quarter of the workers of each update is left out:
    then few of them accounted for it."""
    kinds, parts, texts = kinds_of(throughput(stored)), [], []
    for kind in kinds:
        found = settle(partial(_more_than_half, stored, kind))
        parts.append((kind_name(kind), found))
        texts.append(f"{kind_name(kind)}: {found.measured}")
    found = by_kind(parts, "; ".join(texts), "a quarter of the workers accounts for most of the lost time")
    return simulated(found, stored, THROUGHPUT)


def _more_than_half(stored: Stored, kind: str) -> Verdict:
    found = _percent(mitigation(stored, DROP_QUARTER, kind))
    if found.open:
        raise NotNow(UNDECIDED, f"only {found.rounds} seed(s)")
    return above(found, 50.0, 50.0, "%", "50 %")


@RULES.add
def improves_scaling(claim: Claim, stored: Stored) -> Verdict:
    """Does its gain over waiting for all grow from the fewest to the most workers? By both readings that can be
    simulated with thousands of workers: gradients made up, and shares that follow the last value."""
    kinds = kinds_of(rows_of(stored, SCALE))
    if not kinds:
        raise NotNow(NOT_YET, "no numbers of workers were simulated")
    readings = []
    for contender in (DPRO_GRADIENT, BY_LAST_VALUE):
        parts = [(kind_name(kind), settle(partial(_scales, stored, contender, kind))) for kind in kinds]
        readings.append((contender, join(parts)))
    return graded(simulated(any_of(readings), stored, SCALE), MODEL, without_lstm(ROUND_BY_ROUND, DPRO_GRADIENT))


def _scales(stored: Stored, contender: str, kind: str) -> Verdict:
    return above_one(gain_of_scale(stored, contender, kind), 0.0, "times the gain over waiting for all with the fewest")

"""The answer to the notebook's title, for its first screen: what mitigation buys, how near 98 % is, and its price."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.sentences import counted, finding, listed, measure_of, require_rounds, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.bounds import PUBLISHED
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    DOLLY,
    DPRO_READINGS,
    NEVER_WAIT,
    OURS,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.learning import over
from lockstep.experiments.e11_straggler_mitigation.mitigation import mean_mitigation, mitigation_table, throughput
from lockstep.experiments.e11_straggler_mitigation.prices import computed_of
from lockstep.experiments.e11_straggler_mitigation.rows import required


def reading_name(contender: str) -> str:
    """A reading of DPro-SM without its first name: detected."""
    return contender.partition(", ")[2]


def reached(stored: Stored) -> tuple[list[str], list[str]]:
    """The kinds of delays under which a reading of DPro-SM surely saves the published 98 %, and those under which an
    interval leaves it open."""
    table = required(mitigation_table(stored), "policies' throughput")
    own = table[table["contender"].isin(DPRO_READINGS)]
    sure = list(dict.fromkeys(own[own["mitigation_low"] >= PUBLISHED]["kind"]))
    may = own[(own["mitigation_high"] >= PUBLISHED) & ~own["kind"].isin(sure)]
    return sure, list(dict.fromkeys(may["kind"]))


def _saved(stored: Stored) -> str:
    known = {name: found for name in (*DPRO_READINGS, OURS, NEVER_WAIT) if (found := mean_mitigation(stored, name))}
    readings = sorted((name for name in DPRO_READINGS if name in known), key=lambda name: known[name].value)
    if not readings:
        raise NotNow("", "no reading of DPro-SM was simulated under every kind of delays")
    for name in known:
        require_rounds(known[name])
    percent = {name: measure_of(found.times(100), "%") for name, found in known.items()}
    ends = [f"{percent[name]} ({reading_name(name)})" for name in dict.fromkeys((readings[0], readings[-1]))]
    kinds = counted(int(mitigation_table(stored)["kind"].nunique()), "kind")
    sure, _ = reached(stored)
    of_98 = f"one reaches 98 % under {listed(sure)}" if sure else "none is shown to reach 98 % under any"
    text = f"of the time that delays cost, DPro-SM's readings save {' to '.join(ends)} on average over {kinds}; {of_98}"
    others = {"our deadline": OURS, "asynchronous training": NEVER_WAIT}
    own = [f"{called} saves {percent[name]}" for called, name in others.items() if name in known]
    return sentence("; ".join([text, *own]))


def _price(stored: Stored) -> str:
    rows = required(throughput(stored), "policies' throughput")
    called = {OURS: "by the deadline", DOLLY: "by Dolly's clones"}
    found = {name: computed_of(stored, name) for name in called}
    parts = [f"{ratio} {called[name]}" for name, ratio in found.items() if ratio is not None]
    if not parts:
        raise NotNow("", "no policy's work was counted")
    workers = counted(int(rows["workers"].iloc[0]), "worker")
    return sentence(f"the price is images computed per image used, {listed(parts)}, or a standby node beside {workers}")


def _beside_waiting(found: Estimate, subject: str) -> str:
    """How a policy's time to the loss stands to that of waiting for all, never more than its interval allows."""
    require_rounds(found)
    if found.low <= 1 <= found.high:
        return f"{subject} cannot be told apart from waiting for all ({times(found, 'its time')})"
    return f"{subject} takes {times(found, 'the time of waiting for all')}"


def _buys(stored: Stored) -> str:
    parts = []
    for name, called in ((NEVER_WAIT, "asynchronous training"), (OURS, "the deadline")):
        try:
            parts.append(_beside_waiting(over(stored, name, WAIT), called))
        except (NotNow, AnalysisError):
            continue
    if not parts:
        raise NotNow("", "no policy has reached the loss under every kind of delays with even and odd seeds")
    return sentence(f"to the same loss, {'; '.join(parts)}")


_PARTS: tuple[Callable[[Stored], str], ...] = (_saved, _price, _buys)


@finding
def answer(stored: Stored) -> str:
    """What mitigation saves, its price, and what is left of it in the time to a loss; a part that the records can't
    answer is left out."""
    said = []
    for part in _PARTS:
        try:
            said.append(part(stored))
        except (NotNow, AnalysisError):
            continue
    if not said:
        raise NotNow("", "no cell of notebook 11 is stored with an even and an odd seed")
    return " ".join(said)

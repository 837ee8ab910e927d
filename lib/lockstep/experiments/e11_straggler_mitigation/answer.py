"""The answer to the notebook's title, for its first screen: what mitigation buys, how near 98 % is, and its price."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import counted, finding, listed, measure_of, require_rounds, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.bounds import PUBLISHED
from lockstep.experiments.e11_straggler_mitigation.contenders import DPRO_READINGS, NEVER_WAIT, OURS, WAIT
from lockstep.experiments.e11_straggler_mitigation.learning import over
from lockstep.experiments.e11_straggler_mitigation.mitigation import (
    cost_without_delays,
    mean_mitigation,
    mitigation_table,
    throughput,
)
from lockstep.experiments.e11_straggler_mitigation.prices import computed_of
from lockstep.experiments.e11_straggler_mitigation.rows import RIVALRY, required, rows_of
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import rival_ratio, without_asynchronous


def plainly(text: str) -> str:
    """A finding without intervals of no width: every run gave what stands before them."""
    found = re.sub(r"(-?[\d.]+) % \[\1, \1\]", r"\1 % in every run", text)
    return re.sub(r"(-?[\d.]+) \[\1, \1\]", r"\1", found)


CALLED: Mapping[str, str] = {
    OURS: "our own policy, updating at a deadline,",
    NEVER_WAIT: "asynchronous training",
}
"""What a first screen calls these policies."""


def reading_name(contender: str) -> str:
    """A reading of DPro-SM without its first name: detected."""
    return contender.partition(", ")[2]


def reached(stored: Stored) -> tuple[list[str], list[str]]:
    """The kinds of delays under which a reading of DPro-SM certainly saves the published 98 %, and those under which an
    interval leaves it open."""
    table = required(mitigation_table(stored), "policies' throughput")
    own = table[table["contender"].isin(DPRO_READINGS)]
    sure = list(dict.fromkeys(own[own["mitigation_low"] >= PUBLISHED]["kind"]))
    may = own[(own["mitigation_high"] >= PUBLISHED) & ~own["kind"].isin(sure)]
    return sure, list(dict.fromkeys(may["kind"]))


def saved(stored: Stored, contenders: Iterable[str]) -> dict[str, str]:
    """The share of the delay that each of these policies saves on average over kinds, the largest first. Raises NotNow
    for too few seeds."""
    known = {name: found for name in contenders if (found := mean_mitigation(stored, name))}
    for found in known.values():
        require_rounds(found)
    ranked = sorted(known, key=lambda name: -known[name].value)
    return {name: measure_of(known[name].times(100), "%") for name in ranked}


def saved_by_readings(stored: Stored) -> tuple[int, str, str]:
    """The number of readings of DPro-SM's text, and what they save, the least and the most: with the readings' names,
    and without. Raises NotNow where none has a number."""
    known = saved(stored, DPRO_READINGS)
    if not known:
        raise NotNow("", "no reading of DPro-SM was simulated under every kind of delays")
    ends = dict.fromkeys((list(known)[-1], next(iter(known))))
    named = " to ".join(f"{known[name]} ({reading_name(name)})" for name in ends)
    return len(known), named, " to ".join(known[name] for name in ends)


def _saved(stored: Stored) -> str:
    sure, _ = reached(stored)  # which says so where nothing is stored
    kinds = counted(int(mitigation_table(stored)["kind"].nunique()), "kind")
    _, _, ends = saved_by_readings(stored)
    published = "the published 98 %"
    none = f"none is shown to reach {published}"
    of_98 = f"one reaches {published} under {listed(sure)}" if sure else none
    paper = f"the paper's method saves {ends} by the readings of its text, of which {of_98}"
    others = saved(stored, CALLED)
    own = [f"{words} saves {others[name]}" for name, words in CALLED.items() if name in others]
    return sentence("; ".join([f"of the time that delays cost, mean over {kinds}, {paper}", *own]))


def _price(stored: Stored) -> str:
    rows = required(throughput(stored), "policies' throughput")
    if (ours := computed_of(stored, OURS)) is None:
        raise NotNow("", "our own policy's work was not counted")
    workers = counted(int(rows["workers"].iloc[0]), "worker")
    node = f"the paper's standby node is one per {workers}"
    slower = cost_without_delays(stored, OURS)
    undelayed = f", takes {slower} times as long undelayed" if slower else ""
    return sentence(f"the price: our policy computes {ours} images per image used{undelayed}, and {node}")


def _buys(stored: Stored) -> str:
    parts = []
    for name, called in ((NEVER_WAIT, "asynchronous training"), (OURS, "our policy")):
        try:
            require_rounds(found := over(stored, name, WAIT))
        except (NotNow, AnalysisError):
            continue
        parts.append(f"{called} takes {found}{' (no difference shown)' if found.low <= 1 <= found.high else ''}")
    if not parts:
        raise NotNow("", "no policy has reached the loss under every kind of delays with even and odd seeds")
    beside = f"{listed(parts)} times the time of waiting"
    return sentence(f"to the same loss without momentum, {beside}{_with_momentum(stored)}")


def _with_momentum(stored: Stored) -> str:
    """With how many workers waiting for all is certainly ahead of asynchronous training where all have momentum, and
    with how many asynchronous training does not always get there; and how far ahead of our policy it is."""
    parts = behind_waiting(stored, NEVER_WAIT)
    ahead = f"waiting takes {listed(parts)} times as long as asynchronous training"
    missed = listed(map(str, without_asynchronous(stored)))
    may = f"may miss the loss with {missed} workers" if missed else ""
    told = ", which ".join(filter(None, [ahead, may])) if parts else may and f"asynchronous training {may}"
    ours = behind_waiting(stored, OURS)
    own = f"{'' if parts else 'waiting takes '}{listed(ours)} times our policy's time" if ours else ""
    both = ", and ".join(filter(None, [told, own]))
    return f"; with momentum and a slower server, {both}" if both else ""


def behind_waiting(stored: Stored, name: str) -> list[str]:
    """The time of waiting for all over that of a policy, where all have momentum, for each number of workers with which
    it is certainly less."""
    parts = []
    for workers in sorted({int(count) for count in rows_of(stored, RIVALRY)["workers"]}):
        try:
            found = rival_ratio(stored, workers, WAIT, name)
        except AnalysisError:
            continue
        parts += [f"{found} ({workers} workers)"] if found.high < 1 else []
    return parts


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
    return plainly(f"In simulation, {said[0][:1].lower()}{' '.join(said)[1:]}")

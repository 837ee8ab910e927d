"""The answer to the notebook's title, for its first screen: what mitigation buys, how near 98 % is, and its price."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import finding, listed, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.bounds import PUBLISHED
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CODING,
    DOLLY,
    DPRO_GRADIENT,
    DPRO_READINGS,
    DPRO_SHARES,
    DPRO_STANDBY,
    NEVER_WAIT,
    OURS,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.learning import mix, ratios, synchronous, undelayed
from lockstep.experiments.e11_straggler_mitigation.made_up import stand_in_table
from lockstep.experiments.e11_straggler_mitigation.mitigation import mean_mitigation, mitigation_table, throughput
from lockstep.experiments.e11_straggler_mitigation.prices import computed_of
from lockstep.experiments.e11_straggler_mitigation.rows import required


def _buys(stored: Stored) -> str:
    means = {name: found for name in (*synchronous(), NEVER_WAIT, OURS) if (found := mix(stored, name))}
    if WAIT not in means:
        raise NotNow("", "waiting for all has not reached the loss under every kind with even and odd seeds")
    best = min((name for name in synchronous() if name in means), key=lambda name: means[name].value)
    shown = dict.fromkeys((WAIT, best, DPRO_SHARES, DPRO_GRADIENT, OURS, NEVER_WAIT))
    parts = [f"{_called(name, best)} {means[name]}" for name in shown if name in means]
    missed = [name for name in shown if name not in means]
    text = f"time to the same loss, where 1 is waiting for all without delays: {'; '.join(parts)}"
    text += f"; {listed(missed)} missed the loss now and then" if missed else ""
    return f"{sentence(text)} These are means over {len(ratios(stored, WAIT).columns)} kinds of delays."


def _called(name: str, best: str) -> str:
    if name == OURS:
        return f"our {name}"
    return f"{name}, the best that waits," if name == best else name


def _of_98_percent(stored: Stored) -> str:
    table = required(mitigation_table(stored), "policies' throughput")
    own = {name: found.times(100).value for name in DPRO_READINGS if (found := mean_mitigation(stored, name))}
    kinds = table["kind"].nunique()
    reached = table[table["contender"].isin(DPRO_READINGS) & (table["mitigation"] >= PUBLISHED)]["kind"].nunique()
    parts = [f"{name} {value:.0f} %" for name, value in own.items()]
    of_time = f"of the time that delays cost, these save: {listed(parts)}"
    return f"{sentence(of_time)} One of them reaches 98 % under {reached or 'none'} of {kinds} kinds of delays."


def _price(stored: Stored) -> str:
    rows = required(throughput(stored), "policies' throughput")
    computed = {name: found for name in (DOLLY, CODING, DPRO_STANDBY, OURS) if (found := computed_of(stored, name))}
    parts = [f"{name} {found.value:.2f}" for name, found in computed.items()]
    said = [sentence(f"computing per image that is used, where 1 is nothing twice or in vain: {listed(parts)}")]
    workers = int(rows["workers"].iloc[0])
    said.append(f"DPro-SM's standby node is one more beside {workers}.")
    if (cost := undelayed(stored, OURS)) is not None:
        said.append(sentence(f"without delays our {OURS} takes {cost} times as long as waiting for all"))
    return " ".join(said)


def _standing_in(stored: Stored) -> str:
    table = required(stand_in_table(stored), "stand-ins")
    made = table[table["contender"].str.contains("LSTM") & table["cosine"].notna()]
    if made.empty:
        raise NotNow("", "no LSTM stood in for anybody")
    ends = (made["cosine"].min(), made["cosine"].max(), made["own_cosine"].min(), made["own_cosine"].max())
    losses = made["loss_over_nothing"].dropna()
    text = (
        f"what an LSTM puts in a straggler's place has a cosine of {ends[0]:.2f} to {ends[1]:.2f} with the gradient "
        f"over all images, where real contributions have {ends[2]:.2f} to {ends[3]:.2f}"
    )
    if len(losses):
        text += f"; the loss is then {losses.min():.2f} to {losses.max():.2f} times that with nothing in its place"
    return sentence(text)


_PARTS: Mapping[str, Callable[[Stored], str]] = {
    "What it buys": _buys,
    "DPro-SM's 98 %": _of_98_percent,
    "At what price": _price,
    "Made-up gradients": _standing_in,
}


@finding
def answer(stored: Stored) -> str:
    """A line for each part of the question, computed from the records; a part that they can't answer is left out."""
    lines = []
    for name, part in _PARTS.items():
        try:
            lines.append(f"- **{name}.** {part(stored)}")
        except (NotNow, AnalysisError):
            continue
    if not lines:
        raise NotNow("", "no cell of notebook 11 is stored with an even and an odd seed")
    return "\n".join(lines)

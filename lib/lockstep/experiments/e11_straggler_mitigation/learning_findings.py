"""What the figures of training show, in a sentence or two computed from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.sentences import counted, finding, listed, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    AVERAGE_STANDS_IN,
    DPRO_SHARES,
    DROP_ONE,
    LSTM_GRADIENT,
    LSTM_WEIGHTS,
    NEVER_WAIT,
    OURS,
    SHUFFLED,
    STAY,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.learning import mix, over_the_best, synchronous, time_table
from lockstep.experiments.e11_straggler_mitigation.made_up import OWN, partition_table, stand_in_table
from lockstep.experiments.e11_straggler_mitigation.rows import NO_DELAYS, estimate_in, kind_name, required
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import (
    PAPER,
    SMALL,
    agreements,
    networks_table,
    rival_ratio,
    rivals_table,
    slow_nodes_table,
)


@finding
def slow_nodes(stored: Stored) -> str:
    """What the most slow nodes cost, and whether accuracy suffers."""
    table, said, taken = required(slow_nodes_table(stored), "slow nodes"), [], []
    most = int(table["nodes"].max())
    for contender in (WAIT, DPRO_SHARES, OURS):
        own = table[(table["contender"] == contender) & (table["nodes"] == most) & (table["nodes"] > 0)]
        taken += [f"{found} with {contender}" for _, row in own.iterrows() if (found := estimate_in(row, "times"))]
    if taken:
        slow = f"with {counted(most, 'slow node')} the time to the loss, over waiting for all with none slow, is"
        said.append(sentence(f"{slow} {listed(taken)}"))
    known = table.dropna(subset=["accuracy", "accuracy_low"])
    if len(known):
        alike = "all" if known["accuracy_low"].max() <= known["accuracy_high"].min() else "do not all"
        ends = f"{known['accuracy'].min():.1f} to {known['accuracy'].max():.1f} %"
        said.append(sentence(f"accuracy at that loss is {ends}, and the intervals {alike} overlap"))
    if (missed := table[table["missed"] > 0]["contender"]).size:
        said.append(sentence(f"some seeds never reach the loss with {listed(dict.fromkeys(missed))}"))
    return " ".join(said) or "No policy reached the loss with every seed yet."


@finding
def paper_network(stored: Stored) -> str:
    """The least and the most time over waiting for all, over the kinds, with the paper's network; does the small one
    say the same?"""
    table = required(networks_table(stored), "the paper's network")
    own, said = table[(table["network"] == PAPER) & (table["delays"] != NO_DELAYS)], []
    parts = []
    for contender in (DPRO_SHARES, OURS, NEVER_WAIT):
        known = own[own["contender"] == contender].dropna(subset=["over_waiting_low"]).sort_values("over_waiting")
        if len(known):
            ends = [f"{estimate_in(row, 'over_waiting')} under {kind_name(str(row['delays']))}"
                    for _, row in known.iloc[[0, -1]].iterrows()]  # fmt: skip
            parts.append(f"{contender} {' to '.join(dict.fromkeys(ends))}")
    same, other, unknown = agreements(stored)
    if same + other + unknown:
        text = f"of {counted(same + other + unknown, 'comparison')} with waiting for all under delays, {same} come out "
        text += f"with {PAPER} as with {SMALL}, {other or 'none'} the other way round, "
        text += f"{unknown or 'none'} cannot be told"
        said.append(sentence(text))
    if parts:
        said.append(sentence(f"time over waiting for all, {PAPER}: {'; '.join(parts)}"))
    if (missed := own[own["missed"] > 0]["contender"]).size:
        said.append(sentence(f"some seeds never reach the loss with {listed(dict.fromkeys(missed))}"))
    if not parts:
        raise NotNow("", "no policy has as many seeds with the paper's network as an interval needs")
    return " ".join(said)


@finding
def time_to_loss(stored: Stored) -> str:
    """Waiting for all, DPro-SM, asynchronous training and ours: their means; ours against the best that waits."""
    table = required(time_table(stored), "time to loss").set_index("contender")
    means = {name: found for name in table.index if (found := mix(stored, name)) is not None and not found.open}
    if not means:
        raise NotNow("", "no policy has reached the loss under every kind with as many seeds as an interval needs")
    shown = (WAIT, DPRO_SHARES, OURS, NEVER_WAIT)
    parts = [f"{name} {means[name]}" for name in shown if name in means]
    said = [sentence(text) for text in [_quickest(stored, means)] if text]
    best = min((name for name in synchronous() if name in means), key=lambda name: means[name].value, default="")
    ours = _ours_over(stored, f"the best policy that waits{f', {best}' if best else ''}", synchronous())
    ours += _ours_over(stored, "asynchronous training", [NEVER_WAIT])
    said += [sentence(f"the deadline {', and '.join(ours)}")] if ours else []
    said += [sentence(f"mean time over undelayed waiting for all: {'; '.join(parts)}")] if parts else []
    if (missed := table[table["missed"] != ""]).size:
        said.append(sentence(f"sometimes the loss is missed with {listed(missed.index)}"))
    return " ".join(said)


def _quickest(stored: Stored, means: Mapping[str, Estimate]) -> str:
    """The policy with the lowest mean time to the loss, without momentum and with it, by name: there with the fewest
    and the most workers."""
    text = f"quickest without momentum: {min(means, key=lambda name: means[name].value)}"
    table = rivals_table(stored)
    own = list(table.groupby("workers")) if len(table) else []
    ends = own if len(own) < 3 else [own[0], own[-1]]
    momentum = [f"{lowest} ({workers} workers)" for workers, rows in ends if (lowest := _beside(stored, rows)[0])]
    return f"{text}; with momentum and a slower server: {listed(momentum)}" if momentum else text


def _ours_over(stored: Stored, name: str, rivals: Sequence[str]) -> list[str]:
    try:
        found = over_the_best(stored, OURS, rivals)
    except AnalysisError:
        return []
    if found.open:
        return [f"is not known yet to be faster or slower than {name}"]
    if found.low <= 1 <= found.high:
        return [f"cannot be told apart from {name} ({times(found, 'its time')})"]
    return [f"takes {times(found, f'the time of {name}')}"]


@finding
def rivals(stored: Stored) -> str:
    """By workers: the time of every contender beside asynchronous training, and whose mean is the lowest."""
    table = required(rivals_table(stored), "rivals").sort_values("workers", kind="stable")
    found = {workers: _beside(stored, own) for workers, own in table.groupby("workers")}
    first = [f"with {workers} workers, {lowest}" for workers, (lowest, _) in found.items() if lowest]
    who = "quickest with momentum and a slower server"
    said = [sentence(f"{who}: {'; '.join(first)}")] if first else []
    text = "time over asynchronous training's, each at its best rate"
    parts = [f"with {workers} workers {told}" for workers, (_, told) in found.items()]
    return " ".join([*said, sentence(f"{text}: {'; '.join(parts)}")])


def _beside(stored: Stored, own: pd.DataFrame) -> tuple[str, str]:
    """Of so many workers who is quickest, with all whom the seeds do not tell apart from it, and the ratios. Beside
    waiting for all where asynchronous training missed the loss."""
    workers, missed = int(own["workers"].iloc[0]), own.set_index("contender")["missed"]
    base = WAIT if missed.get(NEVER_WAIT, 1) else NEVER_WAIT
    lost = [f"{name} missed the loss {counted(int(often), 'time')}" for name, often in missed.items() if often]
    found = {}
    for name in missed.index:
        try:
            found[str(name)] = rival_ratio(stored, workers, str(name), base)
        except AnalysisError:
            continue
    ranked = sorted(found, key=lambda name: found[name].value)
    others = [f"{name} {found[name]}" for name in ranked if name != base]
    if not others:
        return "", f"nothing is compared ({'; '.join(lost) or 'not run with an even and an odd seed'})"
    of_base = f" over {base}" if base != NEVER_WAIT else ""
    alike = [name for name in ranked[1:] if rival_ratio(stored, workers, ranked[0], name).high >= 1]
    return " or ".join([ranked[0], *alike]), ", ".join([*lost, listed(others) + of_base])


@finding
def stand_ins(stored: Stored) -> str:
    """Cosines of what an LSTM puts in a missing worker's place, and the losses, over all kinds; beside what an
    average of the worker's last gradients does."""
    table = required(stand_in_table(stored), "stand-ins")
    made, said = table[table["stand_ins"] > 0], []
    for name, called in ((LSTM_WEIGHTS, "an LSTM's weights have"), (LSTM_GRADIENT, "an LSTM's gradients have")):
        own = made[(made["contender"] == name) & made["cosine"].notna()]
        if own.empty:
            continue
        nowhere = own[(own["cosine_low"] <= 0) & (own["cosine_high"] >= 0)]
        points = f"0 lies within {_so_many(len(nowhere), len(own))} intervals"
        said.append(
            f"{called} a cosine of {_range(own['cosine'])} ({points}) and "
            f"give {_range(own['loss_over_nothing'])} times the loss with its place left empty ({_changed(own)})"
        )
    if not said:
        raise NotNow("", "no LSTM stood in for anybody")
    said.append(f"real gradients of the same updates have {_range(made['own_cosine'])}")
    plain = made[made["contender"] == AVERAGE_STANDS_IN].dropna(subset=["loss_over_nothing"])
    if len(plain):
        said.append(f"a plain average of the last gradients gives {_range(plain['loss_over_nothing'])} times that loss")
    return " ".join(sentence(text) for text in said)


def _so_many(some: int, whole: int) -> str:
    return "all" if some == whole else f"{some or 'none'} of {whole}"


def _changed(own: pd.DataFrame) -> str:
    """Under which kinds the whole interval is above 1, or below."""
    ends = {"higher": own["loss_over_nothing_low"] > 1, "lower": own["loss_over_nothing_high"] < 1}
    where = {word: "every kind" if sure.all() else listed(own[sure]["kind"]) for word, sure in ends.items()}
    parts = [f"{word} under {kinds}" for word, kinds in where.items() if kinds]
    return "; ".join(parts) or "no difference can be shown"


def _range(values: pd.Series) -> str:
    low, high = f"{values.min():.2f}", f"{values.max():.2f}"
    return low if low == high else f"{low} to {high}"


@finding
def partitions(stored: Stored) -> str:
    """Whose images pay for a worker that is always left out, where images stay with workers and where they are
    shuffled."""
    table, said = required(partition_table(stored), "partitions"), []
    known = table[table["part"] == OWN].dropna(subset=["ratio", "ratio_low"])
    stay, shuffled = (known[known["data"] == data] for data in (STAY, SHUFFLED))
    what = f"the loss on worker 0's images with {DROP_ONE}, over that of waiting for all, where "
    if len(stay):
        parts = [f"{row['kind']}, {estimate_in(row, 'ratio')}" for _, row in stay.iterrows()]
        said.append(f"{what}images stay with workers: {'; '.join(parts)}")
    if len(shuffled):
        same = (shuffled["ratio_low"] <= 1) & (shuffled["ratio_high"] >= 1)
        differ = "and all intervals hold 1" if same.all() else f"and under {listed(shuffled[~same]['kind'])} not 1"
        where = "where they" if said else f"{what}images"
        said.append(f"{where} are shuffled: {_range(shuffled['ratio'])}, {differ}")
    if not said:
        raise NotNow("", "no partition has an interval yet")
    return " ".join(map(sentence, said))

"""What the figures of training show, in a sentence or two computed from the records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import counted, finding, listed, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    DPRO_GRADIENT,
    DPRO_SHARES,
    DROP_ONE,
    NEVER_WAIT,
    NOTHING_STANDS_IN,
    OURS,
    SHUFFLED,
    STAND_INS,
    STAY,
    WAIT,
)
from lockstep.experiments.e11_straggler_mitigation.learning import (
    mix,
    over_the_best,
    regret_table,
    synchronous,
    time_table,
)
from lockstep.experiments.e11_straggler_mitigation.made_up import OTHERS, OWN, partition_table, stand_in_table
from lockstep.experiments.e11_straggler_mitigation.rows import estimate_in, kind_name, required
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import rivals_table, slow_nodes_table


@finding
def slow_nodes(stored: Stored) -> str:
    """What the first slow node costs, what the last one, and whether accuracy suffers."""
    table, said, taken = required(slow_nodes_table(stored), "slow nodes"), [], []
    for contender in (WAIT, DPRO_SHARES, OURS):
        own = table[(table["contender"] == contender) & (table["nodes"] > 0)]
        parts = [
            f"{found} with {counted(int(row['nodes']), 'slow node')}"
            for _, row in own.iloc[[0, -1]].iterrows()
            if (found := estimate_in(row, "times"))
        ] if len(own) else []  # fmt: skip
        taken += [f"{contender} takes {' and '.join(parts)}"] if parts else []
    if taken:
        said.append(sentence(f"in times of waiting for all without slow nodes, {'; '.join(taken)}"))
    none, slow = (table[table["nodes"].eq(0) == flag]["accuracy"].dropna() for flag in (True, False))
    if len(none) and len(slow):
        text = f"accuracy at the same loss is {none.mean():.1f} % without slow nodes and {slow.mean():.1f} % with them"
        said.append(sentence(f"{text}, on average over the policies"))
    if (missed := table[table["missed"] > 0]["contender"]).size:
        said.append(sentence(f"some seeds never reach the loss with {listed(dict.fromkeys(missed))}"))
    return " ".join(said) or "No policy reached the loss with every seed yet."


@finding
def time_to_loss(stored: Stored) -> str:
    """Ours, the best that waits, asynchronous training and DPro-SM: their mixes; ours against the first two."""
    table = required(time_table(stored), "time to loss").set_index("contender")
    means = {name: found for name in table.index if (found := mix(stored, name)) is not None and not found.open}
    if not means:
        raise NotNow("", "no policy has reached the loss under every kind with as many seeds as an interval needs")
    waiting = {name: means[name] for name in synchronous() if name in means}
    best = min(waiting, key=lambda name: waiting[name].value, default="")
    shown = dict.fromkeys(name for name in (WAIT, best, DPRO_SHARES, DPRO_GRADIENT, NEVER_WAIT, OURS) if name in means)
    parts = [f"{name} {means[name]}" for name in shown]
    said = [sentence(f"time over that of waiting for all without delays, on the mix of all kinds: {'; '.join(parts)}")]
    said += _ours_over(stored, "the best policy that waits", synchronous())
    said += _ours_over(stored, "asynchronous training", [NEVER_WAIT])
    if OURS in (regrets := regret_table(stored)).index:
        own = regrets.loc[OURS]
        lost = [kind_name(str(kind)) for kind in own.index if np.isinf(own[kind])]
        text = f"the largest regret of the deadline is {100 * own.max():.0f} %, under {kind_name(str(own.idxmax()))}"
        said.append(sentence(f"the deadline does not always reach the loss under {listed(lost)}" if lost else text))
    if (missed := table[table["missed"] != ""]).size:
        said.append(sentence(f"now and then the loss is missed with {listed(missed.index)}"))
    return " ".join(said)


def _ours_over(stored: Stored, name: str, rivals: Sequence[str]) -> list[str]:
    try:
        return [sentence(f"the deadline takes {times(over_the_best(stored, OURS, rivals), f'the time of {name}')}")]
    except AnalysisError:
        return []


@finding
def rivals(stored: Stored) -> str:
    """By workers: is ours faster than asynchronous training, and who is the fastest of all?"""
    table = required(rivals_table(stored), "rivals")
    own = table[table["contender"] == OURS].sort_values("workers")
    if own.empty:
        raise NotNow("", "ours was not run beside asynchronous training")
    missed = table[table["contender"] == NEVER_WAIT].set_index("workers")["missed"]
    said = [f"with {row['workers']} workers {_beside(row, missed.get(row['workers'], 0))}" for _, row in own.iterrows()]
    text = f"against asynchronous training with momentum, each at its best rate, ours is {'; '.join(said)}"
    known = table.dropna(subset="over_asynchronous")
    quickest = known.loc[known.groupby("workers")["over_asynchronous"].idxmin()]
    least = [f"{row['contender']} with {row['workers']} workers" for _, row in quickest.iterrows()]
    least_of_all = f"The least mean time of all three is that of {listed(least)}." if least else ""
    return f"{sentence(text)} {least_of_all}".strip()


def _beside(row: pd.Series, missed: int) -> str:
    """`missed`: how often asynchronous training did not reach the loss."""
    found = estimate_in(row, "over_asynchronous")
    if found is None and row["missed"]:
        return f"without the loss {counted(int(row['missed']), 'time')}"
    if found is None and missed:
        return f"not compared, for asynchronous training missed the loss {counted(missed, 'time')}"
    if found is None:
        return "without an interval yet"
    word = "faster" if found.high < 1 else "slower" if found.low > 1 else "not to be told apart"
    return f"{word} ({times(found, 'the time')})"


@finding
def stand_ins(stored: Stored) -> str:
    """Cosines of what stands in and of real contributions, and the losses, over all kinds of delays."""
    table = required(stand_in_table(stored), "stand-ins")
    made, parts = table[table["stand_ins"] > 0], []
    for name in STAND_INS:
        own = made[(made["contender"] == name) & made["cosine"].notna()]
        if len(own):
            parts.append(f"{name}, {_range(own['cosine'])} and {_range(own['loss_over_nothing'])} times the loss")
    if not parts:
        raise NotNow("", "nothing stood in for anybody")
    text = f"cosine with the gradient over all images, and loss over that if {NOTHING_STANDS_IN}: {'; '.join(parts)}"
    control = f"real contributions have a cosine of {_range(made['own_cosine'])}"
    return f"{sentence(text)} {sentence(control)}"


def _range(values: pd.Series) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


@finding
def partitions(stored: Stored) -> str:
    """Whose images pay for a worker that is always left out, where images are shuffled and where they stay."""
    table, said = required(partition_table(stored), "partitions"), []
    for data, how in ((SHUFFLED, "images are shuffled"), (STAY, "images stay with workers")):
        own, parts = table[table["data"] == data], []
        for _, row in own[own["part"] == OWN].iterrows():
            others = own[(own["part"] == OTHERS) & (own["delays"] == row["delays"])]["ratio"]
            if (found := estimate_in(row, "ratio")) is not None and len(others):
                parts.append(f"{row['kind']}, {found} and {others.iloc[0]:.3g}")
        said += [f"where {how}: {'; '.join(parts)}"] if parts else []
    if not said:
        raise NotNow("", "no partition has an interval yet")
    what = f"loss of {DROP_ONE} over that of waiting for all, on worker 0's own images and on the others'"
    return " ".join(sentence(text) for text in (f"{what}, {said[0]}", *said[1:]))

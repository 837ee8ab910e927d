"""What the notebook shows of its tables: rounded, in per cent where they are shares, no column that says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from lockstep.analysis.stored import Stored
from lockstep.experiments.e11_straggler_mitigation.advice import advice_table
from lockstep.experiments.e11_straggler_mitigation.bounds import (
    PUBLISHED,
    capacity_bound,
    fewest_workers,
    least_share,
    whole_images_bound,
)
from lockstep.experiments.e11_straggler_mitigation.contenders import CONTENDERS, NEVER_WAIT, OURS
from lockstep.experiments.e11_straggler_mitigation.learning import (
    SHOWN_BY_KIND,
    intervals_by_kind,
    regret_table,
    time_table,
)
from lockstep.experiments.e11_straggler_mitigation.made_up import CONTROLS, partition_table, stand_in_table
from lockstep.experiments.e11_straggler_mitigation.mitigation import (
    BOUND,
    cost_without_delays,
    mean_mitigation,
    mitigation_table,
    scale_table,
    stage_table,
)
from lockstep.experiments.e11_straggler_mitigation.prices import redundancy_table, table2
from lockstep.experiments.e11_straggler_mitigation.rows import kind_name
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import (
    PAPER,
    networks_table,
    rivals_table,
    slow_nodes_table,
)


def _with_interval(table: pd.DataFrame, name: str, digits: int = 2, scale: float = 1.0) -> pd.Series:
    """A number and its interval as text, for tables of many columns: 1.23 [1.1, 1.4]."""

    def text(row: pd.Series) -> str:
        value, low, high = (scale * float(row[column]) for column in (name, f"{name}_low", f"{name}_high"))
        if pd.isna(value):
            return ""
        return f"{value:.{digits}f}" if pd.isna(low) else f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

    return table.apply(text, axis=1) if len(table) else pd.Series(dtype=str)


def _in_order(values: pd.DataFrame, contenders: Iterable[str]) -> pd.DataFrame:
    """The rows of these policies, which are the index, in this order."""
    return values.loc[[name for name in contenders if name in values.index]].rename_axis(columns=None).reset_index()


def _mitigation(stored: Stored) -> pd.DataFrame:
    """Policies x kinds, % of what delays cost, with the half-width of the widest interval; the mean over kinds; seconds
    over waiting for all without delays."""
    table = mitigation_table(stored)
    if table.empty:
        return table
    kinds = list(dict.fromkeys(table["kind"]))
    values = (100 * table.pivot(index="contender", columns="kind", values="mitigation"))[kinds].round(1)
    half = 50 * (table["mitigation_high"] - table["mitigation_low"])
    values["widest ±"] = half.groupby(table["contender"]).max().round(1)
    means = {name: mean_mitigation(stored, name) for name in values.index}
    values["mean"] = pd.Series({name: str(found.times(100)) if found else "" for name, found in means.items()})
    costs = {name: cost_without_delays(stored, name) for name in values.index}
    known = {name: round(found.value, 3) for name, found in costs.items() if found}
    values["no delays"] = pd.Series(known, dtype=float)
    return _in_order(values, (BOUND, *CONTENDERS))


def _of_the_bound(stored: Stored) -> pd.DataFrame:
    """Policies x kinds, % of what these delays leave possible."""
    table = mitigation_table(stored)
    if table.empty:
        return table
    values = (100 * table.pivot(index="contender", columns="kind", values="of_the_bound")).round(0)
    return _in_order(values[list(dict.fromkeys(table["kind"]))], CONTENDERS)


def _bounds(stored: Stored) -> pd.DataFrame:
    """What one slow node leaves possible (%), and what 98 % takes."""
    del stored
    rows = []
    for workers in (4, 8, 16, 32, 64, 128):
        row: dict[str, object] = {"workers": workers}
        for slower in (2, 3):
            row[f"capacity, {slower} x slower"] = round(100 * capacity_bound(workers, slower), 1)
        for share in (8, 32, 128):
            row[f"shares of {share}, 2 x slower"] = round(100 * whole_images_bound(workers, share, 2), 1)
        row["least share for 98 %, 2 x slower"] = least_share(PUBLISHED, workers, 2) or "none"
        row["98 % possible, 2 x slower"] = workers >= (fewest_workers(PUBLISHED, 2) or workers + 1)
        rows.append(row)
    return pd.DataFrame(rows)


def _stages(stored: Stored) -> pd.DataFrame:
    table = stage_table(stored)
    if table.empty:
        return table
    shown = table[["kind", "stage"]].assign(times_undelayed=_with_interval(table, "times_undelayed"))
    return shown.assign(mitigation_percent=(100 * table["mitigation"]).round(1), seeds=table["seeds"])


def _slow_nodes(stored: Stored) -> pd.DataFrame:
    """Policies x slow nodes: time over that without any; accuracy beside it."""
    table = slow_nodes_table(stored)
    if table.empty:
        return table
    table = table.assign(text=_with_interval(table, "times"), accuracy_percent=table["accuracy"].round(1))
    times = table.pivot(index="contender", columns="nodes", values="text")
    accuracy = table.pivot(index="contender", columns="nodes", values="accuracy_percent")
    both = times.add_suffix(" slow, time").join(accuracy.add_suffix(" slow, accuracy %"))
    return both.reindex(dict.fromkeys(table["contender"])).reset_index()


def _paper_network(stored: Stored) -> pd.DataFrame:
    """Kinds and policies x networks: time over waiting for all without delays."""
    table = networks_table(stored)
    if table.empty:
        return table
    shown = table.assign(kind=table["delays"].map(kind_name), text=_with_interval(table, "times"))
    found = shown.pivot(index=["kind", "contender"], columns="network", values="text").fillna("")
    found["seeds"] = shown[shown["network"] == PAPER].set_index(["kind", "contender"])["seeds"]
    return found.reindex(dict.fromkeys(zip(shown["kind"], shown["contender"], strict=True))).reset_index()


def _advice(stored: Stored) -> pd.DataFrame:
    """Kinds: what was advised and what following it costs, beside the best policy and waiting for all."""
    table = advice_table(stored)
    if table.empty:
        return table
    shown = table[["kind", "advised", "times", "best"]].assign(followed=_with_interval(table, "followed"))
    shown = shown.assign(waiting=_with_interval(table, "waiting"), error_percent=(100 * table["error"]).round(0))
    return shown.assign(seeds=table["seeds"])


def _time_to_loss(stored: Stored) -> pd.DataFrame:
    table = time_table(stored)
    if table.empty:
        return table
    shown = table.assign(mix=_with_interval(table, "mix"), no_delays=_with_interval(table, "no_delays"))
    shown = shown.assign(regret_percent=(100 * table["largest_regret"]).round(0), accuracy=100 * table["accuracy"])
    columns = ["contender", "mix", "no_delays", "samples_ratio", "rate_ratio", "regret_percent", "accuracy", "settings"]
    return shown[[*columns, "missed", "seeds"]].round(3)


def _regret(stored: Stored) -> pd.DataFrame:
    """Policies x kinds, % above the best of the kind."""
    return (100 * regret_table(stored)).round(0).rename(columns=kind_name).reset_index(names="contender")


def _by_kind(stored: Stored) -> pd.DataFrame:
    """Kinds x some policies: time to the loss over that of waiting for all without delays; of ours also over that of
    asynchronous training."""
    table = intervals_by_kind(stored)
    if table.empty:
        return table
    table = table.assign(text=_with_interval(table, "times"), beside=_with_interval(table, "over_async"))
    found = table.pivot(index="kind", columns="contender", values="text")
    found = found[[name for name in SHOWN_BY_KIND if name in found]]
    found[f"{OURS} over {NEVER_WAIT}"] = table[table["contender"] == OURS].set_index("kind")["beside"]
    return found.reindex(dict.fromkeys(table["kind"])).fillna("").rename_axis(columns=None).reset_index()


def _rivals(stored: Stored) -> pd.DataFrame:
    table = rivals_table(stored)
    if table.empty:
        return table
    ratios = ("over_asynchronous", "over_waiting")
    shown = table.assign(**{name: _with_interval(table, name) for name in ratios})
    return shown[["workers", "contender", *ratios, "rates", "missed", "seeds"]]


def _scale(stored: Stored) -> pd.DataFrame:
    """Kinds and policies x workers: seconds per image over those without delays."""
    table = scale_table(stored)
    if table.empty:
        return table
    table = table.assign(text=_with_interval(table, "times_undelayed"))
    found = table.pivot(index=["kind", "contender"], columns="workers", values="text")
    return found.reindex(dict.fromkeys(zip(table["kind"], table["contender"], strict=True))).reset_index()


def _redundancy(stored: Stored) -> pd.DataFrame:
    table = redundancy_table(stored)
    if table.empty:
        return table
    shown = table[["contender", "way"]].assign(mitigation_percent=_with_interval(table, "mitigation", 1, 100))
    for name, digits in (("computed", 2), ("nodes", 1), ("usd_per_hour", 2)):
        shown[name] = table[name].round(digits)
    shown = shown.assign(wasted_percent=(100 * table["wasted"]).round(1), standby=table["standby"])
    return shown.assign(messages=table["messages"].round(1), held_gradients=table["held_gradients"])


def _table2(stored: Stored) -> pd.DataFrame:
    table = table2(stored)
    shown = table[["row", "contender", "published_usd_per_hour", "published_over_dpro_sm", "over_dpro_sm"]].round(2)
    return shown.assign(nodes=_with_interval(table, "nodes"), usd_per_hour=_with_interval(table, "usd_per_hour"))


def _stand_ins(stored: Stored) -> pd.DataFrame:
    table = stand_in_table(stored)
    if table.empty:
        return table
    shown = table[["kind", "contender"]].copy()
    for name in ("cosine", "own_cosine", "loss", *CONTROLS):
        shown[name] = _with_interval(table, name, 3)
    return shown.assign(judged=table["stand_ins"].round(0), seeds=table["seeds"], reason=table["reason"])


def _partitions(stored: Stored) -> pd.DataFrame:
    table = partition_table(stored)
    if table.empty:
        return table
    shown = table[["data", "kind", "part"]].assign(ratio=_with_interval(table, "ratio"))
    return shown.assign(waiting=table["waiting"], leaving_out=table["leaving_out"], seeds=table["seeds"]).round(3)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "mitigation": _mitigation,
    "of_the_bound": _of_the_bound,
    "bounds": _bounds,
    "stages": _stages,
    "slow_nodes": _slow_nodes,
    "paper_network": _paper_network,
    "advice": _advice,
    "time_to_loss": _time_to_loss,
    "regret": _regret,
    "by_kind": _by_kind,
    "rivals": _rivals,
    "scale": _scale,
    "redundancy": _redundancy,
    "table2": _table2,
    "stand_ins": _stand_ins,
    "partitions": _partitions,
}

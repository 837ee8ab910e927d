"""Table 2 recomputed from one stated price, with standby nodes and copies counted; and what else redundancy takes.

nodes       workers x computing per image used + standby nodes: as many as do all that computing in the same time
cost        nodes x the assumed price of one
messages    gradients and parameters that pass the server's link, for the images of one update
held        gradients of single workers that the server keeps, beside their sum
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.published import read_table
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.stored import Stored, once
from lockstep.engine.policies import POLICIES
from lockstep.engine.policies.stand_ins import REMEMBERED
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CONTENDERS,
    DOLLY,
    DPRO_STANDBY,
    GRASS,
    LATE,
    SGC,
    WAYS,
    WRANGLER,
)
from lockstep.experiments.e11_straggler_mitigation.mitigation import mean_mitigation, throughput
from lockstep.experiments.e11_straggler_mitigation.rows import kinds_of, mean_over_seeds, over_kinds, wide

NODE_USD_PER_HOUR = 0.399
"""The lowest cost that Table 2 prints, taken for the price of one node: it states none."""
OF_TABLE_2: Mapping[str, str] = {
    "GRASS Straggler Handling Mechanism": GRASS,
    "Dolly Straggler Handling Mechanism": DOLLY,
    "Stochastic Gradient Coding": SGC,
    "LATE": LATE,
    "Wrangler": WRANGLER,
    "Proposed Model D-Pro-SM": DPRO_STANDBY,
}
"""A row of Table 2 -> the policy that is simulated for it. Of DPro-SM the reading with the standby node that the table
names."""


def node_price(stored: Stored) -> float:
    """USD per hour of one node: what the notebook's parameter assumes."""
    return float(stored.assumptions.get("node_usd_per_hour", NODE_USD_PER_HOUR))


def _of_kinds(stored: Stored, contender: str, column: str, only: Sequence[str] = ()) -> pd.Series:
    """Mean over kinds of a column, one value per seed; `only` of these kinds where they are given."""
    rows = throughput(stored)
    table = wide(rows[rows["contender"] == contender], column, "delays")
    wanted = [kind for kind in kinds_of(rows) if not only or kind.partition(":")[0] in only]
    known = [kind for kind in wanted if kind in table]
    return over_kinds(table[known], logarithmic=False) if known else pd.Series(dtype=float)


def computed_of(stored: Stored, contender: str, only: Sequence[str] = ()) -> Estimate | None:
    """What a policy computes per image used, the mean over kinds of delays; 1 is nothing twice or in vain."""
    return mean_over_seeds(_of_kinds(stored, contender, "computed", only))


def nodes_of(stored: Stored, contender: str) -> Estimate | None:
    """Nodes in all: workers times what they compute per image used, and those that stand by."""
    rows = throughput(stored)
    own = rows[rows["contender"] == contender]
    if own.empty:
        return None
    workers, standby = float(own["workers"].iloc[0]), float(own["standby"].iloc[0])
    return mean_over_seeds(_of_kinds(stored, contender, "computed") * workers + standby)


def held_gradients(contender: str, workers: int) -> int:
    """Gradients of single workers that the server keeps beside their sum: one of each where a policy needs them apart,
    and the history that an LSTM continues."""
    policy, options = CONTENDERS[contender].policy, CONTENDERS[contender].options
    if not POLICIES[policy].needs.single_gradients or "reading=shares" in options:
        return 0
    return workers * (1 + REMEMBERED)


@once
def redundancy_table(stored: Stored) -> pd.DataFrame:
    """A row per policy: what it takes beside the mitigation that it gives, means over kinds and seeds.

    `computed` (per image used, 1 is nothing twice or in vain), `wasted` (share of images given out that no update
    used), standby nodes, nodes in all, USD per hour, messages of an update's images, gradients held.
    """
    rows, table = throughput(stored), []
    price = node_price(stored)
    for contender in CONTENDERS:
        own = rows[rows["contender"] == contender]
        if own.empty:
            continue
        workers = int(own["workers"].iloc[0])
        batch = workers * float(own["per_worker_batch_size"].iloc[0])
        nodes = nodes_of(stored, contender)
        messages = own.assign(each=own["events"] / own["samples"] * batch)
        row: dict[str, Any] = {"contender": contender, "way": WAYS[contender]}
        row |= mean_columns(mean_mitigation(stored, contender), "mitigation")
        row |= mean_columns(computed_of(stored, contender), "computed")
        row |= {"wasted": float(own["wasted_share"].mean()), "standby": int(own["standby"].iloc[0])}
        row |= mean_columns(nodes, "nodes") | mean_columns(nodes.times(price) if nodes else None, "usd_per_hour")
        row |= {"messages": float(messages["each"].mean()), "held_gradients": held_gradients(contender, workers)}
        table.append(row)
    return pd.DataFrame(table)


@once
def table2(stored: Stored) -> pd.DataFrame:
    """Table 2's costs as printed and recomputed, each also over DPro-SM's own: that ratio needs no price."""
    published = read_table("dpro-sm", "table2")
    printed = dict(zip(published["row"], published["dollars_per_hour"], strict=True))
    ours = nodes_of(stored, DPRO_STANDBY)
    table = []
    for name, contender in OF_TABLE_2.items():
        nodes = nodes_of(stored, contender)
        row: dict[str, Any] = {"row": name, "contender": contender, "published_usd_per_hour": printed[name]}
        row["published_over_dpro_sm"] = printed[name] / printed["Proposed Model D-Pro-SM"]
        row |= mean_columns(nodes, "nodes")
        row |= mean_columns(nodes.times(node_price(stored)) if nodes else None, "usd_per_hour")
        row["over_dpro_sm"] = nodes.value / ours.value if nodes and ours else float("nan")
        table.append(row)
    return pd.DataFrame(table)


def nodes_over_dpro_sm(stored: Stored, contender: str) -> Estimate | None:
    """Nodes of a policy over those of DPro-SM with its standby node, seed by seed."""
    rows = throughput(stored)
    workers = rows["workers"].iloc[0] if len(rows) else 0
    both = {
        name: _of_kinds(stored, name, "computed") * workers + CONTENDERS[name].standby
        for name in (contender, DPRO_STANDBY)
    }
    ratios = (both[contender] / both[DPRO_STANDBY]).dropna()
    return mean_over_seeds(ratios)

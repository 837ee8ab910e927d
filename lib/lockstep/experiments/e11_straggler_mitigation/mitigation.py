"""Mitigation: how much of the time that delays cost is saved, for the same number of images, by policy and kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.statistics import AnalysisError, interval_of
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CONTENDERS,
    DETECTED,
    DPRO_DETECTED,
    DPRO_GRADIENT,
    DPRO_SHARES,
    DPRO_STANDBY,
    WAIT,
    WAYS,
)
from lockstep.experiments.e11_straggler_mitigation.rows import (
    NO_DELAYS,
    SCALE,
    THROUGHPUT,
    kind_name,
    kinds_of,
    lacking_reason,
    mean_over_seeds,
    over_kinds,
    ratio_over_seeds,
    rows_of,
    wide,
)

BOUND = "bound: nobody waits"
"""A row of the tables that is no policy: each worker computes at its own mean rate, messages and updates are free."""


@once
def throughput(stored: Stored) -> pd.DataFrame:
    """The rows in which every policy computes the same number of images. One that waits for ever takes infinitely long
    and mitigates minus infinity, so that no mean hides it."""
    rows = rows_of(stored, THROUGHPUT)
    stuck = rows["reason"].fillna("").astype(str) != ""
    own, saved = (rows[name].astype(float) for name in ("seconds_per_sample", "mitigation"))
    return rows.assign(seconds_per_sample=own.mask(stuck, np.inf), mitigation=saved.mask(stuck, -np.inf))


@once
def shares(stored: Stored) -> pd.DataFrame:
    """Mitigation, 1 is all: seeds x (delays, contender), `BOUND` among the contenders."""
    rows = throughput(stored)
    delayed = rows[rows["delays"] != NO_DELAYS]
    bound = delayed[delayed["contender"] == WAIT]
    way = bound["seconds_per_sample"] - bound["ideal_seconds_per_sample"]
    gained = (bound["seconds_per_sample"] - bound["bound_seconds_per_sample"]) / way.where(way > 0)
    both = pd.concat([delayed, bound.assign(contender=BOUND, mitigation=gained)])
    return wide(both, "mitigation", ["delays", "contender"])


def mitigation(stored: Stored, contender: str, delays: str) -> Estimate | None:
    """The share of what these delays cost that a policy saves: its mean over seeds. None where it has no number."""
    table = shares(stored)
    return mean_over_seeds(table[delays, contender]) if (delays, contender) in table else None


def mean_mitigation(stored: Stored, contender: str) -> Estimate | None:
    """The mean over kinds of each seed, and over seeds."""
    table = shares(stored)
    known = [kind for kind in kinds_of(throughput(stored)) if (kind, contender) in table]
    if not known:
        return None
    return mean_over_seeds(over_kinds(table[[(kind, contender) for kind in known]], logarithmic=False))


@once
def mitigation_table(stored: Stored) -> pd.DataFrame:
    """A row per policy and kind of delays: mitigation and the share of what is possible at all (`of_the_bound`), with
    95 % intervals over seeds, and seconds over those without delays (`times_undelayed`)."""
    rows, table = throughput(stored), []
    for delays in kinds_of(rows):
        for contender in (BOUND, *CONTENDERS):
            own = rows[(rows["delays"] == delays) & (rows["contender"] == (WAIT if contender == BOUND else contender))]
            if own.empty:
                continue
            own = own.set_index("seed")
            if contender == BOUND:
                own = own.assign(seconds_per_sample=own["bound_seconds_per_sample"], of_the_bound=1.0)
            row: dict[str, Any] = {"delays": delays, "kind": kind_name(delays), "contender": contender}
            row |= {"way": WAYS.get(contender, "")}
            row |= mean_columns(mitigation(stored, contender, delays), "mitigation")
            row |= mean_columns(mean_over_seeds(own["of_the_bound"]), "of_the_bound")
            slower = own["seconds_per_sample"] / own["ideal_seconds_per_sample"]
            row |= mean_columns(ratio_over_seeds(slower), "times_undelayed")
            table.append(row | {"seeds": len(own), "reason": lacking_reason(own)})
    return pd.DataFrame(table)


def cost_without_delays(stored: Stored, contender: str) -> Estimate | None:
    """Seconds of a policy over those of waiting for all, per image and without delays."""
    rows = throughput(stored)
    table = wide(rows[rows["delays"] == NO_DELAYS], "seconds_per_sample", "contender")
    if not {contender, WAIT} <= set(table):
        return None
    return ratio_over_seeds(table[contender] / table[WAIT])


def rate_kept(stored: Stored, contender: str) -> Estimate | None:
    """Images per second under delays over those of waiting for all without any: the geometric mean over all kinds. Of
    `BOUND`, what would be kept if nobody waited. None where a seed has no number."""
    rows = throughput(stored)
    own = rows[(rows["delays"] != NO_DELAYS) & (rows["contender"] == (WAIT if contender == BOUND else contender))]
    taken = own["bound_seconds_per_sample" if contender == BOUND else "seconds_per_sample"].astype(float)
    kept = own.assign(kept=own["ideal_seconds_per_sample"] / taken)
    return ratio_over_seeds(over_kinds(wide(kept, "kept", "delays")))


def mix_ratio(stored: Stored, above: str, below: str, only: str = "") -> Estimate:
    """Seconds per image of one policy over another's, seed by seed: the geometric mean over all kinds of delays, or
    under `only` one. Raises AnalysisError where a seed lacks one of them."""
    table = wide(throughput(stored), "seconds_per_sample", ["delays", "contender"])
    wanted = [only] if only else kinds_of(throughput(stored))
    kinds = [kind for kind in wanted if {(kind, above), (kind, below)} <= set(table)]
    if not kinds:
        raise AnalysisError(f"no kind of delays was simulated with both {above} and {below}")
    ratios = pd.DataFrame({kind: table[kind, above] / table[kind, below] for kind in kinds})
    found = over_kinds(ratios)
    if found.empty or not np.isfinite(found).all() or not found.all():
        raise AnalysisError(f"{above} or {below} has no number under some kind of delays: it waits for ever there")
    return interval_of(found)


@once
def scale_table(stored: Stored) -> pd.DataFrame:
    """Seconds per image over those without delays, by number of workers, kind and policy (`times_undelayed`), and
    mitigation."""
    rows, table = rows_of(stored, SCALE), []
    for (workers, delays, contender), own in rows.groupby(["workers", "delays", "contender"], sort=False):
        slower = own.set_index("seed")["seconds_per_sample"] / own.set_index("seed")["ideal_seconds_per_sample"]
        row: dict[str, Any] = {"workers": int(workers), "delays": delays, "kind": kind_name(str(delays))}
        row |= {"contender": contender} | mean_columns(ratio_over_seeds(slower), "times_undelayed")
        row |= mean_columns(mean_over_seeds(own.set_index("seed")["mitigation"]), "mitigation")
        table.append(row | {"seeds": int(own["seed"].nunique()), "reason": lacking_reason(own)})
    return pd.DataFrame(table)


def gain_of_scale(stored: Stored, contender: str, delays: str) -> Estimate:
    """By how much more a policy speeds up from the fewest to the most workers than waiting for all does: above 1, it
    improves how training scales. Raises AnalysisError where it was not simulated at two numbers of workers."""
    rows = rows_of(stored, SCALE)
    rows = rows[(rows["delays"] == delays) & rows["contender"].isin((contender, WAIT))]
    table = wide(rows, "seconds_per_sample", ["workers", "contender"])
    counts = sorted({int(workers) for workers, name in table if name == contender}) if len(table) else []
    if len(counts) < 2:
        raise AnalysisError(f"{contender} was not simulated at two numbers of workers under {kind_name(delays)}")
    few, many = counts[0], counts[-1]
    gained = table[many, WAIT] / table[many, contender]
    before = table[few, WAIT] / table[few, contender]
    return interval_of((gained / before).dropna())


STAGES: Mapping[str, str] = {
    WAIT: "nothing: wait for all",
    DETECTED: "detected, then dropped",
    DPRO_DETECTED: "DPro-SM: detected, gradient made up",
    DPRO_GRADIENT: "DPro-SM: forecast, gradient made up",
    DPRO_SHARES: "DPro-SM: forecast, shares follow",
    DPRO_STANDBY: "DPro-SM: forecast, standby node",
}
"""Figure 5: when a straggler is dealt with, and how."""
STAGED = ("bad_node", "markov")
"""Kinds of delays that last, so that there is something to be early for."""


def stage_table(stored: Stored) -> pd.DataFrame:
    """Figure 5's stages under delays that last, and the bound: seconds per image over those without delays."""
    table = mitigation_table(stored)
    if table.empty:
        return table
    lasting = table["delays"].str.partition(":")[0].isin(STAGED)
    names = {BOUND: BOUND, **STAGES}
    own = table[lasting & table["contender"].isin(list(names))]
    order = {name: place for place, name in enumerate(names)}
    own = own.assign(stage=own["contender"].map(names), place=own["contender"].map(order))
    own = own.sort_values(["delays", "place"], kind="stable").reset_index(drop=True)
    return own[["delays", "kind", "contender", "stage", "times_undelayed", "times_undelayed_low",
                "times_undelayed_high", "mitigation", "seeds", "reason"]]  # fmt: skip

"""Verdicts on what the paper promises of automatic tuning. It leaves the mechanism open: judged is ours."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lockstep.analysis.learning_rules import gained, within_points
from lockstep.analysis.rules import above, enough, with_seconds
from lockstep.analysis.seeds import paired_points
from lockstep.analysis.statistics import Estimate, interval_of, mean_of
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, Claim, NotNow, Verdict, Verdicts
from lockstep.experiments.e09_autotuning.grid import CHOSEN, ENGINES, RUNG
from lockstep.experiments.e09_autotuning.tables import plain, speed_of_engines

RULES = Verdicts()
TUNED = {"experiment": CHOSEN}


def _chosen(stored: Stored) -> pd.DataFrame:
    """The rows of the network that tuning chose. Raises NotNow where there is none, or on no real images."""
    rows = stored.of(CHOSEN)
    rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise NotNow(NOT_YET, "no network that tuning chose was trained anew and scored on test images")
    if not (rows["data_source"] == "real").all():
        raise NotNow(NEEDS_HARDWARE, "trained on the synthetic stand-in, whose accuracy says nothing about the paper's")
    return rows


@RULES.add
def tuned_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Mean test accuracy of the setting that held-out images chose; several workers would train the same parameters."""
    rows = _chosen(stored)
    mean = mean_of(100 * rows.set_index("seed")["test_accuracy"])
    enough(mean.rounds)
    kind, epochs = rows["network"].iloc[0], rows["epochs"].iloc[0]
    found = within_points(float(claim["value"]), mean, f"{mean} % ({kind}, tuned, {epochs} epochs)")
    return with_seconds(found, stored.records, [TUNED])


@RULES.add
def tuning_gains(claim: Claim, stored: Stored) -> Verdict:
    """Test accuracy of the tuned network minus the plain CNN's, paired by seed."""
    del claim
    _chosen(stored)
    points = paired_points(stored.records, TUNED, plain(stored))
    found = gained(points, f"{points} points of test accuracy over the plain CNN")
    return with_seconds(found, stored.records, [TUNED, plain(stored)])


@RULES.add
def tuned_learns_faster(claim: Claim, stored: Stored) -> Verdict:
    """The epochs until the plain CNN's lowest held-out loss, over those until the tuned network's is as low."""
    del claim
    _chosen(stored)
    ratio = epochs_saved(stored)
    enough(ratio.rounds)
    unit = "times as many epochs without tuning as with it, until the plain CNN's lowest held-out loss"
    found = above(ratio, 1.0, 1.0, unit, "1")
    return with_seconds(found, stored.records, [TUNED, plain(stored)])


@RULES.add
def engines_faster(claim: Claim, stored: Stored) -> Verdict:
    """One list of trials by several engines beside one."""
    del claim
    ratio = speed_of_engines(stored)
    enough(ratio.rounds)
    counts = sorted(stored.of(ENGINES)["workers"].unique())
    found = above(ratio, 1.0, 1.0, f"times as fast with {counts[-1]} engines", "1")
    return with_seconds(found, stored.records, [{"experiment": ENGINES, "workers": count} for count in counts])


def epochs_saved(stored: Stored) -> Estimate:
    """By seed: the epoch of the plain CNN's lowest held-out loss, over the first one of the tuned network with a loss
    that is no higher; one more than all of the latter's where there is none. The same curves on both sides give 1.
    Raises NotNow without a seed that both were trained from."""
    table = stored.table("epochs")
    ratios = {}
    for seed, tuned in table[table["experiment"] == CHOSEN].groupby("seed") if len(table) else ():
        base = table[(table["experiment"] == RUNG) & (table["seed"] == seed)]
        for name, value in plain(stored).items():
            base = base[base[name] == value]
        if base.empty:
            continue
        best = base.loc[base["validation_loss"].idxmin()]
        goal = best["validation_loss"]
        there = tuned.sort_values("epoch").loc[lambda rows, goal=goal: rows["validation_loss"] <= goal, "epoch"]
        needed = there.iloc[0] if len(there) else tuned["epoch"].max() + 1
        ratios[seed] = best["epoch"] / needed
    if not ratios:
        raise NotNow(NOT_YET, "the tuned network and the plain CNN have no seed in common")
    return interval_of(pd.Series(ratios, dtype=float).rename_axis("seed").replace(np.inf, np.nan).dropna())

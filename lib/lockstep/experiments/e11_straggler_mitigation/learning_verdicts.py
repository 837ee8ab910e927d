"""Verdicts on training: time to loss, stand-ins, staleness, dropped gradients, accuracy, and the images themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from lockstep.analysis.learning_rules import gained
from lockstep.analysis.rules import above_one, enough, graded, undecided
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    MEASURED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    UNDECIDED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    any_of,
    join,
    opposite,
    settle,
)
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    AVERAGE_STANDS_IN,
    DPRO_GRADIENT,
    DPRO_SHARES,
    DROP_ONE,
    LEARNERS,
    LSTM_GRADIENT,
    LSTM_WEIGHTS,
    NEVER_WAIT,
    NOTHING_STANDS_IN,
    WAIT,
    ZERO_STANDS_IN,
    without_lstm,
)
from lockstep.experiments.e11_straggler_mitigation.learning import at_their_best, over, ratios, runs_of, undelayed_base
from lockstep.experiments.e11_straggler_mitigation.made_up import kinds_that_differ, stand_in_losses, stand_in_table
from lockstep.experiments.e11_straggler_mitigation.mitigation import mix_ratio, throughput
from lockstep.experiments.e11_straggler_mitigation.rows import (
    NO_DELAYS,
    PARTITIONS,
    RIVALRY,
    STAND_IN,
    THROUGHPUT,
    TIME_TO_LOSS,
    kind_name,
    over_kinds,
    rows_of,
    wide,
)
from lockstep.experiments.e11_straggler_mitigation.verdicts import simulated

RULES = Verdicts()
PUBLIC_SET = 5856
"""Images of the public set that the paper links to, as `data/README.md` has it."""


def _time_gain(stored: Stored, reading: str) -> Verdict:
    """Whether a reading of DPro-SM reaches the loss in less time than waiting for all does under the same delays."""
    own = ratios(stored, reading)
    missed = {kind: int(np.isinf(own[kind]).sum()) for kind in own if np.isinf(own[kind]).any()}
    if missed:  # no ratio, for whomever it happens to: targets say the same of ours
        parts = [f"{count} of {len(own)} seeds under {kind_name(kind)}" for kind, count in missed.items()]
        return Verdict(UNDECIDED, "", f"the loss is not always reached: not with {', '.join(parts)}", grade=MODEL)
    return above_one(over(stored, WAIT, reading), 0.0, "times as fast as waiting for all, on the mix of all kinds")


@RULES.add
def shorter_training(claim: Claim, stored: Stored) -> Verdict:
    """Time to the same loss with stragglers: waiting for all over DPro-SM, each at its best."""
    parts = [(name, settle(partial(_time_gain, stored, name))) for name in (DPRO_GRADIENT, DPRO_SHARES)]
    instead = without_lstm(LEARNERS, DPRO_GRADIENT, DPRO_SHARES)
    return graded(simulated(any_of(parts), stored, TIME_TO_LOSS), MODEL, instead)


@RULES.add
def shares_by_forecast(claim: Claim, stored: Stored) -> Verdict:
    """Shares that follow the forecast against even ones: the time of the same images, and the time to a loss."""
    parts = [
        ("the same images", settle(partial(_images_gain, stored))),
        ("the same loss", settle(partial(_time_gain, stored, DPRO_SHARES))),
    ]
    instead = without_lstm(LEARNERS, DPRO_SHARES)
    return graded(simulated(join(parts), stored, THROUGHPUT, TIME_TO_LOSS), MODEL, f"to the same loss {instead}")


def _images_gain(stored: Stored) -> Verdict:
    return above_one(mix_ratio(stored, WAIT, DPRO_SHARES), 0.0, "times as fast as waiting for all")


@RULES.add
def lstm_stands_in(claim: Claim, stored: Stored) -> Verdict:
    """Is the loss lower with the LSTM's output for a straggler's weights, as the claim says, than with nothing in their
    place, and than with a zero of the same weight? Beside it the same of gradients, which is what workers send."""
    kinds = kinds_that_differ(stored)
    if not kinds:
        raise NotNow(NOT_YET, "no stand-ins were tried")
    weights = _stands_in(stored, LSTM_WEIGHTS, "an LSTM's weights", kinds)
    gradient = _stands_in(stored, LSTM_GRADIENT, "an LSTM's gradients", kinds)
    table = stand_in_table(stored)
    own = table[table["contender"].isin((LSTM_WEIGHTS, LSTM_GRADIENT))]
    text = f"either's cosine with the gradient of all images is {own['cosine'].min():.2f} to {own['cosine'].max():.2f}"
    control = f"that of a real contribution {own['own_cosine'].min():.2f} to {own['own_cosine'].max():.2f}"
    mean = table[table["contender"] == AVERAGE_STANDS_IN]["loss_over_nothing"].dropna()
    simple = f"an average of the last gradients gives {mean.min():.3g} to {mean.max():.3g} times that of an empty place"
    read = f"for gradients, which workers send, it would be {gradient.answer}: {gradient.measured or gradient.reason}"
    more = [read, *([simple] if len(mean) else []), f"{text}, {control}"]
    return graded(simulated(weights, stored, STAND_IN), MODEL, *more)


def _stands_in(stored: Stored, contender: str, called: str, kinds: Sequence[str]) -> Verdict:
    """Whether its loss is below those of both controls under all kinds."""
    controls = {NOTHING_STANDS_IN: "an empty place", ZERO_STANDS_IN: "a zero there"}
    found = join([
        (f"{kind_name(kind)}, over that of {place}", settle(partial(_less, stored, contender, kind, control)))
        for control, place in controls.items() for kind in kinds
    ])  # fmt: skip
    return replace(found, measured=f"loss with {called}: {found.measured}") if found.measured else found


def _less(stored: Stored, contender: str, kind: str, control: str) -> Verdict:
    losses = stand_in_losses(stored)
    if (kind, contender) not in losses or (kind, control) not in losses:
        raise NotNow(NOT_YET, f"{contender}: not simulated beside the control in which {control}")
    return opposite(above_one(interval_of((losses[kind, contender] / losses[kind, control]).dropna()), 0.0, "times"))


@RULES.add
def stragglers_cost(claim: Claim, stored: Stored) -> Verdict:
    """Throughput of waiting for all under delays; test accuracy at the same loss of asynchronous training under delays,
    whose workers are stale, against waiting for all without any."""
    parts = [("throughput", settle(partial(_slower, stored))), ("accuracy", settle(partial(_less_accurate, stored)))]
    return simulated(join(parts), stored, THROUGHPUT, TIME_TO_LOSS)


def _slower(stored: Stored) -> Verdict:
    rows = throughput(stored)
    own = rows[(rows["contender"] == WAIT) & (rows["delays"] != NO_DELAYS)]
    found = over_kinds(wide(own.assign(x=own["seconds_per_sample"] / own["ideal_seconds_per_sample"]), "x", "delays"))
    return above_one(interval_of(found), 0.0, "times the undelayed time per image, waiting for all")


def _less_accurate(stored: Stored) -> Verdict:
    best = at_their_best(stored)
    stale = best[(best["contender"] == NEVER_WAIT) & (best["delays"] != NO_DELAYS)]
    base = undelayed_base(runs_of(rows_of(stored, TIME_TO_LOSS)))["accuracy"]
    lost = (100 * (base - over_kinds(wide(stale, "accuracy", "delays"), logarithmic=False))).dropna()
    if lost.empty:
        raise NotNow(NOT_YET, "asynchronous training was not run under every kind of delays")
    points = mean_of(lost.astype(float))
    return gained(points, f"{points} percentage points lost at the same loss, asynchronous training")


@RULES.add
def staleness_decides(claim: Claim, stored: Stored) -> Verdict:
    """Is there a cell in which waiting for all always reaches the loss and asynchronous training never does, at the
    same rate, momentum and images? Workers that are stale are all that differs there.

    With n seeds of each, chance does so once in 2 ** n if both were alike.
    """
    rows = runs_of(rows_of(stored, RIVALRY))
    if rows.empty:
        raise NotNow(NOT_YET, "no rivals were trained")
    alike: list[str] = []
    apart: list[str] = []
    seeds = math.inf
    for (workers, delays, rate), own in rows.groupby(["workers", "delays", "learning_rate"], sort=False):
        reached = {name: np.isfinite(one["time"]) for name, one in own.groupby("contender")}
        if not {WAIT, NEVER_WAIT} <= set(reached) or not reached[WAIT].all():
            continue
        seeds = min(seeds, len(reached[NEVER_WAIT]))
        name = f"{workers} workers at rate {rate:g} under {kind_name(str(delays))}"
        (alike if reached[NEVER_WAIT].all() else apart if not reached[NEVER_WAIT].any() else []).append(name)
    if not math.isfinite(seeds):
        raise NotNow(NOT_YET, "waiting for all did not reach the loss in any cell beside asynchronous training")
    enough(int(seeds))
    measured = f"of {len(alike) + len(apart)} cells in which waiting for all always reaches the loss, asynchronous "
    measured += f"training always does in {len(alike)} and never in {len(apart)}"
    found = SUPPORTED if apart else CONTRADICTED if alike else UNDECIDED
    why = f"never with {apart[0]}" if apart else "staleness alone never kept it from the loss"
    more = f"; at a smaller rate it does, as with {alike[0]}" if apart and alike else ""
    return simulated(Verdict(found, measured, why + more, chance=0.5**seeds), stored, RIVALRY)


@RULES.add
def dropping_slows(claim: Claim, stored: Stored) -> Verdict:
    """Updates until the loss where the slowest contribution of each is left out, over those of waiting for all with the
    same share, rate and delays; the rate follows the images of an update."""
    found = {name: settle(partial(_more_of, stored, name)) for name in ("updates", "samples", "time")}
    beside = f"images: {found['samples'].measured}; seconds: {found['time'].measured}"
    return graded(simulated(found["updates"], stored, TIME_TO_LOSS), MODEL, beside)


def _more_of(stored: Stored, column: str) -> Verdict:
    runs = runs_of(rows_of(stored, TIME_TO_LOSS))
    kept = runs[runs["contender"].isin((WAIT, DROP_ONE)) & (runs["delays"] != NO_DELAYS) & np.isfinite(runs["time"])]
    key = ["seed", "delays", "per_worker_batch_size", "learning_rate"]
    table = kept.pivot(index=key, columns="contender", values=column).astype(float) if len(kept) else pd.DataFrame()
    if not {WAIT, DROP_ONE} <= set(table):
        raise NotNow(NOT_YET, "no cell was trained to the loss both by waiting for all and by leaving one out")
    logs = np.log(table[DROP_ONE] / table[WAIT]).dropna()
    by_seed = np.exp(logs.groupby("seed").mean())
    if by_seed.empty:
        raise NotNow(NOT_YET, "no seed reached the loss both ways")
    return above_one(interval_of(by_seed), 0.0, f"times as many as waiting for all, {DROP_ONE}")


@RULES.add
def images_of_the_set(claim: Claim, stored: Stored) -> Verdict:
    """The images that were trained and tested on. A folder that holds fewer than the public set is a part of it, and
    says nothing about the whole."""
    rows = stored.of(PARTITIONS)
    real = rows[(rows["data_source"] == "real") & (rows["status"] == "ok")]
    table = rows_of(stored, PARTITIONS)
    counts = table[["train_images", "test_images"]].dropna()
    if real.empty or counts.empty:
        raise NotNow(NEEDS_HARDWARE if len(rows) else NOT_YET, "no X-rays of the public set were in the data folder")
    found, published = int(counts.iloc[0].sum()), float(claim["value"])
    measured = f"{found} images in the data folder ({int(counts['test_images'].iloc[0])} of them for testing)"
    if found == published:
        return Verdict(SUPPORTED, measured, "counted", grade=MEASURED)
    public = f"the public set is known with {PUBLIC_SET}, {published - PUBLIC_SET:g} fewer than printed"
    if found < PUBLIC_SET:
        return replace(undecided(measured, f"a part of the set; {public}", math.inf), grade=MEASURED)
    return Verdict(CONTRADICTED, measured, f"counted; {public}", grade=MEASURED)

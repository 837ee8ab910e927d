"""Verdicts on the training time of the CNN and the ConvLSTM, over rounds of timed steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import highest
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.rules import above, above_one, between, enough, with_seconds, within
from lockstep.analysis.seeds import MARGIN, SPEED, same_but
from lockstep.analysis.statistics import Estimate, ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET, TOLERANCE, UNDECIDED, Claim, NotNow, Verdict, Verdicts, any_of, opposite
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import sequential_of
from lockstep.experiments.e07_convlstm_batch_size.verdicts import BATCH, PAPER_NETWORK, Cell, found_cells

RULES = Verdicts()


def _timed(records: pd.DataFrame, claim: Claim, way_of: str, **more: Any) -> list[Cell]:
    return found_cells(
        records, SPEED, f"timed {way_of} training", use_case=claim["use_case"], network=PAPER_NETWORK, way=way_of,
        framework="torch", **more,
    )  # fmt: skip


def _fastest(records: pd.DataFrame, found: list[Cell], **base: Any) -> tuple[Estimate, Cell, str]:
    """The highest speedup over sequential training (with the fields `base` changed) of several cells, with an interval
    that pays for the choice; the cell it is of, and a text that says so."""
    ratios = [ratio_with_interval(records, cell, sequential_of(cell) | base, "images_per_second") for cell in found]
    for ratio in ratios:
        enough(ratio.rounds)
    best, surest = (max(range(len(found)), key=lambda at: getattr(ratios[at], end)) for end in ("value", "low"))
    cell, labels = found[best], [STRATEGIES[each["strategy"]].label for each in found]
    among = f"the fastest of {len(found)}, whose choice the interval pays for: " if len(found) > 1 else ""
    surer = f"; its lower end is that of {labels[surest]}, {ratios[surest]}" if surest != best else ""
    text = f"{labels[best]}, {cell['workers']} workers, batch {cell['global_batch_size']}{surer}"
    return highest(ratios), cell, f"({among}{text})"


def _rounds_of(found: Verdict, records: pd.DataFrame, own: list[Cell], **base: Any) -> Verdict:
    """With the seconds of a round of every cell that the fastest was chosen of."""
    sides = [side for cell in own for side in (cell, sequential_of(cell) | base)]
    return with_seconds(found, records, sides)


def _gain(claim: Claim, records: pd.DataFrame, way_of: str) -> Verdict:
    """Images/s over sequential training, with Table 2's batch, read as so many percent more and as so many times:
    beside "nearly double" and "a factor of 2" the abstract's percent may be a slip."""
    found = _timed(records, claim, way_of, global_batch_size=BATCH)
    ratio, _, text = _fastest(records, found)
    value = float(claim["value"])
    mean, low, high = (100 * (end - 1) for end in (ratio.value, ratio.low, ratio.high))
    low = -math.inf if ratio.open else low  # "at least -100 %" says nothing
    more = Estimate(mean, low, high, ratio.rounds, logarithmic=False)  # to be shown: the ratio knows its chances
    ends = (1 + (value - MARGIN) / 100, 1 + (value + MARGIN) / 100)
    text = f"{more}{ratio.differing} % more images/s than sequential training {text}"
    percent = between(*ends, ratio, text, f"{value:g} ± {MARGIN:g} points")
    times = within(value, ratio, f"{ratio} times")
    verdict = any_of([(f"read as {value:g} %", percent), (f"read as {value:g} times", times)])
    return _rounds_of(replace(verdict, numbers=(("", more),)), records, found)


@RULES.add
def data_parallel_gain(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: data parallelism is faster by so many percent."""
    return _gain(claim, stored.records, "data parallel")


@RULES.add
def model_parallel_gain(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: model parallelism is faster by so many percent."""
    return _gain(claim, stored.records, "model parallel")


@RULES.add
def data_parallel_speed(claim: Claim, stored: Stored) -> Verdict:
    """§6: training time falls by so many times, the highest over all batch sizes ("up to")."""
    found = _timed(stored.records, claim, "data parallel")
    ratio, _, text = _fastest(stored.records, found)
    verdict = within(float(claim["value"]), ratio, f"{ratio} over sequential training {text}")
    return _rounds_of(verdict, stored.records, found)


@RULES.add
def data_parallel_over_cnn(claim: Claim, stored: Stored) -> Verdict:
    """§5.1: so many times the speed "of a CNN model operating on a single node", the highest over all batch sizes."""
    found = _timed(stored.records, claim, "data parallel")
    ratio, cell, text = _fastest(stored.records, found, network="cnn")
    own = ratio_with_interval(stored.records, cell, sequential_of(cell), "images_per_second")
    verdict = within(float(claim["value"]), ratio, f"{ratio} over a CNN by one worker {text}")
    verdict = _rounds_of(verdict, stored.records, found, network="cnn")
    return replace(verdict, reason=f"{verdict.reason}; over sequential training of the same network {own}")


@RULES.add
def data_parallel_faster(claim: Claim, stored: Stored) -> Verdict:
    """More images/s than sequential training, with Table 2's batch."""
    found = _timed(stored.records, claim, "data parallel", global_batch_size=BATCH)
    ratio, _, text = _fastest(stored.records, found)
    verdict = above_one(ratio, aa_noise(stored.records), f"times sequential training {text}")
    return _rounds_of(verdict, stored.records, found)


def _saves_time(claim: Claim, records: pd.DataFrame, text: str, added: str = "", **changed: Any) -> Verdict:
    """A step with something added over the plain CNN's: below 1, it makes as many epochs shorter; above 1, it does not,
    unless the A/A noise could hide a gain of TOLERANCE. `added`: the field of what comes in several strengths."""
    found = found_cells(
        records, SPEED, f"timed steps with {text}", use_case=claim["use_case"], framework="torch",
        strategy="sequential", global_batch_size=BATCH, **changed,
    )  # fmt: skip
    found = [cell for cell in found if not added or cell[added] > 0]
    if not found:
        raise NotNow(NOT_YET, f"no records of timed steps with {text}")
    base = same_but(found[0], network="cnn", dropout=0.0, weight_decay=0.0)
    ratio, noise = ratio_with_interval(records, found[0], base, "step_seconds"), aa_noise(records, "step_seconds")
    verdict = opposite(above_one(ratio, noise, f"times as long a step as without {text}, batch {BATCH}"))
    if verdict.answer == UNDECIDED and ratio.low > 1 and noise <= math.log1p(TOLERANCE):
        longer = opposite(above(ratio, 1.0, 1.0, "", "1"))  # by less than the noise, which hides no gain of TOLERANCE
        verdict = replace(longer, measured=verdict.measured, reason=f"{longer.reason}, so it is not shorter")
    return with_seconds(verdict, records, (base, found[0]))


@RULES.add
def dropout_saves_time(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: a dropout layer makes training shorter."""
    return _saves_time(claim, stored.records, "dropout", "dropout", network="cnn", weight_decay=0.0)


@RULES.add
def weight_decay_saves_time(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: L2 regularisation makes training shorter."""
    return _saves_time(claim, stored.records, "L2", "weight_decay", network="cnn", dropout=0.0)


@RULES.add
def lstm_saves_time(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: the LSTM makes training shorter."""
    return _saves_time(claim, stored.records, "the LSTM", network=PAPER_NETWORK, dropout=0.0, weight_decay=0.0)

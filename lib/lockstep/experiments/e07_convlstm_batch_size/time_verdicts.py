"""Verdicts on the training time of the CNN and the ConvLSTM, over rounds of timed steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from lockstep.analysis.noise import aa_noise
from lockstep.analysis.seeds import SPEED, same_but
from lockstep.analysis.statistics import Estimate, interval_of, paired_ratios, ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET, Claim, NotNow, Verdict, Verdicts, above_one, enough, within
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import sequential_of
from lockstep.experiments.e07_convlstm_batch_size.verdicts import (
    BATCH,
    PAPER_NETWORK,
    Cell,
    found_cells,
    near_published,
)

RULES = Verdicts()


def _timed(records: pd.DataFrame, claim: Claim, way_of: str, **more: Any) -> list[Cell]:
    return found_cells(
        records, SPEED, f"timed {way_of} training", use_case=claim["use_case"], network=PAPER_NETWORK, way=way_of,
        framework="torch", **more,
    )  # fmt: skip


def _fastest(records: pd.DataFrame, found: list[Cell], **base: Any) -> tuple[Estimate, Cell, str]:
    """The one of several cells with the highest median speedup over sequential training (with the fields `base`
    changed), and a text that says so."""
    ratios = [ratio_with_interval(records, cell, sequential_of(cell) | base, "images_per_second") for cell in found]
    ratio, cell = max(zip(ratios, found, strict=True), key=lambda pair: pair[0].value)
    among = f"the fastest of {len(found)}: " if len(found) > 1 else ""
    label = STRATEGIES[cell["strategy"]].label
    return ratio, cell, f"({among}{label}, {cell['workers']} workers, batch {cell['global_batch_size']})"


def _gain(claim: Claim, records: pd.DataFrame, way_of: str) -> Verdict:
    """Percent more images/s than sequential training, with Table 2's batch."""
    found = _timed(records, claim, way_of, global_batch_size=BATCH)
    _, cell, text = _fastest(records, found)
    ratios = paired_ratios(records, cell, sequential_of(cell), "images_per_second")
    gain = interval_of(100 * (ratios - 1))
    enough(gain.rounds)
    return near_published(float(claim["value"]), gain, f"more images/s than sequential training {text}")


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
    ratio, _, text = _fastest(stored.records, _timed(stored.records, claim, "data parallel"))
    return within(float(claim["value"]), ratio, f"{ratio} over sequential training {text}")


@RULES.add
def data_parallel_over_cnn(claim: Claim, stored: Stored) -> Verdict:
    """§5.1: so many times the speed "of a CNN model operating on a single node", the highest over all batch sizes."""
    found = _timed(stored.records, claim, "data parallel")
    ratio, cell, text = _fastest(stored.records, found, network="cnn")
    own = ratio_with_interval(stored.records, cell, sequential_of(cell), "images_per_second")
    verdict = within(float(claim["value"]), ratio, f"{ratio} over a CNN by one worker {text}")
    return replace(verdict, reason=f"{verdict.reason}; over sequential training of the same network {own}")


@RULES.add
def data_parallel_faster(claim: Claim, stored: Stored) -> Verdict:
    """More images/s than sequential training, with Table 2's batch."""
    ratio, cell, text = _fastest(
        stored.records, _timed(stored.records, claim, "data parallel", global_batch_size=BATCH)
    )
    return above_one(ratio, aa_noise(stored.records), f"times sequential training {text}")


def _saves_time(claim: Claim, records: pd.DataFrame, text: str, added: str = "", **changed: Any) -> Verdict:
    """A step of the plain CNN over a step with something added: above 1, it makes as many epochs shorter. `added`: the
    field of what comes in several strengths."""
    found = found_cells(
        records, SPEED, f"timed steps with {text}", use_case=claim["use_case"], framework="torch",
        strategy="sequential", global_batch_size=BATCH, **changed,
    )  # fmt: skip
    found = [cell for cell in found if not added or cell[added] > 0]
    if not found:
        raise NotNow(NOT_YET, f"no records of timed steps with {text}")
    base = same_but(found[0], network="cnn", dropout=0.0, weight_decay=0.0)
    ratio = ratio_with_interval(records, base, found[0], "step_seconds")
    return above_one(ratio, aa_noise(records, "step_seconds"), f"times its step time without {text}, batch {BATCH}")


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

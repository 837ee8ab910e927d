"""Verdicts on the accuracy of the CNN and the ConvLSTM, over seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.seeds import (
    ABLATION,
    LEARNING,
    MARGIN,
    PAIRED,
    SELECTED,
    diverged,
    mean_of,
    paired_points,
    same_but,
    way,
)
from lockstep.analysis.statistics import Estimate, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    enough,
    join,
    ran,
    settle,
)
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import PARALLEL, setting_text
from lockstep.experiments.fixed_batch import PLAIN_BATCH

RULES = Verdicts()

BATCH, EPOCHS = PLAIN_BATCH, 10
"""Table 2's: the only settings that the paper states."""
PAPER_NETWORK = "convlstm"
OTHER_IMAGES = "measured on the synthetic stand-in alone, whose accuracy says nothing about the paper's images"

Cell = dict[str, Any]


def found_cells(records: pd.DataFrame, experiment: str, about: str, **conditions: Any) -> list[Cell]:
    """Cells that ran or diverged, of the first of A/A pairs. Raises NotNow where none ran, with its rows' reason."""
    given = {"experiment": experiment, "variant": "a", "device": "cpu", "precision": "float32"} | conditions
    way_of = given.pop("way", None)
    rows = select(records, given, status=None) if len(records) else records
    if way_of is not None and len(rows):
        rows = rows[[way(row) == way_of for row in rows.to_dict("records")]]
    ran(rows, about)
    return [cell for cell, own in cells(rows) if _trained(own)]


def _trained(rows: pd.DataFrame) -> bool:
    return bool((rows["status"] == "ok").any() or diverged(rows))


def _real(found: list[Cell]) -> list[Cell]:
    """Raises NotNow for images that nobody photographed."""
    real = [cell for cell in found if cell["data_source"] == "real"]
    if not real:
        raise NotNow(NEEDS_HARDWARE, OTHER_IMAGES)
    return real


def _seeds(records: pd.DataFrame, cell: Cell) -> Estimate:
    """Mean test accuracy in percent. Raises NotNow where a seed diverged."""
    rows = select(records, cell, status=None)
    if lost := diverged(rows):
        raise NotNow(NOT_YET, f"{lost} of {len(rows)} seeds diverged: there is no mean over all of them")
    rows = rows[rows["status"] == "ok"]
    found = mean_of(100 * rows["test_accuracy"].dropna())
    enough(found.rounds)
    return found


def _highest(records: pd.DataFrame, found: list[Cell]) -> tuple[Cell, Estimate, str]:
    """The cell with the highest mean test accuracy, that mean (%), and of how many: those that diverged have none."""
    kept = [cell for cell in found if not diverged(select(records, cell, status=None))] or found[:1]
    best, mean = max(((cell, _seeds(records, cell)) for cell in kept), key=lambda pair: pair[1].value)
    lost = len(found) - len(kept)
    return best, mean, f"{len(found)} ({lost} diverged)" if lost else str(len(found))


def near_published(published: float, mean: Estimate, text: str, unit: str = "%") -> Verdict:
    """Reproduced if the interval, widened by MARGIN points, holds the published number: a share of it would be lenient
    towards high numbers."""
    inside = mean.low - MARGIN <= published <= mean.high + MARGIN
    why = f"the interval ± {MARGIN:g} points {'holds' if inside else 'does not hold'} {published:g}"
    return Verdict(SUPPORTED if inside else CONTRADICTED, f"{mean} {unit} {text}", why, (("", mean),))


def _plain(records: pd.DataFrame, use_case: str, way_of: str) -> list[Cell]:
    """The paper's own settings but for the batch size: no linear rule, EPOCHS epochs."""
    found = found_cells(
        records, LEARNING, f"{way_of} training of {use_case}", use_case=use_case, network=PAPER_NETWORK, way=way_of,
        framework="torch", learning_rate_rule="constant", rate_warmup_epochs=0, updates=0,
    )  # fmt: skip
    whole = [cell for cell in _real(found) if cell["epochs"] == EPOCHS]
    if not whole:
        raise NotNow(NOT_YET, f"trained for {found[0]['epochs']} epochs, not for Table 2's {EPOCHS}")
    return whole


@RULES.add
def data_parallel_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: by data parallelism; with Table 2's settings, for no batch size stands beside it."""
    found = _plain(stored.records, str(claim["use_case"]), "data parallel")
    stated = [cell for cell in found if cell["global_batch_size"] == BATCH]
    if not stated:
        raise NotNow(NOT_YET, f"not trained with Table 2's batch of {BATCH}")
    mean = _seeds(stored.records, stated[0])
    verdict = near_published(float(claim["value"]), mean, _what_was_trained(BATCH, mean))
    best, most, among = _highest(stored.records, found)
    size = best["global_batch_size"]
    highest = f"of {among} batch sizes the highest mean is {most} % at {size}, chosen on the test split"
    return replace(verdict, reason=f"{verdict.reason}; {highest}") if len(found) > 1 else verdict


@RULES.add
def model_parallel_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: the "top" accuracy by model parallelism, so the highest mean over the batch sizes of Figure 6."""
    found = _plain(stored.records, str(claim["use_case"]), "model parallel")
    best, mean, among = _highest(stored.records, found)
    verdict = near_published(float(claim["value"]), mean, _what_was_trained(best["global_batch_size"], mean))
    several = f"the highest mean of {among} batch sizes, chosen on the test split"
    return replace(verdict, reason=f"{verdict.reason}; {several if len(found) > 1 else 'the only batch'}")


def _what_was_trained(batch: int, mean: Estimate) -> str:
    return f"(ConvLSTM, batch {batch}, {EPOCHS} epochs, mean over {mean.rounds} seeds)"


@RULES.add
def accuracy_over(claim: Claim, stored: Stored) -> Verdict:
    """Whether any distributed ConvLSTM that was trained here is above a number, with its whole interval."""
    found: list[Cell] = []
    for experiment in (LEARNING, PAIRED, SELECTED):
        rows = stored.records[stored.records["experiment"] == experiment] if len(stored.records) else stored.records
        found += [cell for cell, own in cells(rows) if way(cell) != "sequential" and _trained(own)]
    found = [cell for cell in found if (cell["use_case"], cell["network"]) == (claim["use_case"], PAPER_NETWORK)]
    if not found:
        raise NotNow(NOT_YET, f"no records of distributed training of {claim['use_case']}")
    best, mean, among = _highest(stored.records, _real(found))
    above = mean.low > float(claim["value"])
    why = f"the interval is {'' if above else 'not '}above {claim['value']:g} %; the highest of {among} cells, "
    text = f"{mean} % ({setting_text(best)}, {way(best)})"
    return Verdict(SUPPORTED if above else CONTRADICTED, text, f"{why}chosen on the test split", (("", mean),))


@RULES.add
def data_parallel_more_accurate(claim: Claim, stored: Stored) -> Verdict:
    """Data parallel minus sequential training, paired by seed: above 0?"""
    found = _real(
        found_cells(stored.records, PAIRED, "paired training", use_case=claim["use_case"], way="data parallel")
    )
    parts = []
    for cell in found:
        name = f"{cell['network']}, {cell['workers']} workers"
        parts.append((name, settle(partial(_more_accurate, stored.records, cell))))
    return join(parts)


def _more_accurate(records: pd.DataFrame, cell: Cell) -> Verdict:
    points = paired_points(records, cell, same_but(cell, *PARALLEL, strategy="sequential"))
    return _above_zero(points, "points over sequential training")


def _above_zero(points: Estimate, text: str) -> Verdict:
    enough(points.rounds)
    if points.low > 0:
        return Verdict(SUPPORTED, f"{points} {text}", "the interval excludes 0")
    why = "the difference is the other way round" if points.high < 0 else "no difference: the interval holds 0"
    return Verdict(CONTRADICTED, f"{points} {text}", why)


@RULES.add
def lstm_as_accurate(claim: Claim, stored: Stored) -> Verdict:
    """ConvLSTM minus CNN, paired by seed, with Table 2's settings: not below by more than MARGIN points?"""
    found: list[Cell] = []
    for way_of in ("data parallel", "model parallel", "sequential"):
        rows = stored.records[stored.records["experiment"] == LEARNING] if len(stored.records) else stored.records
        if len(rows) and any(way(cell) == way_of for cell, _ in cells(rows)):
            found = [
                cell
                for cell in _plain(stored.records, str(claim["use_case"]), way_of)
                if cell["global_batch_size"] == BATCH
            ]
            break
    if not found:
        raise NotNow(NOT_YET, f"no ConvLSTM was trained with Table 2's batch of {BATCH}")
    points = paired_points(stored.records, found[0], same_but(found[0], network="cnn"))
    enough(points.rounds)
    alike = points.low >= -MARGIN
    why = f"the interval {'lies' if alike else 'does not lie'} above -{MARGIN:g} points"
    return Verdict(SUPPORTED if alike else CONTRADICTED, f"{points} points over the CNN, {way(found[0])}", why)


@RULES.add
def dropout_lessens_gap(claim: Claim, stored: Stored) -> Verdict:
    """Train minus test accuracy with the most dropout that was tried, minus that without: below 0?"""
    found = _real(found_cells(stored.records, ABLATION, "the ablation", use_case=claim["use_case"], pooling="max"))
    most = max(cell["dropout"] for cell in found)
    if not most:
        raise NotNow(NOT_YET, "nothing was trained with dropout")
    gaps = stored.records.assign(gap=stored.records["test_accuracy"] - stored.records["train_accuracy"])
    parts = []
    for cell in (cell for cell in found if cell["dropout"] == most):
        text = f"points less between train and test accuracy, with dropout {most:g}"
        points = paired_points(gaps, cell, same_but(cell, dropout=0.0), "gap")
        parts.append((cell["network"], _above_zero(points, text)))
    return join(parts)

"""Verdicts on accuracy and training time of the CNN and the ConvLSTM: over seeds for accuracy, over rounds for time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis import Ratio, interval_of, paired_ratios, ratio_with_interval, select
from lockstep.learning_tables.accuracy import PARALLEL, setting_text
from lockstep.learning_tables.cells import (
    ABLATION,
    LEARNING,
    MARGIN,
    PAIRED,
    SELECTED,
    SPEED,
    diverged,
    mean_of,
    paired_points,
    same_but,
    way,
)
from lockstep.learning_tables.speed import base_of, noise_of
from lockstep.strategies import STRATEGIES
from lockstep.summaries import cells
from lockstep.verdicts.rules import (
    NOT_MEASURABLE,
    NOT_REPRODUCED,
    NOT_YET,
    REPRODUCED,
    Claim,
    NotNow,
    Verdict,
    above_one,
    enough,
    join,
    ran,
    register,
    settle,
    within,
)

BATCH, EPOCHS = 32, 10
"""Table 2's: the only settings that the paper states."""
PAPER_NETWORK = "convlstm"
OTHER_IMAGES = "measured on the synthetic stand-in alone, whose accuracy says nothing about the paper's images"

Cell = dict[str, Any]


def _found(records: pd.DataFrame, experiment: str, about: str, **conditions: Any) -> list[Cell]:
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
        raise NotNow(NOT_MEASURABLE, OTHER_IMAGES)
    return real


def _seeds(records: pd.DataFrame, cell: Cell) -> Ratio:
    """Mean test accuracy in percent. Raises NotNow where a seed diverged."""
    rows = select(records, cell, status=None)
    if lost := diverged(rows):
        raise NotNow(NOT_YET, f"{lost} of {len(rows)} seeds diverged: there is no mean over all of them")
    rows = rows[rows["status"] == "ok"]
    found = mean_of(100 * rows["test_accuracy"].dropna())
    enough(found.rounds)
    return found


def _highest(records: pd.DataFrame, found: list[Cell]) -> tuple[Cell, Ratio, str]:
    """The cell with the highest mean test accuracy, that mean (%), and of how many: those that diverged have none."""
    kept = [cell for cell in found if not diverged(select(records, cell, status=None))] or found[:1]
    best, mean = max(((cell, _seeds(records, cell)) for cell in kept), key=lambda pair: pair[1].median)
    lost = len(found) - len(kept)
    return best, mean, f"{len(found)} ({lost} diverged)" if lost else str(len(found))


def _near(published: float, mean: Ratio, text: str, unit: str = "%") -> Verdict:
    """Reproduced if the interval, widened by MARGIN points, holds the published number: a share of it would be lenient
    towards high numbers."""
    inside = mean.low - MARGIN <= published <= mean.high + MARGIN
    why = f"the interval ± {MARGIN:g} points {'holds' if inside else 'does not hold'} {published:g}"
    return Verdict(REPRODUCED if inside else NOT_REPRODUCED, f"{mean} {unit} {text}", why, (("", mean),))


# Accuracy


def _plain(records: pd.DataFrame, use_case: str, way_of: str) -> list[Cell]:
    """The paper's own settings but for the batch size: no linear rule, EPOCHS epochs."""
    found = _found(
        records, LEARNING, f"{way_of} training of {use_case}", use_case=use_case, network=PAPER_NETWORK, way=way_of,
        framework="torch", learning_rate_rule="constant", rate_warmup_epochs=0, updates=0,
    )  # fmt: skip
    whole = [cell for cell in _real(found) if cell["epochs"] == EPOCHS]
    if not whole:
        raise NotNow(NOT_YET, f"trained for {found[0]['epochs']} epochs, not for Table 2's {EPOCHS}")
    return whole


@register
def data_parallel_accuracy(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: by data parallelism; with Table 2's settings, for no batch size stands beside it."""
    found = _plain(records, str(claim["use_case"]), "data parallel")
    stated = [cell for cell in found if cell["global_batch_size"] == BATCH]
    if not stated:
        raise NotNow(NOT_YET, f"not trained with Table 2's batch of {BATCH}")
    mean = _seeds(records, stated[0])
    verdict = _near(float(claim["value"]), mean, _told(BATCH, mean))
    best, most, among = _highest(records, found)
    size = best["global_batch_size"]
    told = f"of {among} batch sizes the highest mean is {most} % at {size}, chosen on the test split"
    return replace(verdict, reason=f"{verdict.reason}; {told}") if len(found) > 1 else verdict


@register
def model_parallel_accuracy(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: the "top" accuracy by model parallelism, so the highest mean over the batch sizes of Figure 6."""
    found = _plain(records, str(claim["use_case"]), "model parallel")
    best, mean, among = _highest(records, found)
    verdict = _near(float(claim["value"]), mean, _told(best["global_batch_size"], mean))
    told = f"the highest mean of {among} batch sizes, chosen on the test split" if len(found) > 1 else "the only batch"
    return replace(verdict, reason=f"{verdict.reason}; {told}")


def _told(batch: int, mean: Ratio) -> str:
    return f"(ConvLSTM, batch {batch}, {EPOCHS} epochs, mean over {mean.rounds} seeds)"


@register
def accuracy_over(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Whether any distributed ConvLSTM that was trained here is above a number, with its whole interval."""
    found: list[Cell] = []
    for experiment in (LEARNING, PAIRED, SELECTED):
        rows = records[records["experiment"] == experiment] if len(records) else records
        found += [cell for cell, own in cells(rows) if way(cell) != "sequential" and _trained(own)]
    found = [cell for cell in found if (cell["use_case"], cell["network"]) == (claim["use_case"], PAPER_NETWORK)]
    if not found:
        raise NotNow(NOT_YET, f"no records of distributed training of {claim['use_case']}")
    best, mean, among = _highest(records, _real(found))
    above = mean.low > float(claim["value"])
    why = f"the interval is {'' if above else 'not '}above {claim['value']:g} %; the highest of {among} cells, "
    text = f"{mean} % ({setting_text(best)}, {way(best)})"
    return Verdict(REPRODUCED if above else NOT_REPRODUCED, text, f"{why}chosen on the test split", (("", mean),))


@register
def data_parallel_more_accurate(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Data parallel minus sequential training, paired by seed: above 0?"""
    found = _real(_found(records, PAIRED, "paired training", use_case=claim["use_case"], way="data parallel"))
    parts = []
    for cell in found:
        name = f"{cell['network']}, {cell['workers']} workers"
        parts.append((name, settle(partial(_more_accurate, records, cell))))
    return join(parts)


def _more_accurate(records: pd.DataFrame, cell: Cell) -> Verdict:
    points = paired_points(records, cell, same_but(cell, *PARALLEL, strategy="sequential"))
    return _above_zero(points, "points over sequential training")


def _above_zero(points: Ratio, text: str) -> Verdict:
    enough(points.rounds)
    if points.low > 0:
        return Verdict(REPRODUCED, f"{points} {text}", "the interval excludes 0")
    why = "the difference is the other way round" if points.high < 0 else "no difference: the interval holds 0"
    return Verdict(NOT_REPRODUCED, f"{points} {text}", why)


@register
def lstm_as_accurate(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """ConvLSTM minus CNN, paired by seed, with Table 2's settings: not below by more than MARGIN points?"""
    found: list[Cell] = []
    for way_of in ("data parallel", "model parallel", "sequential"):
        rows = records[records["experiment"] == LEARNING] if len(records) else records
        if len(rows) and any(way(cell) == way_of for cell, _ in cells(rows)):
            found = [
                cell for cell in _plain(records, str(claim["use_case"]), way_of) if cell["global_batch_size"] == BATCH
            ]
            break
    if not found:
        raise NotNow(NOT_YET, f"no ConvLSTM was trained with Table 2's batch of {BATCH}")
    points = paired_points(records, found[0], same_but(found[0], network="cnn"))
    enough(points.rounds)
    alike = points.low >= -MARGIN
    why = f"the interval {'lies' if alike else 'does not lie'} above -{MARGIN:g} points"
    return Verdict(REPRODUCED if alike else NOT_REPRODUCED, f"{points} points over the CNN, {way(found[0])}", why)


@register
def dropout_lessens_gap(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Train minus test accuracy with the most dropout that was tried, minus that without: below 0?"""
    found = _real(_found(records, ABLATION, "the ablation", use_case=claim["use_case"], pooling="max"))
    most = max(cell["dropout"] for cell in found)
    if not most:
        raise NotNow(NOT_YET, "nothing was trained with dropout")
    gaps = records.assign(gap=records["test_accuracy"] - records["train_accuracy"])
    parts = []
    for cell in (cell for cell in found if cell["dropout"] == most):
        text = f"points less between train and test accuracy, with dropout {most:g}"
        points = paired_points(gaps, cell, same_but(cell, dropout=0.0), "gap")
        parts.append((cell["network"], _above_zero(points, text)))
    return join(parts)


# Time


def _timed(records: pd.DataFrame, claim: Claim, way_of: str, **more: Any) -> list[Cell]:
    return _found(
        records, SPEED, f"timed {way_of} training", use_case=claim["use_case"], network=PAPER_NETWORK, way=way_of,
        framework="torch", **more,
    )  # fmt: skip


def _fastest(records: pd.DataFrame, found: list[Cell], **base: Any) -> tuple[Ratio, Cell, str]:
    """Of several cells the one with the highest median speedup over sequential training (with the fields `base`
    changed), and a text that says so."""
    ratios = [ratio_with_interval(records, cell, base_of(cell) | base, "images_per_second") for cell in found]
    ratio, cell = max(zip(ratios, found, strict=True), key=lambda pair: pair[0].median)
    among = f"the fastest of {len(found)}: " if len(found) > 1 else ""
    label = STRATEGIES[cell["strategy"]].label
    return ratio, cell, f"({among}{label}, {cell['workers']} workers, batch {cell['global_batch_size']})"


def _gain(claim: Claim, records: pd.DataFrame, way_of: str) -> Verdict:
    """Percent more images/s than sequential training, with Table 2's batch."""
    found = _timed(records, claim, way_of, global_batch_size=BATCH)
    _, cell, text = _fastest(records, found)
    ratios = paired_ratios(records, cell, base_of(cell), "images_per_second")
    gain = interval_of(100 * (ratios - 1))
    enough(gain.rounds)
    return _near(float(claim["value"]), gain, f"more images/s than sequential training {text}")


@register
def data_parallel_gain(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: data parallelism is faster by so many percent."""
    return _gain(claim, records, "data parallel")


@register
def model_parallel_gain(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: model parallelism is faster by so many percent."""
    return _gain(claim, records, "model parallel")


@register
def data_parallel_speed(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """§6: training time falls by so many times, the highest over all batch sizes ("up to")."""
    ratio, _, text = _fastest(records, _timed(records, claim, "data parallel"))
    return within(float(claim["value"]), ratio, f"{ratio} over sequential training {text}")


@register
def data_parallel_over_cnn(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """§5.1: so many times the speed "of a CNN model operating on a single node", the highest over all batch sizes."""
    found = _timed(records, claim, "data parallel")
    ratio, cell, text = _fastest(records, found, network="cnn")
    own = ratio_with_interval(records, cell, base_of(cell), "images_per_second")
    verdict = within(float(claim["value"]), ratio, f"{ratio} over a CNN by one worker {text}")
    return replace(verdict, reason=f"{verdict.reason}; over sequential training of the same network {own}")


@register
def data_parallel_faster(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """More images/s than sequential training, with Table 2's batch."""
    ratio, cell, text = _fastest(records, _timed(records, claim, "data parallel", global_batch_size=BATCH))
    return above_one(ratio, noise_of(records, base_of(cell)), f"times sequential training {text}")


def _saves_time(claim: Claim, records: pd.DataFrame, text: str, added: str = "", **changed: Any) -> Verdict:
    """A step of the plain CNN over a step with something added: above 1, it makes as many epochs shorter. `added`: the
    field of what comes in several strengths."""
    found = _found(
        records, SPEED, f"timed steps with {text}", use_case=claim["use_case"], framework="torch",
        strategy="sequential", global_batch_size=BATCH, **changed,
    )  # fmt: skip
    found = [cell for cell in found if not added or cell[added] > 0]
    if not found:
        raise NotNow(NOT_YET, f"no records of timed steps with {text}")
    base = same_but(found[0], network="cnn", dropout=0.0, weight_decay=0.0)
    ratio = ratio_with_interval(records, base, found[0], "step_seconds")
    return above_one(
        ratio, noise_of(records, base, "step_seconds"), f"times its step time without {text}, batch {BATCH}"
    )


@register
def dropout_saves_time(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: a dropout layer makes training shorter."""
    return _saves_time(claim, records, "dropout", "dropout", network="cnn", weight_decay=0.0)


@register
def weight_decay_saves_time(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: L2 regularisation makes training shorter."""
    return _saves_time(claim, records, "L2", "weight_decay", network="cnn", dropout=0.0)


@register
def lstm_saves_time(claim: Claim, records: pd.DataFrame, resources: pd.DataFrame | None = None) -> Verdict:
    """Abstract: the LSTM makes training shorter."""
    return _saves_time(claim, records, "the LSTM", network=PAPER_NETWORK, dropout=0.0, weight_decay=0.0)

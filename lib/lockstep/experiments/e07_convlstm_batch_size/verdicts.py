"""Verdicts on the accuracy of the CNN and the ConvLSTM, over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import highest
from lockstep.analysis.learning_rules import BY_DESIGN, gained, within_points
from lockstep.analysis.rules import above, enough, graded, with_seconds
from lockstep.analysis.seeds import ABLATION, LEARNING, MARGIN, PAIRED, SELECTED, diverged, paired_points, same_but, way
from lockstep.analysis.sentences import as_share
from lockstep.analysis.statistics import Estimate, mean_of, select
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import (
    MEASURED,
    NEEDS_HARDWARE,
    NOT_YET,
    Claim,
    NotNow,
    Verdict,
    Verdicts,
    any_of,
    join,
    ran,
    settle,
)
from lockstep.experiments.e07_convlstm_batch_size.answer import CALLED
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import PARALLEL, setting_text
from lockstep.experiments.e07_convlstm_batch_size.tables.choice import choice_table
from lockstep.experiments.fixed_batch import PLAIN_BATCH

RULES = Verdicts()

BATCH, EPOCHS = PLAIN_BATCH, 10
"""Table 2's: the only settings that the paper states."""
PAPER_NETWORK = "convlstm"
ALGORITHM_1: Mapping[str, str] = {
    "algorithm_1": "Algorithm 1, mean of weights",
    "algorithm_1_best": "Algorithm 1, weights of the lowest loss",
    "algorithm_1_epochwise": "Algorithm 1, once per epoch",
}
"""What the server may make of its workers' weights: the paper does not give its function."""
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
    found = mean_of(100 * rows.loc[rows["status"] == "ok", "test_accuracy"].dropna())
    enough(found.rounds)
    return found


def _highest(records: pd.DataFrame, found: list[Cell]) -> tuple[Cell, Estimate, str]:
    """The cell with the highest mean test accuracy, the highest mean (%) with an interval that pays for the choice, and
    of how many: those that diverged have none."""
    kept = [cell for cell in found if not diverged(select(records, cell, status=None))] or found[:1]
    means = [_seeds(records, cell) for cell in kept]
    best = kept[max(range(len(kept)), key=lambda place: means[place].value)]
    lost = len(found) - len(kept)
    return best, highest(means), f"{len(found)} ({lost} diverged)" if lost else str(len(found))


def _plain(records: pd.DataFrame, use_case: str, way_of: str, **more: Any) -> list[Cell]:
    """The paper's own settings but for the batch size: no linear rule, EPOCHS epochs."""
    found = found_cells(
        records, LEARNING, f"{way_of} training of {use_case}", use_case=use_case, network=PAPER_NETWORK, way=way_of,
        framework="torch", learning_rate_rule="constant", rate_warmup_epochs=0, updates=0, **more,
    )  # fmt: skip
    whole = [cell for cell in _real(found) if cell["epochs"] == EPOCHS]
    if not whole:
        raise NotNow(NOT_YET, f"trained for {found[0]['epochs']} epochs, not for Table 2's {EPOCHS}")
    return whole


@RULES.add
def data_parallel_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: by data parallelism; with Table 2's settings, for no batch size stands beside it.

    Algorithm 1 averages (or chooses) weights, section 3 exchanges gradients, and no result says which it is of: so one
    of them within MARGIN is enough, and all must be outside it for the contrary.
    """
    use_case, published = str(claim["use_case"]), float(claim["value"])
    parts = [("gradients", settle(partial(_gradients, stored.records, use_case, published)))]
    for strategy, name in ALGORITHM_1.items():
        parts.append((name, settle(partial(_weights, stored.records, use_case, published, strategy))))
    if len({part for _, part in parts}) == 1:  # all lack the same
        return parts[0][1]
    return any_of(parts)


def _gradients(records: pd.DataFrame, use_case: str, published: float) -> Verdict:
    """Synchronous SGD: the parameters of one worker, up to rounding."""
    found = _plain(records, use_case, "data parallel")
    verdict = _at_table2s_batch(records, found, published)
    if len(found) < 2:
        return verdict
    best, most, among = _highest(records, found)
    size = best["global_batch_size"]
    beside = f"of {among} batch sizes the highest mean is {as_share(most)} % at {size}, chosen on the test split"
    return replace(verdict, reason=f"{verdict.reason}; {beside}")


def _weights(records: pd.DataFrame, use_case: str, published: float, strategy: str) -> Verdict:
    """Algorithm 1, whose server makes one set of weights of its workers'."""
    found = _plain(records, use_case, "weights averaged", strategy=strategy)
    return _at_table2s_batch(records, found, published)


def _at_table2s_batch(records: pd.DataFrame, found: list[Cell], published: float) -> Verdict:
    stated = [cell for cell in found if cell["global_batch_size"] == BATCH]
    if not stated:
        raise NotNow(NOT_YET, f"not trained with Table 2's batch of {BATCH}")
    mean = _seeds(records, stated[0])
    found_here = within_points(published, mean, f"{mean} % {_what_was_trained(BATCH, mean)}")
    return with_seconds(found_here, records, stated[:1])


@RULES.add
def model_parallel_accuracy(claim: Claim, stored: Stored) -> Verdict:
    """Abstract: the "top" accuracy by model parallelism, so the highest mean over the batch sizes of Figure 6."""
    found = _plain(stored.records, str(claim["use_case"]), "model parallel")
    best, mean, among = _highest(stored.records, found)
    text = f"{mean} % {_what_was_trained(best['global_batch_size'], mean)}"
    verdict = with_seconds(within_points(float(claim["value"]), mean, text), stored.records, found)
    several = f"the highest mean of {among} batch sizes; the interval pays for the choice"
    return replace(verdict, reason=f"{verdict.reason}; {several if len(found) > 1 else 'the only batch'}")


def _what_was_trained(batch: int, mean: Estimate) -> str:
    return f"(ConvLSTM, batch {batch}, {EPOCHS} epochs, mean over {mean.rounds} seeds)"


@RULES.add
def accuracy_over(claim: Claim, stored: Stored) -> Verdict:
    """Whether a distributed ConvLSTM is above a number: with the setting that validation data chose, which is kinder to
    the paper than its own Table 2 and needs no choice on the test split."""
    conditions = {"use_case": claim["use_case"], "network": PAPER_NETWORK}
    found = found_cells(stored.records, SELECTED, f"finalists of {claim['use_case']}", **conditions)
    found = [cell for cell in _real(found) if way(cell) != "sequential"]
    choice = choice_table(stored.records)
    own = choice[(choice["use_case"] == claim["use_case"]) & (choice["network"] == PAPER_NETWORK)]
    chosen = [cell for cell in found if len(own) and setting_text(cell) == own["chosen"].iloc[0]]
    if not chosen:
        raise NotNow(NOT_YET, "the setting that validation data chose is no distributed finalist")
    mean, limit = _seeds(stored.records, chosen[0]), float(claim["value"])
    verdict = above(mean, limit, limit, f"% ({setting_text(chosen[0])}, {way(chosen[0])})", f"{limit:g} %")
    verdict = with_seconds(verdict, stored.records, chosen[:1])
    reason = f"{verdict.reason}; the setting was chosen on validation data"
    return replace(verdict, reason=reason, numbers=(("", mean),))


@RULES.add
def data_parallel_more_accurate(claim: Claim, stored: Stored) -> Verdict:
    """Data parallel minus sequential training, paired by seed: is there a gain, or none that exceeds MARGIN?"""
    found = _real(
        found_cells(stored.records, PAIRED, "paired training", use_case=claim["use_case"], way="data parallel")
    )
    parts = []
    for cell in found:
        name = f"{cell['network']}, {cell['workers']} workers"
        parts.append((name, settle(partial(_more_accurate, stored.records, cell))))
    return graded(join(parts), MEASURED, BY_DESIGN)


def _more_accurate(records: pd.DataFrame, cell: Cell) -> Verdict:
    base = same_but(cell, *PARALLEL, strategy="sequential")
    points = paired_points(records, cell, base)
    return with_seconds(gained(points, f"{points} points over sequential training"), records, (cell, base))


@RULES.add
def lstm_as_accurate(claim: Claim, stored: Stored) -> Verdict:
    """ConvLSTM minus CNN, paired by seed, with Table 2's settings: not below by more than MARGIN points?"""
    found: list[Cell] = []
    rows = stored.records[stored.records["experiment"] == LEARNING] if len(stored.records) else stored.records
    ways = {way(cell) for cell, _ in cells(rows)} if len(rows) else set()
    for way_of in ("data parallel", "model parallel", "sequential"):
        if way_of in ways:
            found = _plain(stored.records, str(claim["use_case"]), way_of)
            found = [cell for cell in found if cell["global_batch_size"] == BATCH]
            break
    if not found:
        raise NotNow(NOT_YET, f"no ConvLSTM was trained with Table 2's batch of {BATCH}")
    cnn = same_but(found[0], network="cnn")
    points = paired_points(stored.records, found[0], cnn)
    enough(points.rounds)
    verdict = above(points, -MARGIN, -MARGIN, f"points over the CNN, {way(found[0])}", f"-{MARGIN:g} points")
    return with_seconds(verdict, stored.records, (found[0], cnn))


@RULES.add
def dropout_lessens_gap(claim: Claim, stored: Stored) -> Verdict:
    """Train minus test accuracy with the most dropout that was tried, minus that without, of each network: below 0?"""
    found = _real(found_cells(stored.records, ABLATION, "the ablation", use_case=claim["use_case"], pooling="max"))
    most = max(cell["dropout"] for cell in found)
    if not most:
        raise NotNow(NOT_YET, "nothing was trained with dropout")
    gaps = stored.records.assign(gap=stored.records["test_accuracy"] - stored.records["train_accuracy"])
    parts = []
    for cell in (cell for cell in found if cell["dropout"] == most):
        base = same_but(cell, dropout=0.0)
        points = paired_points(gaps, cell, base, "gap")
        enough(points.rounds)
        less = above(points, 0.0, 0.0, f"points less between train and test accuracy, with dropout {most:g}", "0")
        parts.append((CALLED[cell["network"]], with_seconds(less, gaps, (cell, base))))
    return join(parts)

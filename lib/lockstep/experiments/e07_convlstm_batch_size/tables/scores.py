"""Honest accuracy, from every image's score: areas under curves first, thresholds set on validation, patients apart.

Only settings that were fixed beforehand are scored so (`score_cells`), and nothing here chooses by a test image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells, outcome
from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.image_draws import PatientDraws
from lockstep.analysis.image_scores import (
    TEST,
    VALIDATION,
    DecisionRule,
    Flags,
    Numbers,
    SplitScores,
    accuracies,
    areas,
    balanced_accuracies,
    best_balanced_accuracies,
    recalls,
    scores_of_cell,
    shares_of,
)
from lockstep.analysis.published import read_table
from lockstep.analysis.seeds import diverged, mean_columns
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e07_convlstm_batch_size.score_cells import SCORES
from lockstep.experiments.e07_convlstm_batch_size.tables.accuracy import setting_text

CALLED = {"cnn": "the CNN", "convlstm": "the ConvLSTM", "convlstm2d": "the ConvLSTM2D"}
AS_TRAINED, OF_VALIDATION, CORRECTED = "as trained", "threshold of validation", "corrected for expected shares"
SHARED, OTHERS = "number also in training", "other numbers"
_EXPECTED = {"Pneumonia": ("kermany", "classes")}
"""By use case the published table of how many images of each class its test split should have."""


Trained = tuple[str, str, str]
"""Use case, where the images are from, and setting."""


@dataclass(frozen=True, eq=False)
class ScoredNetwork:
    """A cell whose images' scores are stored, on the same test images by networks of several seeds."""

    cell: dict[str, Any]
    validation: SplitScores
    test: SplitScores
    validation_loss: float  # mean over seeds

    @property
    def setting(self) -> str:
        return setting_text(self.cell)

    @property
    def trained(self) -> Trained:
        """What is trained alike by several networks."""
        return str(self.cell["use_case"]), str(self.cell["data_source"]), self.setting

    @property
    def briefly(self) -> str:
        """Network and setting, without the batch and the course of the learning rate."""
        parts = [part for part in self.setting.split(", ") if not part.startswith(("batch", "learning rate"))]
        return f"{CALLED[self.cell['network']]} ({', '.join(parts)})"

    @cached_property
    def draws(self) -> PatientDraws:
        return PatientDraws.of(self.test)

    @cached_property
    def rules(self) -> dict[str, DecisionRule]:
        """By name, the network's own threshold and those that validation sets."""
        found = {
            AS_TRAINED: DecisionRule.of_network(len(self.test.seeds)),
            OF_VALIDATION: DecisionRule.fitted(self.validation, shares_of(self.validation.labels)),
        }
        shares = expected_shares(str(self.cell["use_case"]))
        return found | ({CORRECTED: DecisionRule.fitted(self.validation, shares)} if shares else {})

    @property
    def area(self) -> Estimate:
        return self.draws.estimate(partial(areas, self.test))

    def balanced(self, rule: str) -> Estimate:
        """Balanced accuracy (%) by one of `rules`."""
        return self.draws.estimate(lambda weights: balanced_accuracies(self.test, self.rules[rule], weights), 100)

    def accuracy(self, rule: str) -> Estimate:
        """Accuracy (%) by one of `rules`."""
        return self.draws.estimate(lambda weights: accuracies(self.test, self.rules[rule], weights), 100)

    def recall(self, rule: str, label: int, split: str = TEST) -> Estimate:
        """Recall (%) of class 0 or 1 by one of `rules`, of test or of held-out images."""
        own, draws = self.test, self.draws
        if split == VALIDATION:
            own, draws = self.validation, PatientDraws.of(self.validation)
        return draws.estimate(lambda weights: recalls(own, self.rules[rule], label, weights), 100)

    @property
    def at_best(self) -> float:
        """The balanced accuracy (%) of each seed's best threshold for the test images, chosen on these: a bound, which
        no threshold reaches that was set elsewhere."""
        return 100 * float(best_balanced_accuracies(self.test).mean())


def expected_shares(use_case: str) -> tuple[float, float] | None:
    """The shares of classes 0 and 1 that are expected in the test split, as its source publishes them, in the order of
    the classes' names; None where nothing is published. What is counted in the test folder is not looked at."""
    if use_case not in _EXPECTED:
        return None
    counts = _published(use_case)["images"]
    return float(counts.iloc[0] / counts.sum()), float(counts.iloc[1] / counts.sum())


def class_names(use_case: str) -> tuple[str, str]:
    """The names of classes 0 and 1, where they are published."""
    if use_case not in _EXPECTED:
        return "class 0", "class 1"
    first, second = _published(use_case)["class"]
    return str(first), str(second)


def _published(use_case: str) -> pd.DataFrame:
    table = read_table(*_EXPECTED[use_case])
    return table[table["split"] == "test"].sort_values("class")


@once
def scored_networks(stored: Stored) -> list[ScoredNetwork]:
    """Every cell of SCORES that has scores of all seeds on both splits, in the order of the records."""
    return [network for _, _, network, _ in _each(stored) if network is not None]


def _each(stored: Stored) -> Iterator[tuple[dict[str, Any], pd.DataFrame, ScoredNetwork | None, str]]:
    """Each cell, its rows, what was scored, and in its place why nothing was."""
    for cell, rows in cells(stored.records, SCORES):
        ok = rows[rows["status"] == "ok"]
        if lost := diverged(rows):
            yield cell, rows, None, f"{lost} of {len(rows)} seeds diverged: there is no mean over all of them"
            continue
        try:
            splits = scores_of_cell(stored.records, stored.table("scores"), ok)
        except AnalysisError as error:
            yield cell, rows, None, str(error)
            continue
        if {VALIDATION, TEST} - set(splits):
            yield cell, rows, None, outcome(rows)[1] or "no image's score is stored"
            continue
        loss = float(ok["validation_loss"].astype(float).mean())
        yield cell, rows, ScoredNetwork(cell, splits[VALIDATION], splits[TEST], loss), ""


def best_by_validation(stored: Stored, use_case: str) -> ScoredNetwork | None:
    """The scored network with the lowest mean cross-entropy on held-out images, of those with MIN_ROUNDS seeds; None
    where there is none."""
    own = [each for each in scored_networks(stored) if each.cell["use_case"] == use_case]
    own = [each for each in own if len(each.test.seeds) >= MIN_ROUNDS]
    return min(own, key=lambda each: each.validation_loss, default=None)


@once
def score_table(stored: Stored) -> pd.DataFrame:
    """A row per scored network and rule: auc (0-1, the same for every rule), balanced and accuracy (%), each with its
    interval over seeds and patients; recall_0 and recall_1 (%, of the classes in the order of their names); at_best
    (%, a bound: `ScoredNetwork.at_best`); seeds, images and patients of the test split, each image whose name tells no
    patient counted as one."""
    rows = []
    for cell, _, network, reason in _each(stored):
        told = {name: cell[name] for name in ("use_case", "data_source", "network")}
        told |= {"setting": setting_text(cell)}
        if network is None:
            rows.append(told | {"status": "failed", "reason": reason})
            continue
        counted: dict[str, Any] = {"seeds": len(network.test.seeds), "images": len(network.test.labels)}
        counted |= {"patients": len(set(network.test.groups.tolist())), "status": "ok", "reason": ""}
        area = mean_columns(network.area, "auc") | {"at_best": network.at_best}
        for rule in network.rules:
            measured = {"rule": rule, **area, **mean_columns(network.balanced(rule), "balanced")}
            measured |= mean_columns(network.accuracy(rule), "accuracy")
            measured |= {f"recall_{label}": network.recall(rule, label).value for label in (0, 1)}
            rows.append(told | measured | counted)
    return pd.DataFrame(rows)


@once
def patient_table(stored: Stored) -> pd.DataFrame:
    """Test images of class 1 whose patient number also occurs in the training folder, apart from the others: a row for
    each of both, with images, recall (%) as trained and its interval, auc beside all images of class 0, and `more`: the
    recall of SHARED minus that of OTHERS in points. Of class 0, which may share none, nothing is told."""
    rows: list[dict[str, Any]] = []
    for network in scored_networks(stored):
        rows += _apart(network) if (network.test.shared & (network.test.labels == 1)).any() else []
    return pd.DataFrame(rows)


def _apart(network: ScoredNetwork) -> Iterator[dict[str, Any]]:
    test = network.test

    def recall(kept: Flags, weights: Numbers | None) -> Numbers:
        return recalls(test, network.rules[AS_TRAINED], 1, weights, kept)

    more = network.draws.estimate(lambda weights: recall(test.shared, weights) - recall(~test.shared, weights), 100)
    told = {name: network.cell[name] for name in ("use_case", "network")} | {"setting": network.setting}
    for name, kept in ((SHARED, test.shared), (OTHERS, ~test.shared)):
        row = told | {"patients": name, "images": int((kept & (test.labels == 1)).sum()), "rounds": len(test.seeds)}
        row |= mean_columns(network.draws.estimate(partial(recall, kept), 100), "recall")
        row |= mean_columns(network.draws.estimate(partial(areas, test, kept=kept)), "auc")
        yield row | mean_columns(more if name == SHARED else None, "more")


def lstm_areas(stored: Stored) -> dict[Trained, Estimate]:
    """By what was trained, the ConvLSTM's area under the curve minus the CNN's (0-1), on the same seeds and draws of
    patients; without settings of which both have fewer than MIN_ROUNDS seeds in common. Others of their seeds are left
    out."""
    networks = {(each.trained, each.cell["network"]): each for each in scored_networks(stored)}
    found = {}
    for (trained, name), with_lstm in networks.items():
        plain = networks.get((trained, "cnn"))
        if name != "convlstm" or plain is None:
            continue
        above, below = with_lstm.test.of_seeds(plain.test.seeds), plain.test.of_seeds(with_lstm.test.seeds)
        if len(above.seeds) >= MIN_ROUNDS:
            found[trained] = PatientDraws.of(above).estimate(partial(_more_area, above, below))
    return found


def _more_area(above: SplitScores, below: SplitScores, weights: Numbers | None) -> Numbers:
    return areas(above, weights) - areas(below, weights)


def _shown_scores(stored: Stored) -> pd.DataFrame:
    ends = [f"{name}{end}" for name in ("auc", "balanced", "accuracy") for end in ("", "_low", "_high")]
    cell = ["use_case", "network", "setting", "rule"]
    columns = [*cell, *ends, "recall_0", "recall_1", "at_best", "seeds", "images", "patients", "reason"]
    return score_table(stored).reindex(columns=columns).round(3)


SCORE_TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "scores": _shown_scores,
    "patients": lambda stored: patient_table(stored).round(3),
}

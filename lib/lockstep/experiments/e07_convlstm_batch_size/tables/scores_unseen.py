"""Records as whoever chooses a setting may see them: without what the candidates came to on test images.

Cells of candidates open no test image any more (`scored_on="held_out"`). Older records hold their test scores, from
which everything that chooses, or shows candidates, is kept here. Training is the same in both, so they are one cell.
"""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.cells import CELL
from lockstep.analysis.seeds import CANDIDATES

_TEST = ("test_accuracy", "test_balanced_accuracy", "test_auc", "test_loss", "train_accuracy")
"""The last belongs to the generalization gap, which is known only with a test score."""


def without_test_scores(records: pd.DataFrame) -> pd.DataFrame:
    """The records, those of candidates without test scores and as scored on held-out images alone; of a seed that was
    trained with and without them the later row, of those that are ok if one is."""
    own = records["experiment"] == CANDIDATES
    hidden = {name: records[name].mask(own) for name in _TEST}
    seen = records.assign(**hidden, scored_on=records["scored_on"].mask(own, "held_out"))
    ordered = seen.assign(_ok=seen["status"] == "ok").sort_values("_ok", kind="stable")
    again = ordered.duplicated([*CELL, "seed"], keep="last").reindex(seen.index)
    return seen[~(own & again)]


def without_test_images(confusion: pd.DataFrame) -> pd.DataFrame:
    """The table `confusion` without the candidates' rows of the test split."""
    if confusion.empty:
        return confusion
    return confusion[(confusion["experiment"] != CANDIDATES) | (confusion["split"] != "test")]

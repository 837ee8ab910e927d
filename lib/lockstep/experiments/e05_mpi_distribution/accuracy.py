"""What a compressed gradient costs in accuracy: the same network, data and seeds without compression beside it."""

from __future__ import annotations

import pandas as pd

from lockstep.analysis.cells import cells, median_of, outcome
from lockstep.analysis.seeds import PAIRED, mean_columns, mean_or_none, paired_points, percent_columns, same_but, scored
from lockstep.analysis.statistics import AnalysisError

WHOLE = "allreduce"
_OF_CODECS = ("compression", "density", "bucket")


def accuracy_table(records: pd.DataFrame) -> pd.DataFrame:
    """A row per way of sending gradients: test accuracy (%), its points over uncompressed ones with equal seeds, both
    with 95 % intervals, and the bytes that a rank sends per step."""
    table = []
    for cell, rows in cells(records, PAIRED):
        status, reason = outcome(rows)
        row = {name: cell[name] for name in ("use_case", "strategy", "density", "epochs", "images")}
        row |= percent_columns(mean_or_none(scored(rows)["test_accuracy"]), "accuracy")
        points = None
        if cell["strategy"] != WHOLE:
            try:
                points = paired_points(records, cell, same_but(cell, *_OF_CODECS, strategy=WHOLE))
            except AnalysisError as error:
                reason = reason or str(error)
        row |= mean_columns(points, "points") | {"seeds": points.rounds if points else len(rows)}
        table.append(row | {"bytes_sent": median_of(rows, "bytes_sent"), "status": status, "reason": reason})
    return pd.DataFrame(table)

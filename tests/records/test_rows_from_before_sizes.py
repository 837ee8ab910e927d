"""What was stored before networks had sizes and heads of their own reads as what was trained then."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lockstep.engine.job import OF_SIZES, Job
from lockstep.records import ADDED, read_records, read_traced_table

DEFAULTS = {"lstm_units": 0, "dense_units": 0, "convolutions": 0, "head": "default"}


def test_their_columns_stand_behind_those_of_all_records(root: Path) -> None:
    assert tuple(DEFAULTS) == OF_SIZES and set(OF_SIZES) <= set(ADDED)
    frame = read_records(root / "results" / "reference" / "07_convlstm_batch_size")
    frame = frame[frame["experiment"] != "heads"]  # measured since, with heads of their own
    assert len(frame) and all((frame[name] == value).all() for name, value in DEFAULTS.items())
    assert {name: getattr(Job(), name) for name in OF_SIZES} == DEFAULTS


def test_a_traced_table_that_has_got_the_columns_since(tmp_path: Path) -> None:
    """The rows before are those of the same cell as rows with the defaults, not of one with empty fields."""
    rows = [{"experiment": "learning", "round": 0, "split": "test", "count": 3.0}]
    later = {**rows[0], "round": 1, "lstm_units": 64, "head": "dense"}
    pd.DataFrame([*rows, later]).to_csv(tmp_path / "confusion.csv", index=False)
    table = read_traced_table(tmp_path, "confusion")
    assert table is not None
    assert table["lstm_units"].tolist() == [0, 64] and table["head"].tolist() == ["default", "dense"]
    assert table["lstm_units"].dtype == int and "dense_units" not in table

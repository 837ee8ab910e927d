"""What is computed of stored records is computed once, while they are there."""

from __future__ import annotations

import gc
import weakref

import pandas as pd

from fake_records import records
from lockstep.analysis import sentences
from lockstep.analysis.stored import Stored, once


def test_a_table_is_made_once_of_each_records_and_arguments_and_is_the_readers_own() -> None:
    asked = []

    @once
    def doubled(records: pd.DataFrame, times: int = 2) -> pd.DataFrame:
        asked.append(times)
        return records * times

    records = pd.DataFrame({"value": [1, 2]})
    first = doubled(records)
    first["more"] = 0
    assert list(doubled(records)["value"]) == [2, 4] and "more" not in doubled(records)
    assert list(doubled(records, 3)["value"]) == [3, 6] and list(doubled(records, times=4)["value"]) == [4, 8]
    assert list(doubled(records.copy())["value"]) == [2, 4]
    assert asked == [2, 3, 4, 2]


def test_records_that_nobody_holds_any_more_are_let_go() -> None:
    counted = once(lambda records: len(records))
    records = pd.DataFrame({"value": [1, 2]})
    assert counted(records) == 2
    seen = weakref.ref(records)
    del records
    gc.collect()
    assert seen() is None
    assert counted(pd.DataFrame({"value": [1, 2, 3]})) == 3, "not what stood at the same place in memory"


def test_a_finding_is_made_once() -> None:
    """A figure's title, its text and the overview ask for the same finding: 05 made its tables twenty times."""
    asked = []

    @sentences.finding
    def told(stored: Stored) -> str:
        asked.append(stored)
        return f"It is {len(stored.records)}."

    stored = Stored(records(1))
    assert told(stored) == told(stored) == f"It is {len(stored.records)}."
    assert len(asked) == 1

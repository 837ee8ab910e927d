"""What so many minutes give is counted from records, and nothing that was disturbed counts for more than its time."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lockstep.engine.job import Job
from lockstep.experiments.minutes import minutes_table, minutes_until_known
from lockstep.records import COLUMNS, CONTENDED, make_row
from lockstep.records.places import repository_root

PAIR = (Job.of("sequential"), Job.of("threads", workers=2))


def records(rounds: int, disturbed: tuple[int, ...] = (), cells: tuple[Job, ...] = PAIR) -> pd.DataFrame:
    """Rounds of a minute each."""
    rows = []
    for number in range(rounds):
        note = CONTENDED if number in disturbed else ""
        seconds = {"images_per_second": 10.0, "measuring_seconds": 60.0 / len(cells)}
        rows += [make_row(job.with_(round=number), seconds, reason=note) for job in cells]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def test_a_pair_is_known_when_its_fifth_quiet_round_has_ended() -> None:
    known, spent = minutes_until_known(records(8))
    assert list(known.values()) == [5.0] and spent == 8.0
    known, _ = minutes_until_known(records(8, disturbed=(0, 3)))
    assert list(known.values()) == [7.0]


def test_too_few_rounds_are_never_enough_and_those_of_all_sessions_count() -> None:
    """Bug: no pair of notebook 07 was said to have an interval, for each has its rounds in several sessions."""
    assert list(minutes_until_known(records(4))[0].values()) == [float("inf")]
    frame = records(6)
    frame["session"] = (frame["round"] >= 3).astype(int)
    assert list(minutes_until_known(frame)[0].values()) == [5.0]


def test_a_round_of_the_whole_grid_counts_for_its_pairs_and_everything_counts_as_time() -> None:
    """Bug: the minutes were those of the pairs alone, without seeds, traces, and rounds of more than two cells."""
    whole = records(5, cells=(*PAIR, Job.of("sequential", experiment="learning", epochs=1)))
    whole["round"] += 4
    traces = records(12)[lambda rows: rows["round"] > 9]
    known, spent = minutes_until_known(pd.concat([records(4), whole]), traces)
    assert list(known.values()) == [5.0], "the first whole round was the fifth"
    assert spent == pytest.approx(11.0)


def test_cells_that_stood_alone_are_no_pair() -> None:
    assert minutes_until_known(records(8, cells=PAIR[:1])) == ({}, 8.0)


@pytest.mark.slow
def test_the_readmes_table_is_of_the_stored_records(tmp_path: Path) -> None:
    text = minutes_table(repository_root() / "results" / "reference")
    assert "| 02 |" in text and "10 minutes" in text
    assert minutes_table(tmp_path) == "Nothing is stored yet.\n"

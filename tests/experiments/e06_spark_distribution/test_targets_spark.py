"""The bars of Spark: each reads its own cells, can be missed, and says why where there is no number."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from lockstep.targets import TARGETS, TOO_FEW, target_table

from fake_distribution import not_run, scaled, without
from fake_spark import NO_JAVA, records
from lockstep.analysis.verdicts import NOT_MEASURABLE, NOT_YET

SPARK = "06_spark_distribution"
BARRIER = "Spark's barrier mode over MPI, all-reduce, 2 workers"
SHARED = "the same with shared memory in Spark's ranks"
WINDOWS = "SparkNet: exchanging every tau steps over every step, 2 workers"
WRITE = "images per second from files to Parquet"
READ = "images per second from Parquet to decoded images"
CELLS: dict[str, dict[str, Any]] = {
    BARRIER: {"experiment": "speedup", "strategy": "spark_allreduce"},
    SHARED: {"experiment": "speedup", "strategy": "spark_shared_memory"},
    WINDOWS: {"experiment": "speedup", "strategy": "sparknet_tau"},
    WRITE: {"experiment": "preparation", "strategy": "parquet_write"},
    READ: {"experiment": "preparation", "strategy": "parquet_read"},
}


def bars(frame: pd.DataFrame) -> dict[str, Any]:
    return {row["target"]: row for _, row in target_table(frame, SPARK).iterrows()}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def test_the_bars_of_spark_are_those_of_the_issue() -> None:
    bars = [(target.aim, target.bar) for target in TARGETS[SPARK]]
    assert bars == [("≥", 0.9), ("≥", 0.9), ("≥", 3.0), ("≥", 300), ("≥", 300)]


def test_every_bar_of_spark_reads_its_own_cells(frame: pd.DataFrame) -> None:
    found = bars(frame)
    expected = {BARRIER: 1.75 / 1.8, SHARED: 1.77 / 1.8, WINDOWS: 1.7 / 0.55, WRITE: 332.0, READ: 312.0}
    assert {name: row["ratio"] for name, row in found.items()} == pytest.approx(expected)
    assert {name: row["reached"] for name, row in found.items()} == dict.fromkeys(expected, "yes")


@pytest.mark.parametrize("name", CELLS)
def test_every_bar_of_spark_can_be_missed(frame: pd.DataFrame, name: str) -> None:
    found = bars(scaled(frame, "images_per_second", 0.9, **CELLS[name]))
    assert {bar for bar, row in found.items() if row["reached"] == "no"} == {name}


@pytest.mark.parametrize("name", CELLS)
def test_a_bar_of_spark_says_why_it_has_no_number(frame: pd.DataFrame, name: str) -> None:
    row = bars(not_run(frame, "skipped", NO_JAVA, **CELLS[name]))[name]
    assert (row["reached"], row["reason"]) == (NOT_MEASURABLE, NO_JAVA) and pd.isna(row["ratio"])
    row = bars(not_run(frame, "failed", "executor 1 was lost", **CELLS[name]))[name]
    assert (row["reached"], row["reason"]) == (NOT_YET, "executor 1 was lost")
    assert bars(without(frame, **CELLS[name]))[name]["reached"] == NOT_YET


def test_too_few_rounds_reach_nothing() -> None:
    assert {row["reached"] for row in bars(records(rounds=4)).values()} == {TOO_FEW}

"""What notebook 06 aims at: each target reads its own cells, can be missed, and says why where there is no number."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import not_run, scaled, without
from fake_spark import NO_JAVA, records
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import TOO_FEW, target_table
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET
from lockstep.experiments.e06_spark_distribution.targets import TARGETS

BARRIER = "Spark's barrier mode over MPI, all-reduce, 2 workers"
SHARED = "the same with shared memory in Spark's ranks"
WINDOWS = "SparkNet: exchanging every tau steps over every step, 2 workers, the 50x50 network"
WRITE = "images per second from files to Parquet"
READ = "images per second from Parquet to decoded images"
CELLS: dict[str, dict[str, Any]] = {
    BARRIER: {"experiment": "speedup", "strategy": "spark_allreduce"},
    SHARED: {"experiment": "speedup", "strategy": "spark_shared_memory"},
    WINDOWS: {"experiment": "few", "strategy": "sparknet_tau"},
    WRITE: {"experiment": "preparation", "strategy": "parquet_write"},
    READ: {"experiment": "preparation", "strategy": "parquet_read"},
}


def found(frame: pd.DataFrame) -> dict[str, Any]:
    return {row["target"]: row for _, row in target_table(TARGETS, Stored(frame)).iterrows()}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def test_the_targets_are_those_that_were_set() -> None:
    aims = [(target.aim, target.threshold) for target in TARGETS]
    assert aims == [("≥", 0.9), ("≥", 0.9), ("≥", 3.0), ("≥", 300), ("≥", 300)]


def test_every_target_reads_its_own_cells(frame: pd.DataFrame) -> None:
    rows = found(frame)
    expected = {BARRIER: 1.75 / 1.8, SHARED: 1.77 / 1.8, WINDOWS: 4.0, WRITE: 340.0, READ: 330.0}
    assert {name: row["ratio"] for name, row in rows.items()} == pytest.approx(expected, rel=0.03)
    assert {name: row["reached"] for name, row in rows.items()} == dict.fromkeys(expected, "yes")


@pytest.mark.parametrize("name", CELLS)
def test_every_target_can_be_missed(frame: pd.DataFrame, name: str) -> None:
    rows = found(scaled(frame, "images_per_second", 0.7 if name == WINDOWS else 0.85, **CELLS[name]))
    assert {target for target, row in rows.items() if row["reached"] == "no"} == {name}


@pytest.mark.parametrize("name", CELLS)
def test_a_target_says_why_it_has_no_number(frame: pd.DataFrame, name: str) -> None:
    row = found(not_run(frame, "skipped", NO_JAVA, **CELLS[name]))[name]
    assert (row["reached"], row["reason"]) == (NEEDS_HARDWARE, NO_JAVA) and pd.isna(row["ratio"])
    row = found(not_run(frame, "failed", "executor 1 was lost", **CELLS[name]))[name]
    assert (row["reached"], row["reason"]) == (NOT_YET, "executor 1 was lost")
    assert found(without(frame, **CELLS[name]))[name]["reached"] == NOT_YET


def test_too_few_rounds_reach_nothing() -> None:
    assert {row["reached"] for row in found(records(rounds=4)).values()} == {TOO_FEW}

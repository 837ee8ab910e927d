"""The targets of pipelines: each reads its own cells, can be missed, and says why where there is no number."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import not_run, scaled, without
from fake_pipelines import ERROR, IMBALANCE, PEAK, SPEEDUP, layers, records, tables
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import TOO_FEW
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET
from lockstep.experiments.e03_pipelined_model_parallelism.targets import TARGETS
from lockstep.experiments.report import targets_table
from read_targets import ReadTargets

NAIVE, IDEAL, PREDICTED, CUT, SIMPLE, MEMORY = (target.name for target in TARGETS)
Tables = dict[str, pd.DataFrame]


def found(frame: pd.DataFrame, traced: Tables) -> ReadTargets:
    return ReadTargets(TARGETS, Stored(frame, traced))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


@pytest.fixture(scope="module")
def traced() -> Tables:
    return tables()


@pytest.mark.slow
def test_the_targets_are_those_of_the_issue(frame: pd.DataFrame, traced: Tables) -> None:
    aims = [(target.aim, target.threshold) for target in TARGETS]
    assert aims == [("≥", 1.5), ("≥", 0.85), ("1 ±", 0.1), ("≤", 1.1), ("≤", 1.0), ("≤", 1.0)]
    shown = targets_table(TARGETS, Stored(frame, traced))
    assert shown["aim"].tolist() == ["≥ 1.5", "≥ 0.85", "1 ± 0.1", "≤ 1.1", "≤ 1", "≤ 1"]


@pytest.mark.slow
def test_every_target_reads_its_own_cells(frame: pd.DataFrame, traced: Tables) -> None:
    rows = found(frame, traced).whole()
    gain = SPEEDUP["1f1b"] / SPEEDUP["naive_pipeline"]
    expected = {
        NAIVE: gain, IDEAL: gain / (2 * 8 / 9 / IMBALANCE), PREDICTED: 1 / ERROR["zero_bubble"], CUT: 1.0,
        SIMPLE: 2 / 3, MEMORY: PEAK,
    }  # fmt: skip
    assert {name: row["ratio"] for name, row in rows.items()} == pytest.approx(expected)
    assert {name: row["reached"] for name, row in rows.items()} == dict.fromkeys(expected, "yes")
    best = "the fastest of 2 schedules: 1f1b, 8 micro-batches, batch 256, images decoded meanwhile"
    assert rows[NAIVE]["reason"] == best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "measure", "factor", "rows"),
    [
        (NAIVE, "images_per_second", 1.2, {"experiment": "speedup", "strategy": "naive_pipeline"}),
        (IDEAL, "step_seconds", 0.7, {"experiment": "speedup", "strategy": "naive_pipeline"}),
        (PREDICTED, "step_seconds", 1.1, {"experiment": "schedules", "strategy": "gpipe", "micro_batches": 4}),
        (PREDICTED, "step_seconds", 0.8, {"experiment": "schedules", "strategy": "gpipe", "micro_batches": 4}),
    ],
)
def test_a_target_of_records_can_be_missed(
    frame: pd.DataFrame, traced: Tables, name: str, measure: str, factor: float, rows: dict[str, Any]
) -> None:
    rows = rows | {"use_case": "SimpleBig", "device": "cpu"}
    assert found(scaled(frame, measure, factor, **rows), traced)[name]["reached"] == "no"


def test_a_target_of_tables_can_be_missed(frame: pd.DataFrame, traced: Tables) -> None:
    stages = traced["stages"]
    own = (stages["experiment"] == "stage_memory") & (stages["stages"] == 4) & (stages["rank"] == 2)
    full = stages.assign(peak_bytes=stages["peak_bytes"].where(~own, stages["peak_bytes"] * 1.2))
    row = found(frame, traced | {"stages": full})[MEMORY]
    assert row["reached"] == "no" and row["ratio"] == pytest.approx(1.2 * PEAK)
    assert "rank 2, SimpleBig, 1f1b, 4 micro-batches, 4 stages" in row["reason"]
    rows = found(frame, traced | {"layers": layers(slow=5.0)})
    assert rows[CUT]["reached"] == "no", "with other layers the same cuts are bad"
    worse = stages.copy()
    balanced = (worse["partition"] == "balanced") & (worse["stages"] == 2) & (worse["experiment"] == "schedules")
    for stage, (first, last) in enumerate(((0, 5), (6, 7))):
        worse.loc[balanced & (worse["stage"] == stage), ["first_layer", "last_layer"]] = [first, last]
    assert found(frame, traced | {"stages": worse})[SIMPLE]["reached"] == "no"


def test_an_uneven_partition_lowers_the_ideal(frame: pd.DataFrame, traced: Tables) -> None:
    stages = traced["stages"]
    busy = (stages["experiment"] == "speedup") & (stages["rank"] == 0)
    seconds = ["forward_seconds", "backward_seconds"]
    uneven = stages.copy()
    uneven.loc[busy, seconds] *= 1.5
    rows = found(frame, traced | {"stages": uneven})
    assert rows[IDEAL]["ratio"] > found(frame, traced)[IDEAL]["ratio"], "as fast, of a partition that allows less"


def test_the_worst_schedule_is_named_and_those_within_are_counted(frame: pd.DataFrame, traced: Tables) -> None:
    slow = scaled(frame, "step_seconds", 1.2, experiment="schedules", strategy="gpipe", micro_batches=4)
    row = found(slow, traced)[PREDICTED]
    assert row["reason"] == "12 of 13 within; the worst: gpipe, 4 micro-batches"


@pytest.mark.slow
def test_no_prediction_is_no_number(frame: pd.DataFrame, traced: Tables) -> None:
    """The worst could be the one that was not predicted."""
    actions = traced["actions"]
    lost = actions[(actions["strategy"] != "gpipe") | (actions["micro_batches"] != 2)]
    row = found(frame, traced | {"actions": lost})[PREDICTED]
    assert row["reached"] == NOT_YET and row["reason"] == "gpipe, 2 micro-batches: its stages were not timed"


@pytest.mark.parametrize("name", [IDEAL, PREDICTED, CUT, SIMPLE, MEMORY])
def test_without_tables_a_target_has_no_number(frame: pd.DataFrame, name: str) -> None:
    row = found(frame, {})[name]
    assert row["reached"] == NOT_YET and row["reason"] and pd.isna(row["ratio"])


@pytest.mark.parametrize("name", [NAIVE, IDEAL])
def test_what_did_not_run_says_why(frame: pd.DataFrame, traced: Tables, name: str) -> None:
    rows = {"experiment": "speedup", "strategy": "naive_pipeline", "device": "cpu"}
    row = found(not_run(frame, "failed", "rank 1 raised", **rows), traced)[name]
    assert (row["reached"], row["reason"]) == (NOT_YET, "rank 1 raised") and pd.isna(row["ratio"])
    row = found(not_run(frame, "skipped", "no gloo here", **rows), traced)[name]
    assert (row["reached"], row["reason"]) == (NEEDS_HARDWARE, "no gloo here")
    assert found(without(frame, experiment="speedup"), traced)[name]["reached"] == NOT_YET


def test_too_few_rounds_reach_nothing() -> None:
    rows = found(records(rounds=2), tables(rounds=2)).whole()
    assert {row["reached"] for row in rows.values()} == {TOO_FEW}

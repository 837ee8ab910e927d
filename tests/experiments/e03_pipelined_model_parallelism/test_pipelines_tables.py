"""Tables of notebook 03, on made-up records whose bubbles, predictions and cuts are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fake_distribution import not_run, scaled, without
from fake_pipelines import (
    BATCH,
    CUTS,
    ERROR,
    IDLE,
    IMBALANCE,
    LAYERS,
    MICRO_BATCHES,
    NOISE,
    PARAMETERS,
    PEAK,
    SLOWEST,
    SPEEDUP,
    WORKING,
    layers,
    pipelines,
    prediction,
    records,
    seconds_of,
    tables,
)
from lockstep.analysis.stored import no_records
from lockstep.engine.job import CHOICES
from lockstep.engine.pipelines.partition import LayerCost, slowest_stage_seconds
from lockstep.experiments.e03_pipelined_model_parallelism import forecasts, stage_tables
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import TABLE_CELL
from lockstep.experiments.e03_pipelined_model_parallelism.tables import TABLES
from lockstep.predict.layer_costs import layer_costs
from lockstep.predict.pipeline_speedups import NAIVE, ideal_bubble_of, pipeline_speedup_table
from stored_reference import stored_reference

Tables = dict[str, pd.DataFrame]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


@pytest.fixture(scope="module")
def traced() -> Tables:
    return tables()


# --- speed and bubbles ---


def test_speedups_stand_with_how_the_model_is_split(frame: pd.DataFrame) -> None:
    table = pipeline_speedup_table(frame, "speedup")
    own = table[(table["use_case"] == "SimpleBig") & (table["device"] == "cpu")].set_index(["strategy", "variant"])
    for name, gain in SPEEDUP.items():
        assert own.loc[(name, "a"), "speedup"] == pytest.approx(gain), name
    assert own.loc[("1f1b", "a"), ["stages", "micro_batches", "pipeline_ranks", "replicas"]].tolist() == [2, 8, 2, 1]
    assert own.loc[("1f1b", "a"), "bubble"] == pytest.approx(IDLE)
    assert np.isnan(own.loc[("intra_op", "a"), "bubble"]), "no pipeline, no bubble"
    assert set(table[table["device"] == "cuda"]["status"]) == {"skipped"}
    assert pipeline_speedup_table(frame, "nothing").empty


@pytest.mark.parametrize(
    ("schedule", "stages", "per_rank", "count", "bubble"),
    [
        ("naive", 2, 1, 1, 1 / 2),
        ("gpipe", 2, 1, 8, 1 / 9),
        ("1f1b", 4, 1, 4, 3 / 7),
        ("interleaved_1f1b", 4, 2, 4, 1 / 9),
    ],
)
def test_the_ideal_bubble(schedule: str, stages: int, per_rank: int, count: int, bubble: float) -> None:
    cell = {"schedule": schedule, "stages": stages, "stages_per_rank": per_rank, "micro_batches": count}
    assert ideal_bubble_of(cell) == pytest.approx(bubble)


@pytest.mark.parametrize("schedule", ["zero_bubble", "zero_bubble_v", "none"])
def test_where_there_is_no_formula_there_is_no_number(schedule: str) -> None:
    cell = {"schedule": schedule, "stages": 2, "stages_per_rank": 1, "micro_batches": 4}
    assert np.isnan(ideal_bubble_of(cell))


def test_schedules_are_compared_with_the_naive_one(frame: pd.DataFrame) -> None:
    table = pipeline_speedup_table(frame, "schedules", NAIVE)
    naive, *_ = pipelines()
    for job in pipelines():
        if job.experiment != "schedules" or job.variant == "b":
            continue
        own = table[(table["strategy"] == job.strategy) & (table["micro_batches"] == job.micro_batches)]
        row = own[own["variant"] == "a"].iloc[0]
        steps = [prediction(each).step_seconds * ERROR[each.strategy] for each in (naive, job)]
        assert row["speedup"] == pytest.approx(steps[0] / steps[1])
        assert row["bubble"] == pytest.approx(prediction(job).bubble)
    assert len(table) == 2 + 4 * len(MICRO_BATCHES)


def test_a_pipeline_is_held_against_the_ideal_of_its_bubble_and_partition(frame: pd.DataFrame, traced: Tables) -> None:
    cell = {"experiment": "speedup", "use_case": "SimpleBig", "strategy": "1f1b", "device": "cpu", "variant": "a"}
    cell |= {"schedule": "1f1b", "stages": 2, "stages_per_rank": 1, "micro_batches": 8, "workers": 2}
    shared = {"experiment": "speedup", "use_case": "SimpleBig", "device": "cpu"}
    shares = stage_tables.of_ideal(frame, traced["stages"], cell, {**shared, **NAIVE})
    ideal = 2 * (8 / 9) / IMBALANCE
    gain = SPEEDUP["1f1b"] / SPEEDUP["naive_pipeline"]
    assert shares.tolist() == pytest.approx([gain / ideal] * 9)


# --- memory ---


def test_a_rank_holds_its_parameters_and_what_is_in_flight(traced: Tables) -> None:
    table = stage_tables.rank_memory_table(traced["stages"])
    own = table[table["pipeline_ranks"] == 2].drop_duplicates(["strategy", "rank"]).set_index(["strategy", "rank"])
    half = [sum(layer[1] for layer in part) for part in (LAYERS[:4], LAYERS[4:])]
    for rank, in_flight in enumerate((2, 1)):  # 1F1B holds no more than stages from there on
        row = own.loc[("1f1b", rank)]
        assert row["share"] == pytest.approx(half[rank] / PARAMETERS) and row["in_flight"] == in_flight
        bound = 12 * half[rank] + in_flight * 1000 * BATCH / 4
        assert (row["bound_bytes"], row["working_bytes"]) == (bound, WORKING)
        assert row["of_all"] == pytest.approx(PEAK * bound / (bound + WORKING))
    assert own.loc[("gpipe", 0), "in_flight"] == 4, "all of them"
    assert table["ratio"].tolist() == pytest.approx([PEAK] * (2 * 6 + 4))
    assert set(table["experiment"]) == {"stage_memory"}, "elsewhere tensors are not counted"


def test_several_stages_of_a_rank_are_added_up(traced: Tables) -> None:
    table = stage_tables.rank_memory_table(traced["stages"])
    own = table[table["strategy"] == "interleaved_1f1b"].set_index("rank")
    assert own["parameters"].sum() == PARAMETERS and len(own) == 2
    assert own["ratio"].tolist() == pytest.approx([PEAK] * 2), "the peak is of the rank, and counts once"


def test_how_much_larger_a_model_would_fit(traced: Tables) -> None:
    table = stage_tables.largest_table(traced["stages"])
    row = table[table["strategy"] == "naive_pipeline"].iloc[0]
    whole = 12 * PARAMETERS + 2 * 1000 * BATCH
    largest = max(12 * sum(layer[1] for layer in part) + 1000 * BATCH for part in (LAYERS[:4], LAYERS[4:]))
    assert (row["one_device_bytes"], row["largest_rank_bytes"]) == (whole, largest)
    assert row["times"] == pytest.approx(whole / largest)
    assert row["at_least"] == pytest.approx(whole / (PEAK * largest)), "over the fullest rank's peak"


def test_without_a_count_of_memory_there_is_no_ratio(traced: Tables) -> None:
    table = stage_tables.rank_memory_table(traced["stages"].assign(peak_bytes=np.nan))
    assert table["ratio"].isna().all() and set(table["rounds"]) == {0} and table["bound_bytes"].notna().all()
    assert stage_tables.rank_memory_table(pd.DataFrame()).empty and stage_tables.largest_table(pd.DataFrame()).empty


def test_the_diagram_shows_a_cell_per_schedule(traced: Tables) -> None:
    shown = stage_tables.shown_cells(traced["actions"])
    assert set(shown[shown["strategy"] != "naive_pipeline"]["micro_batches"]) == {4}
    assert set(shown["variant"]) == {"a"} and shown["strategy"].nunique() == 5
    assert stage_tables.shown_cells(pd.DataFrame()).empty


# --- predictions ---


def test_a_step_is_predicted_from_its_stages_and_the_order_that_ran(frame: pd.DataFrame, traced: Tables) -> None:
    table = forecasts.prediction_table(frame, traced)
    assert len(table) == len(pipelines()) and set(table["rounds"]) == {9}
    for row, job in zip(table.itertuples(), pipelines(), strict=True):
        assert row.strategy == job.strategy
        if job.activations == "recomputed":
            continue
        off = ERROR[job.strategy] * (NOISE if job.variant == "b" else 1)
        assert row.ratio == pytest.approx(1 / off), "measured is so many times what the stages take"
        expected = prediction(job).step_seconds * 1.2  # the median round is 20 % slower than the first
        assert row.predicted_step_seconds == pytest.approx(expected)
        assert row.predicted_bubble == pytest.approx(prediction(job).bubble)
        assert row.within


def test_a_prediction_far_off_is_not_within(frame: pd.DataFrame, traced: Tables) -> None:
    slow = scaled(frame, "step_seconds", 1.2, experiment="schedules", strategy="gpipe", micro_batches=4)
    table = forecasts.prediction_table(slow, traced, ["schedules"])
    far = table[~table["within"]]
    assert far[["strategy", "micro_batches"]].to_numpy().tolist() == [["gpipe", 4]]


@pytest.mark.slow
def test_a_round_without_times_of_its_stages_takes_those_of_the_others(frame: pd.DataFrame, traced: Tables) -> None:
    stages = traced["stages"]
    lost = stages[(stages["experiment"] != "stage_times") | (stages["round"] != 0)]
    table = forecasts.prediction_table(frame, traced | {"stages": lost}, ["schedules"])
    assert set(table["rounds"]) == {9}
    none = stages[stages["experiment"] != "stage_times"]
    table = forecasts.prediction_table(frame, traced | {"stages": none}, ["schedules"])
    assert set(table["rounds"]) == {0} and table["ratio"].isna().all() and not table["within"].any()
    assert set(table["reason"]) == {"its stages were not timed"}
    assert forecasts.prediction_table(frame, {}, ["schedules"])["predicted_step_seconds"].isna().all()


def test_a_stage_cut_elsewhere_is_scaled_by_its_layers(frame: pd.DataFrame, traced: Tables) -> None:
    """The balanced cut is measured anew by each team: where stages were timed, it may lie one layer aside."""
    stages = traced["stages"].copy()
    timed = (stages["experiment"] == "stage_times") & (stages["stages"] == 2) & (stages["partition"] == "balanced")
    aside = seconds_of(0, 3) / seconds_of(0, 4), seconds_of(3, 8) / seconds_of(4, 8)
    for stage, factor in enumerate(aside):
        own = timed & (stages["stage"] == stage)
        stages.loc[own, ["first_layer", "last_layer"]] = [(0, 2), (3, 7)][stage]
        kinds = ["forward_seconds", "backward_seconds", "input_backward_seconds", "weight_backward_seconds"]
        stages.loc[own, kinds] *= factor
    table = forecasts.prediction_table(frame, traced | {"stages": stages}, ["schedules"])
    table = table[table["variant"] == "a"]
    assert table["ratio"].tolist() == pytest.approx([1 / ERROR[name] for name in table["strategy"]])


def test_a_failed_cell_stays_a_row(frame: pd.DataFrame, traced: Tables) -> None:
    failed = not_run(frame, "failed", "rank 1 was killed", experiment="schedules", strategy="gpipe", micro_batches=2)
    table = forecasts.prediction_table(failed, traced, ["schedules"])
    row = table[(table["strategy"] == "gpipe") & (table["micro_batches"] == 2)].iloc[0]
    assert (row["status"], row["reason"], row["rounds"]) == ("failed", "rank 1 was killed", 0)


# --- cuts ---


def test_layers_are_medians_of_the_nearest_size_measured() -> None:
    table = layers()
    for wanted, used in ((8, 8), (14, 16), (500, 64)):
        costs = layer_costs(table, "SimpleBig", wanted)
        assert [cost.name for cost in costs] == [layer[0] for layer in LAYERS]
        expected = [3 * layer[2] / 1000 * used * 1.2 for layer in LAYERS]  # 1.2: the pace of the median round
        assert [cost.seconds for cost in costs] == pytest.approx(expected)
        assert [cost.output_bytes for cost in costs] == [layer[3] * used for layer in LAYERS]
    assert layer_costs(table, "Other", 8) == [] and layer_costs(pd.DataFrame(), "SimpleBig", 8) == []


def test_the_best_split_is_found_by_trying_all() -> None:
    costs = [LayerCost("x", 1, seconds) for seconds in (5.0, 1.0, 1.0, 4.0, 3.0)]
    assert forecasts.best_seconds(costs, 1) == 14.0
    assert forecasts.best_seconds(costs, 2) == 7.0 == slowest_stage_seconds(costs, [0, 3])
    assert forecasts.best_seconds(costs, 3) == 6.0 == slowest_stage_seconds(costs, [0, 1, 4])
    assert forecasts.best_seconds(costs, 5) == 5.0


def test_cuts_are_judged_by_the_layers_alone(traced: Tables) -> None:
    table = forecasts.cut_table(traced["stages"], traced["layers"])
    own = table[table["use_case"] == "SimpleBig"]
    assert len(own)
    for row in own.itertuples():
        assert row.ratio == pytest.approx(SLOWEST[row.stages, row.partition]), (row.stages, row.partition)
        assert row.first_layers == ", ".join(map(str, CUTS[row.stages, row.partition]))
    two = own[own["stages"] == 2].groupby("partition")["over_simple"].max()
    assert two.to_dict() == pytest.approx({"balanced": 2 / 3, "equal_layers": 1.0, "equal_parameters": 1.0})
    assert forecasts.cut_table(pd.DataFrame(), traced["layers"]).empty


def test_partitions_stand_with_the_steps_they_gave(frame: pd.DataFrame, traced: Tables) -> None:
    table = forecasts.partition_table(frame, traced).set_index(["partition", "activations"])
    assert table["slowest_over_best"].to_dict() == pytest.approx(
        {
            ("balanced", "kept"): 1.0,
            ("equal_layers", "kept"): 1.5,
            ("equal_parameters", "kept"): 1.5,
            ("balanced", "recomputed"): 1.0,
        }
    )
    jobs = {(job.partition, job.activations): job for job in pipelines() if job.experiment == "partition"}
    base = prediction(jobs["balanced", "kept"]).step_seconds
    for key, job in jobs.items():
        assert table.loc[key, "ratio"] == pytest.approx(prediction(job).step_seconds / base)
    lost = forecasts.partition_table(without(frame, experiment="partition", partition="balanced"), traced)
    assert lost["ratio"].isna().all() and lost["step_seconds"].notna().all()
    assert set(forecasts.partition_table(frame, {})["first_layers"]) == {""}


def test_every_cell_of_a_traced_table_is_found(traced: Tables) -> None:
    for name in ("stages", "actions"):
        trained = traced[name][traced[name]["experiment"].isin(["schedules", "stages", "partition"])]
        cells = stage_tables.table_cells(trained)
        assert len(cells) == len(pipelines())
        order = [cell["schedule"] for cell, _ in stage_tables.table_cells(trained.sample(frac=1, random_state=0))]
        assert order == [cell["schedule"] for cell, _ in cells] == sorted(order, key=CHOICES["schedule"].index)
        assert all(set(cell) == set(TABLE_CELL) and rows["round"].nunique() == 9 for cell, rows in cells)


@pytest.mark.slow
def test_the_notebooks_tables_are_of_the_stored_reference(root: Path) -> None:
    stored = stored_reference(root / "results" / "reference" / "03_pipelined_model_parallelism")
    for name, table in TABLES.items():
        assert len(table(stored)), name
        assert table(no_records()).empty, name

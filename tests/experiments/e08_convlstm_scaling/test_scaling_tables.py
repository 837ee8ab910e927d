"""Tables of notebook 08: speedups within a network and a batch, accuracy paired by seed, Table 3 against itself."""

from __future__ import annotations

import pandas as pd
import pytest

from fake_distribution import not_run, without
from fake_scaling import COSTS, LINK, NOISE, PIPELINES, records, two_workers_seconds
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_table
from lockstep.analysis.statistics import amdahl
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NOT_YET
from lockstep.engine.training.scores import DIVERGED
from lockstep.experiments.e08_convlstm_scaling.forecasts import forecast_table
from lockstep.experiments.e08_convlstm_scaling.table3 import (
    modelled_times,
    published_times,
    superlinear_table,
)
from lockstep.experiments.e08_convlstm_scaling.tables import (
    TABLES,
    exascale_table,
    worker_accuracy_table,
    worker_scaling_table,
)
from lockstep.experiments.e08_convlstm_scaling.verdicts import RULES


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def of(table: pd.DataFrame, **conditions: object) -> pd.Series:
    for name, value in conditions.items():
        table = table[table[name] == value]
    (row,) = [row for _, row in table.iterrows()]
    return row


def test_a_speedup_is_over_the_same_network_and_batch(frame: pd.DataFrame) -> None:
    """Two networks and two batches in one experiment have a sequential cell each."""
    table = worker_scaling_table(frame, "strong")
    for network, model in COSTS.items():
        for batch in (64, 128):
            row = of(table, network=network, global_batch_size=batch, strategy="allreduce", workers=2, variant="a")
            step = two_workers_seconds(network, batch // 2, "allreduce", "allreduce")
            assert row["speedup"] == pytest.approx(model.compute_seconds(batch) / step)
            assert row["efficiency"] == pytest.approx(row["speedup"] / 2) and not row["time_shared"]


def test_what_each_session_gave_stands_in_the_table_where_they_differ(frame: pd.DataFrame) -> None:
    """Seen: the answer said "(sessions differ)" of four workers, and no table of what each of them gave."""
    other = frame.assign(session=1, round=frame["round"] + 1000)
    slow = (other["strategy"] == "allreduce") & (other["experiment"] == "strong")
    other.loc[slow, "images_per_second"] /= 1.5
    other.loc[slow, "step_seconds"] *= 1.5
    both, alike = (TABLES["strong"](Stored(each)) for each in (pd.concat([frame, other]), frame))
    told = both.loc[both["strategy"] == "allreduce", "speedup_sessions"]
    assert told.str.contains(r"session 0: .+ session 1: ").any()
    assert "speedup_sessions" not in alike, "a column for those that need it"
    rounds = frame.loc[frame["experiment"] == "held_out", "round"].nunique()
    assert TABLES["held_out"](Stored(frame))["rounds"].max() == rounds


def test_weak_scaling_compares_images_per_second(frame: pd.DataFrame) -> None:
    row = of(worker_scaling_table(frame, "weak"), network="cnn", strategy="engines_shared_memory", workers=2)
    step = two_workers_seconds("cnn", 64, "engines_shared_memory", "shared_memory")
    assert row["speedup"] == pytest.approx(2 * COSTS["cnn"].compute_seconds(64) / step)
    assert row["global_batch_size"] == 128 and pd.isna(row["amdahl_serial"])


def test_workers_beyond_the_cores_take_turns_and_their_ideal_does_not_grow(frame: pd.DataFrame) -> None:
    row = of(worker_scaling_table(frame, "strong"), network="cnn", strategy="allreduce", workers=4,
             global_batch_size=128)  # fmt: skip
    assert row["time_shared"] and row["cores"] == 2 and row["efficiency"] == pytest.approx(row["speedup"] / 2)


def test_amdahl_is_fitted_to_cells_with_a_core_each(frame: pd.DataFrame) -> None:
    table = worker_scaling_table(frame, "strong")
    two = of(table, network="cnn", strategy="allreduce", workers=2, global_batch_size=128)
    assert amdahl(2, two["amdahl_serial"]) == pytest.approx(two["speedup"])
    four = of(table, network="cnn", strategy="allreduce", workers=4, global_batch_size=128)
    assert four["amdahl_serial"] == two["amdahl_serial"] and four["amdahl_speedup"] == two["amdahl_speedup"]


def test_model_parallel_cells_and_the_noise_are_rows_too(frame: pd.DataFrame) -> None:
    table = worker_scaling_table(frame, "strong")
    for name, gain in PIPELINES.items():
        row = of(table, network="cnn", strategy=name)
        assert row["speedup"] == pytest.approx(gain) and row["model_parallel"] == "pipeline"
    noise = of(table, network="cnn", strategy="sequential", variant="b")
    assert noise["speedup"] == pytest.approx(1 / NOISE)


def test_failed_cells_stay_rows(frame: pd.DataFrame) -> None:
    bad = not_run(frame, "failed", "worker 1 raised", strategy="parameter_server", experiment="strong")
    table = worker_scaling_table(bad, "strong")
    own = table[table["strategy"] == "parameter_server"]
    assert (
        set(own["status"]) == {"failed"} and own["speedup"].isna().all() and set(own["reason"]) == {"worker 1 raised"}
    )
    assert worker_scaling_table(frame[frame["experiment"] == "weak"], "strong").empty


def test_accuracy_stands_with_its_interval_and_its_difference_to_one_worker(frame: pd.DataFrame) -> None:
    table = worker_accuracy_table(frame)
    one = of(table, workers=1, global_batch_size=32)
    assert one["accuracy"] == pytest.approx(80.0) and one["seeds"] == 10 and pd.isna(one["points"])
    two = of(table, workers=2, global_batch_size=32)
    assert two["points"] == pytest.approx(0.2) and two["points_low"] <= 0 < two["points_high"]
    four = of(table, workers=4, global_batch_size=128)
    assert four["points"] == pytest.approx(-0.6) and four["accuracy_low"] < four["accuracy"] < four["accuracy_high"]


def test_accuracy_without_one_worker_says_so(frame: pd.DataFrame) -> None:
    table = worker_accuracy_table(without(frame, experiment="learning", workers=1))
    assert table["points"].isna().all() and table["reason"].str.len().gt(0).all()


def test_accuracy_of_a_cell_with_a_seed_that_diverged_says_so(frame: pd.DataFrame) -> None:
    lost = not_run(frame, "failed", DIVERGED, experiment="learning", workers=2, global_batch_size=32, round=1)
    row = of(worker_accuracy_table(lost), workers=2, global_batch_size=32)
    assert pd.isna(row["accuracy"]) and pd.isna(row["points"]) and DIVERGED in row["reason"] and row["seeds"] == 9
    found = judge({"verdict": "table3_accuracy", "use_case": "Pneumonia", "value": 100.0}, Stored(lost), RULES)
    assert found.answer == NOT_YET and "trainings diverged" in found.reason


def test_table_3_against_itself() -> None:
    table = published_times(read_table("convlstm-d-accel", "table3")).set_index("nodes")
    assert table.loc[32, "published_times"] == pytest.approx(17.2157 / 2.456)
    assert table.loc[32, "workers_times"] == pytest.approx(31 / 4) and table.loc[32, "nodes_times"] == 6.4
    assert (table["published_accuracy"] == 100).all()
    assert table.loc[32, "over_ideal"] == pytest.approx(5.673 / 2.456 / (31 / 15)) and table.loc[32, "over_ideal"] > 1.1


def test_modelled_times_have_columns_of_their_own(frame: pd.DataFrame) -> None:
    forecast = forecast_table(frame, (5, 32), LINK, 128, 64)
    modelled = modelled_times(forecast, (5, 32), 5)
    assert not any("measured" in name for name in modelled)
    steps = modelled[modelled["network"] == "cnn"].set_index("nodes")["modelled_step_seconds"]
    assert of(modelled, network="cnn", nodes=32)["modelled_times"] == pytest.approx(steps[5] / steps[32])


def test_what_6_59_on_five_nodes_takes() -> None:
    table = superlinear_table(5, 6.59)
    assert table["workers"].tolist() == [5, 4]
    assert table["per_worker"].tolist() == pytest.approx([1.318, 1.6475])
    assert table["saved"].tolist() == pytest.approx([1 - 5 / 6.59, 1 - 4 / 6.59])


def test_exascale_at_the_measured_rate(frame: pd.DataFrame) -> None:
    row = of(exascale_table(frame), network="cnn")
    assert row["measured_flops_per_second"] == pytest.approx(row["images_per_second"] * row["flops_per_image"])
    assert row["cores_needed"] == pytest.approx(1e18 / row["measured_flops_per_second"])

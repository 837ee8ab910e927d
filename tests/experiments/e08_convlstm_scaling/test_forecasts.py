"""What the cost model says of clusters that nobody measured, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from fake_scaling import LINK, records
from lockstep.experiments.e08_convlstm_scaling.forecasts import busy_table, forecast_table
from lockstep.predict import cost_model as costs


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def test_too_few_cells_forecast_nothing(frame: pd.DataFrame) -> None:
    assert forecast_table(frame[frame["experiment"] == "weak"], (2, 4), LINK, 128, 64).empty


def test_a_forecast_by_hand(frame: pd.DataFrame) -> None:
    """5 nodes, one of them the server: 4 workers of 32 images each, and 2 x 4 gradients through the server's link."""
    costs_of_cnn = costs.calibrated(frame, "Pneumonia", "cnn")
    table = forecast_table(frame, (1, 5), LINK, 128, 64)
    row = table[(table["network"] == "cnn") & (table["way"] == "parameter server") & (table["scaling"] == "strong")]
    (row,) = row.to_dict("records")
    exchange = 2 * LINK.alpha_seconds + 8e6 * LINK.beta_seconds_per_byte
    step = costs_of_cnn.fixed_seconds + 32 * costs_of_cnn.image_seconds + exchange
    alone = costs_of_cnn.fixed_seconds + 128 * costs_of_cnn.image_seconds
    assert (row["nodes"], row["workers"]) == (5, 4)
    assert row["modelled_step_seconds"] == pytest.approx(step)
    assert row["modelled_speedup"] == pytest.approx(alone / step)
    assert row["modelled_efficiency"] == pytest.approx(alone / step / 5)


def test_more_nodes_than_a_server_can_answer_make_it_slower(frame: pd.DataFrame) -> None:
    table = forecast_table(frame, (2, 32), LINK, 128, 64)
    own = table[(table["network"] == "cnn") & (table["scaling"] == "strong")].set_index(["way", "nodes"])
    speedup = own["modelled_speedup"]
    assert speedup["parameter server", 32] < 1 < speedup["all-reduce", 32]


def test_a_busy_node_computes_nine_tenths_of_its_step(frame: pd.DataFrame) -> None:
    table = busy_table(frame, (32,), LINK, 5856)
    model = costs.calibrated(frame, "Pneumonia", "cnn")
    for row in table[table["network"] == "cnn"].to_dict("records"):
        workers = 32 - (row["way"] == "parameter server")
        sync = "parameter_server" if workers == 31 else "allreduce"
        computing, exchange = model.on_cluster(row["modelled_global_batch"], workers, sync, LINK)
        assert 0.9 <= computing / (computing + exchange) < 0.91
        assert row["modelled_steps_per_epoch"] == pytest.approx(5856 / row["modelled_global_batch"])

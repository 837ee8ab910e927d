"""Tables of notebook 05, on made-up records whose ratios are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fake_distribution import BETWEEN, GRADIENT, HEADLINE, LINKS, SPEED, STARTS, TRAFFIC, WEAK, not_run, records
from lockstep.analysis.tables import distributed_speedup_table, start_table
from lockstep.experiments.e05_mpi_distribution import tables as distribution


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def test_each_local_strategy_is_compared_at_equal_hosts(frame: pd.DataFrame) -> None:
    table = distribution.ranking_table(frame).set_index(["use_case", "hosts", "strategy"])
    for hosts, gains in HEADLINE.items():
        for name, gain in gains.items():
            row = table.loc[("SimpleBig", hosts, name)]
            assert row["ratio"] == pytest.approx(gain / gains["mpi_allreduce"])
            assert row["difference"] == (name != "mpi_allreduce"), "nothing differs from itself"
            assert row["place"] == 1 + sum(other > gain for other in gains.values())


def test_a_failed_strategy_stays_a_row_of_the_ranking(frame: pd.DataFrame) -> None:
    failed = not_run(frame, "failed", "rank 1 was killed", experiment="headline", strategy="host_threads")
    lost = distribution.ranking_table(failed).set_index("strategy").loc["host_threads"]
    assert set(lost["status"]) == {"failed"} and lost["ratio"].isna().all() and set(lost["difference"]) == {False}


def test_speedups_stand_with_what_was_sent(frame: pd.DataFrame) -> None:
    table = distributed_speedup_table(frame, "weak")
    own = table[(table["use_case"] == "SimpleBig") & (table["device"] == "cpu")].set_index("strategy")
    for name, gain in WEAK.items():
        assert own.loc[name, "speedup"] == pytest.approx(gain), name
    assert own.loc["parameter_server", "servers"] == 1 and own.loc["allreduce", "launcher"] == "engines"
    assert distributed_speedup_table(frame, "nothing").empty


def linked(frame: pd.DataFrame) -> pd.DataFrame:
    """SimpleBig over links, as if nothing but the all-reduce's bytes took time beyond 1 s a step."""
    frame = frame.copy()
    hit = (frame["experiment"] == "links") & (frame["strategy"] == "allreduce")
    rate = frame.loc[hit, "link_bits_per_second"]
    frame.loc[hit, "link_bytes_busiest"] = GRADIENT["SimpleBig"]
    frame.loc[hit, "step_seconds"] = 1.0 + 8 * GRADIENT["SimpleBig"] / rate
    frame.loc[hit, "images_per_second"] = frame.loc[hit, "global_batch_size"] / frame.loc[hit, "step_seconds"]
    return frame


def test_a_slower_link_is_predicted_from_the_fastest_and_the_bytes(frame: pd.DataFrame) -> None:
    table = distribution.link_table(linked(frame))
    own = table[table["strategy"] == "allreduce"]
    assert own["own_seconds"].tolist() == pytest.approx([1.0] * len(LINKS))
    assert own["predicted_step_seconds"].tolist() == pytest.approx(own["step_seconds"].tolist())


def test_a_sync_pays_from_the_rate_at_which_it_equals_sequential(frame: pd.DataFrame) -> None:
    table = distribution.link_table(linked(frame))
    own = table[table["strategy"] == "allreduce"].iloc[0]
    paces = [1 / (1 + 0.1 * number) for number in range(5)]
    sequential_step = 32 / (SPEED["SimpleBig"] * float(np.median(paces)))
    # Two workers have twice the batch, so a step of theirs may take twice as long.
    expected = 8 * GRADIENT["SimpleBig"] / (2 * sequential_step - 1.0)
    assert own["pays_from_bits_per_second"] == pytest.approx(expected)
    curve = distribution.predicted_speedups(table[table["strategy"] == "allreduce"], np.array([expected]))
    assert curve["SimpleBig", "allreduce"][0] == pytest.approx(1.0, rel=0.02)


def test_what_computes_too_slowly_never_pays(frame: pd.DataFrame) -> None:
    slow = linked(frame)
    hit = (slow["experiment"] == "links") & (slow["strategy"] == "allreduce")
    slow.loc[hit, "step_seconds"] += 100
    table = distribution.link_table(slow)
    assert np.isinf(table[table["strategy"] == "allreduce"]["pays_from_bits_per_second"]).all()


def test_bytes_per_step_and_second(frame: pd.DataFrame) -> None:
    table = distribution.network_table(frame)
    big = table[(table["experiment"] == "timeline") & (table["use_case"] == "SimpleBig")].iloc[0]
    assert big["link_bytes_busiest"] == GRADIENT["SimpleBig"]
    own = frame[(frame["experiment"] == "timeline") & (frame["strategy"] == "mpi_allreduce")]
    step = own[own["use_case"] == "SimpleBig"]["step_seconds"].median()
    assert big["bytes_per_second"] == pytest.approx(GRADIENT["SimpleBig"] / step)


def test_traffic_is_counted_per_byte_of_a_gradient(frame: pd.DataFrame) -> None:
    size = int(GRADIENT["SimpleBig"])
    frame = frame.assign(message_bytes=np.where(frame["input"] == "none", size, 0))
    table = distribution.traffic_table(frame, "between_hosts").set_index("strategy")
    assert table["times_message"].to_dict() == pytest.approx(BETWEEN)
    grown = distribution.traffic_table(frame, "traffic").set_index("hosts")
    assert grown["times_message"].to_dict() == pytest.approx(TRAFFIC)


def test_a_teams_start_is_counted_once_per_start(frame: pd.DataFrame) -> None:
    table = start_table(frame).set_index(["launcher", "ranks"])
    assert table.loc[("engines", 2), "median"] == pytest.approx(float(np.median(STARTS)))
    assert table.loc[("engines", 2), "count"] == len(STARTS)


def test_a_process_per_host_starts_apart_from_one_per_rank(frame: pd.DataFrame) -> None:
    """Both are mpiexec's, with as many hosts and ranks: one median over the two was neither's."""
    frame = frame.copy()
    for name, seconds in (("host_threads", 2.0), ("mpi_shared_memory", 4.0)):
        frame.loc[(frame["experiment"] == "headline") & (frame["strategy"] == name), "launch_seconds"] = seconds
    table = start_table(frame).set_index(["launcher", "hosts", "ranks", "host_workers"])["median"]
    for hosts in HEADLINE:
        assert table["mpiexec", hosts, 2 * hosts, "threads"] == 2.0
        assert table["mpiexec", hosts, 2 * hosts, "processes"] == 4.0

"""The cost model of hybrids: worked examples, its inputs from records, and what it says where."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from fake_distribution import scaled, without
from fake_pipelines import (
    ALPHA,
    BATCH,
    BETA,
    HYBRID,
    LAYERS,
    PARAMETERS,
    PER_PARAMETER,
    SPEED,
    hybrid_records,
    layers,
)

from lockstep.alphabeta import AlphaBeta
from lockstep.analysis import AnalysisError
from lockstep.pipelines import hybrids
from lockstep.pipelines.costs import LayerTime, Way, Where, map_table, step_cost, ways
from lockstep.pipelines.partition import PartitionError

EVEN = [LayerTime(parameters=100, fixed_seconds=0.5, image_seconds=0.25, output_bytes=1000) for _ in range(4)]
FREE = Where(AlphaBeta(0.0, 0.0))


def cost_seconds(replicas: int, stages: int, micro_batches: int, where: Where = FREE, batch: int = 8) -> float:
    return step_cost(EVEN, Way(replicas, stages, micro_batches), batch, where).step_seconds


def test_one_device_computes_all_layers() -> None:
    assert cost_seconds(1, 1, 1) == pytest.approx(4 * (0.5 + 0.25 * 8))


def test_a_pipeline_takes_a_turn_for_every_micro_batch_and_fills_and_drains() -> None:
    """Two stages of two layers, four micro-batches of two images: five turns of 2 (0.5 + 0.5) s."""
    assert cost_seconds(1, 2, 4) == pytest.approx(5 * 2.0)


def test_the_first_activation_goes_all_the_way_and_the_last_gradient_back() -> None:
    link = Where(AlphaBeta(alpha_seconds=0.1, beta_seconds_per_byte=1e-4))
    moved = 0.1 + 1e-4 * 2000
    assert cost_seconds(1, 2, 4, link) == pytest.approx(10.0 + 2 * moved)
    assert step_cost(EVEN, Way(1, 4, 4), 8, link).transfer_seconds == pytest.approx(3 * 2 * moved)


def test_a_link_slower_than_a_stage_sets_the_pace() -> None:
    link = Where(AlphaBeta(alpha_seconds=7.0, beta_seconds_per_byte=0.0))
    assert step_cost(EVEN, Way(1, 2, 4), 8, link).compute_seconds == pytest.approx(5 * 7.0)


def test_replicas_share_the_batch_and_sum_the_gradients_in_a_ring() -> None:
    """Each of four: two images. A ring sends 2 (R-1) messages, 2 (R-1)/R of the bytes."""
    link = Where(AlphaBeta(alpha_seconds=0.01, beta_seconds_per_byte=1e-3))
    found = step_cost(EVEN, Way(replicas=4), 8, link)
    assert found.compute_seconds == pytest.approx(4 * (0.5 + 0.25 * 2))
    assert found.exchange_seconds == pytest.approx(6 * 0.01 + 6 / 4 * 4 * 400 * 1e-3)
    assert found.transfer_seconds == 0


def test_a_hybrid_sums_only_what_its_largest_stage_holds() -> None:
    link = Where(AlphaBeta(alpha_seconds=0.0, beta_seconds_per_byte=1e-3), update_seconds_per_parameter=0.001)
    found = step_cost(EVEN, Way(2, 2, 2), 8, link)
    assert found.exchange_seconds == pytest.approx(2 * 1 / 2 * 4 * 200 * 1e-3)
    assert found.update_seconds == pytest.approx(0.2)
    turn = max(2 * (0.5 + 0.25 * 2), 1e-3 * 2000)
    assert found.compute_seconds == pytest.approx(3 * turn)


def test_ranks_that_share_cores_can_do_no_more_work_than_these() -> None:
    """Four ranks on two cores: all work over two cores, and each update twice as long."""
    found = step_cost(EVEN, Way(replicas=4), 8, Where(FREE.link, 0.001, cores=2))
    assert found.compute_seconds == pytest.approx(4 * 4 * (0.5 + 0.25 * 2) / 2)
    assert found.update_seconds == pytest.approx(2 * 0.001 * 400)
    alone = step_cost(EVEN, Way(1, 2, 4), 8, Where(FREE.link, cores=2)).compute_seconds
    assert alone == pytest.approx(10.0), "two ranks have a core each"


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(PartitionError, match="stages=5"):
        step_cost(EVEN, Way(1, 5, 8), 8, FREE)


def test_every_way_to_spread_ranks() -> None:
    found = [(way.replicas, way.stages, way.micro_batches) for way in ways(4, 16)]
    assert found == [(4, 1, 1), (2, 2, 2), (2, 2, 4), (2, 2, 8), (1, 4, 4), (1, 4, 8), (1, 4, 16)]
    assert all(way.ranks == 4 for way in ways(4, 16))
    assert list(ways(4, 6)) == [], "a batch of 6 can't be shared out by 4"
    kinds = [Way().kind, Way(2).kind, Way(1, 2, 2).kind, Way(2, 2, 2).kind]
    assert kinds == ["one device", "data", "model", "hybrid"]


# --- from records ---


def test_layers_without_parameters_join_the_one_before() -> None:
    times = hybrids.layer_times(layers(), "SimpleBig")
    assert [time.parameters for time in times] == [10, 10, 1000, 1000, 10, 10]
    pace = 1.2  # of the median round
    joined = [LAYERS[0][2] + LAYERS[1][2], LAYERS[2][2] + LAYERS[3][2], *(layer[2] for layer in LAYERS[4:])]
    assert [time.image_seconds for time in times] == pytest.approx([3 * each / 1000 * pace for each in joined])
    assert [time.fixed_seconds for time in times] == pytest.approx([0.0] * 6, abs=1e-9)
    assert [time.output_bytes for time in times] == [4000, 1000, 400, 400, 400, 12]


def test_what_a_small_micro_batch_costs_anyway_is_told_from_what_its_images_cost() -> None:
    table = layers(rounds=1)
    table["forward_seconds"] += 0.25
    times = hybrids.layer_times(table, "SimpleBig")
    assert [time.fixed_seconds for time in times] == pytest.approx([0.5, 0.5, 0.25, 0.25, 0.25, 0.25])


def test_one_size_of_micro_batch_is_not_enough() -> None:
    with pytest.raises(AnalysisError, match=r"micro-batches of \[8\]: two sizes are needed"):
        hybrids.layer_times(layers(sizes=(8,)), "SimpleBig")
    with pytest.raises(AnalysisError, match=r"Other were measured for micro-batches of \[\]"):
        hybrids.layer_times(layers(), "Other")


def test_this_machine_is_known_by_what_was_measured() -> None:
    frame, times = hybrid_records(), hybrids.layer_times(layers(), "SimpleBig")
    where = hybrids.place_of(frame, times, "SimpleBig")
    assert where.link.alpha_seconds == pytest.approx(1.2 * ALPHA)
    assert where.link.beta_seconds_per_byte == pytest.approx(1.2 * BETA)
    assert where.update_seconds_per_parameter == pytest.approx(1.2 * PER_PARAMETER)
    assert where.cores == 2, "cells of four ranks said that they shared cores"
    alone = frame[frame["workers"] <= 2]
    assert math.isinf(hybrids.cores_of_machine(alone)), "nobody had to share: how many there are is not known"
    with pytest.raises(AnalysisError, match="no all-reduce between two ranks"):
        hybrids.place_of(without(frame, experiment="collective"), times, "SimpleBig")


def test_predictions_stand_beside_what_was_measured() -> None:
    table = hybrids.cost_table(hybrid_records(), layers()).set_index(["use_case", "way", "workers"])
    row = table.loc[("SimpleBig", "data", 2)]
    forward = sum(layer[2] for layer in LAYERS) / 1000
    sent = 2 * ALPHA + 4 * PARAMETERS * BETA
    expected = 1.2 * (3 * forward * BATCH / 2 + sent + PER_PARAMETER * PARAMETERS)
    measured = 1.2 * BATCH / (SPEED["SimpleBig"] * HYBRID[2]["processes_allreduce"])
    assert (row["predicted_step_seconds"], row["step_seconds"]) == pytest.approx((expected, measured))
    assert row["ratio"] == pytest.approx(expected / measured) and not row["within"]
    assert set(table.index.get_level_values("way")) == {"one device", "data", "model", "hybrid"}
    assert set(table["device"]) == {"cpu"}, "layers were timed on the CPU"
    assert not {"processes", "head_parallel"} & set(table["strategy"]), "the model knows neither"


def test_a_prediction_that_hits_is_within() -> None:
    def hybrid(frame: pd.DataFrame) -> pd.Series:
        table = hybrids.cost_table(frame, layers())
        return table[(table["use_case"] == "SimpleBig") & (table["way"] == "hybrid")].iloc[0]

    off = hybrid(hybrid_records())["ratio"]
    near = scaled(hybrid_records(), "step_seconds", off, use_case="SimpleBig", sync="allreduce", stages=2, device="cpu")
    assert hybrid(near)["within"] and hybrid(near)["ratio"] == pytest.approx(1.0)


def test_what_was_not_measured_is_named() -> None:
    own = layers()
    table = hybrids.cost_table(hybrid_records(), own[own["use_case"] == "SimpleBig"])
    lost = table[table["use_case"] == "ComplexSmall"]
    assert lost["predicted_step_seconds"].isna().all() and lost["step_seconds"].notna().all()
    assert lost["reason"].str.contains("layers of ComplexSmall were measured for micro-batches of").all()


# --- the map ---


def heavy() -> list[LayerTime]:
    """Four layers that compute alike; all parameters are in the last one."""
    light = LayerTime(1, 0.0, 0.25, 1.0)
    return [light, light, light, LayerTime(10**6, 0.0, 0.25, 1.0)]


def test_data_parallelism_wins_on_fast_links_and_model_parallelism_on_slow_ones() -> None:
    table = map_table(heavy(), "x", FREE, 16, [4], [1e4, 1e12])
    seconds = table.pivot(index="link_bits_per_second", columns="kind", values="predicted_step_seconds")
    assert seconds.loc[1e12].idxmin() == "data" and seconds.loc[1e4].idxmin() == "model"
    best = table[table["kind"] == "data"].set_index("link_bits_per_second")["predicted_speedup"]
    assert best[1e12] == pytest.approx(4.0, rel=1e-3) and best[1e4] < 1


def test_where_the_hybrid_wins_is_told_by_rate() -> None:
    """One long layer: four stages wait for it, two do not; and sum up only the larger part of the parameters."""
    uneven = [LayerTime(10**5, 0.0, seconds, 1.0) for seconds in (0.25, 0.25, 0.25, 1.0)]
    table = map_table(uneven, "x", FREE, 16, [4], [1e5, 1e6, 2e6, 1e7, 1e9])
    wins = hybrids.wins_table(table).iloc[0]
    seconds = table.pivot(index="link_bits_per_second", columns="kind", values="predicted_step_seconds")
    assert seconds.idxmin(axis=1).tolist() == ["model", "hybrid", "hybrid", "data", "data"]
    assert (wins["hybrid_from"], wins["hybrid_to"]) == (1e6, 2e6)
    gains = seconds[["data", "model"]].min(axis=1) / seconds["hybrid"]
    assert wins["most_gain"] == pytest.approx(gains.max()) and (wins["replicas"], wins["stages"]) == (2, 2)
    never = hybrids.wins_table(map_table(uneven, "x", FREE, 16, [4], [1e12])).iloc[0]
    assert pd.isna(never["hybrid_from"]) and never["most_gain"] < 1
    assert hybrids.wins_table(pd.DataFrame()).empty


def test_the_whole_map_is_of_every_use_case_measured() -> None:
    table = hybrids.whole_map(hybrid_records(), layers())
    assert set(table["use_case"]) == {"SimpleBig", "ComplexSmall"} and set(table["ranks"]) == set(hybrids.MAP_RANKS)
    assert hybrids.whole_map(hybrid_records(), pd.DataFrame()).empty
    lost = without(hybrid_records(), experiment="collective")
    assert hybrids.whole_map(lost, layers()).empty

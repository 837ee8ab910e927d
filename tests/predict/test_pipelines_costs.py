"""The cost model of layouts: worked examples, and which layout wins on which links."""

from __future__ import annotations

import pytest

from lockstep.engine.pipelines.partition import PartitionError
from lockstep.predict.layout_model import Hardware, LayerTime, Layout, layouts, map_table, step_cost
from lockstep.predict.link_model import AlphaBeta

EVEN = [LayerTime(parameters=100, fixed_seconds=0.5, image_seconds=0.25, output_bytes=1000) for _ in range(4)]
FREE = Hardware(AlphaBeta(0.0, 0.0))


def cost_seconds(replicas: int, stages: int, micro_batches: int, hardware: Hardware = FREE, batch: int = 8) -> float:
    return step_cost(EVEN, Layout(replicas, stages, micro_batches), batch, hardware).step_seconds


def test_one_device_computes_all_layers() -> None:
    assert cost_seconds(1, 1, 1) == pytest.approx(4 * (0.5 + 0.25 * 8))


def test_a_pipeline_takes_a_turn_for_every_micro_batch_and_fills_and_drains() -> None:
    """Two stages of two layers, four micro-batches of two images: five turns of 2 (0.5 + 0.5) s."""
    assert cost_seconds(1, 2, 4) == pytest.approx(5 * 2.0)


def test_the_first_activation_goes_all_the_way_and_the_last_gradient_back() -> None:
    link = Hardware(AlphaBeta(alpha_seconds=0.1, beta_seconds_per_byte=1e-4))
    moved = 0.1 + 1e-4 * 2000
    assert cost_seconds(1, 2, 4, link) == pytest.approx(10.0 + 2 * moved)
    assert step_cost(EVEN, Layout(1, 4, 4), 8, link).transfer_seconds == pytest.approx(3 * 2 * moved)


def test_a_link_slower_than_a_stage_sets_the_pace() -> None:
    link = Hardware(AlphaBeta(alpha_seconds=7.0, beta_seconds_per_byte=0.0))
    assert step_cost(EVEN, Layout(1, 2, 4), 8, link).compute_seconds == pytest.approx(5 * 7.0)


def test_replicas_share_the_batch_and_sum_the_gradients_in_a_ring() -> None:
    """Each of four: two images. A ring sends 2 (R-1) messages, 2 (R-1)/R of the bytes."""
    link = Hardware(AlphaBeta(alpha_seconds=0.01, beta_seconds_per_byte=1e-3))
    found = step_cost(EVEN, Layout(replicas=4), 8, link)
    assert found.compute_seconds == pytest.approx(4 * (0.5 + 0.25 * 2))
    assert found.exchange_seconds == pytest.approx(6 * 0.01 + 6 / 4 * 4 * 400 * 1e-3)
    assert found.transfer_seconds == 0


def test_a_hybrid_sums_only_what_its_largest_stage_holds() -> None:
    link = Hardware(AlphaBeta(alpha_seconds=0.0, beta_seconds_per_byte=1e-3), update_seconds_per_parameter=0.001)
    found = step_cost(EVEN, Layout(2, 2, 2), 8, link)
    assert found.exchange_seconds == pytest.approx(2 * 1 / 2 * 4 * 200 * 1e-3)
    assert found.update_seconds == pytest.approx(0.2)
    turn = max(2 * (0.5 + 0.25 * 2), 1e-3 * 2000)
    assert found.compute_seconds == pytest.approx(3 * turn)


def test_ranks_that_share_cores_can_do_no_more_work_than_these() -> None:
    """Four ranks on two cores: all work over two cores, and each update twice as long."""
    found = step_cost(EVEN, Layout(replicas=4), 8, Hardware(FREE.link, 0.001, cores=2))
    assert found.compute_seconds == pytest.approx(4 * 4 * (0.5 + 0.25 * 2) / 2)
    assert found.update_seconds == pytest.approx(2 * 0.001 * 400)
    alone = step_cost(EVEN, Layout(1, 2, 4), 8, Hardware(FREE.link, cores=2)).compute_seconds
    assert alone == pytest.approx(10.0), "two ranks have a core each"


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(PartitionError, match="stages=5"):
        step_cost(EVEN, Layout(1, 5, 8), 8, FREE)


def test_every_way_to_spread_ranks() -> None:
    found = [(way.replicas, way.stages, way.micro_batches) for way in layouts(4, 16)]
    assert found == [(4, 1, 1), (2, 2, 2), (2, 2, 4), (2, 2, 8), (1, 4, 4), (1, 4, 8), (1, 4, 16)]
    assert all(way.ranks == 4 for way in layouts(4, 16))
    assert list(layouts(4, 6)) == [], "a batch of 6 can't be shared out by 4"
    kinds = [Layout().kind, Layout(2).kind, Layout(1, 2, 2).kind, Layout(2, 2, 2).kind]
    assert kinds == ["one device", "data", "model", "hybrid"]


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

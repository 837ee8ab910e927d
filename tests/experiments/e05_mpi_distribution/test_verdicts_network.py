"""Verdicts on the network and on the CPU that waits for it: functions of what the paper leaves unsaid."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from fake_distribution import FIXED, GRADIENT, HEADERS, IMAGE, claim, not_run, records, scaled, without
from lockstep.analysis.judging import judge
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import BOUND, CONTRADICTED, MODEL, NOT_YET, SUPPORTED, UNDECIDED, Verdict
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT, regimes


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame) -> Verdict:
    return judge(row, Stored(frame), EXPERIMENT.verdicts)


def test_a_step_is_what_it_costs_and_what_its_images_cost(frame: pd.DataFrame) -> None:
    found = regimes.worker(frame, "SimpleBig")
    assert found.image.mean() == pytest.approx(IMAGE["SimpleBig"], rel=0.05)
    assert found.fixed.mean() == pytest.approx(FIXED["SimpleBig"], rel=0.2)
    assert found.gradient_bytes == HEADERS * GRADIENT["SimpleBig"], "as the link counted it"
    assert regimes.worker(frame, "ComplexSmall").gradient_bytes == GRADIENT["ComplexSmall"], "as the rank counted it"


def test_the_wire_takes_its_bytes_over_the_nominal_rate(frame: pd.DataFrame) -> None:
    """239 MB at 10 Gbit/s are 0.19 s: below a tenth of a step from 31 images per worker on."""
    found = regimes.worker(frame, "SimpleBig")
    assert found.wire(1e10) == pytest.approx(0.19, abs=0.002)
    assert found.wire(1e10, hosts=16) == pytest.approx(15 / 8 * found.wire(1e10))
    assert found.batch_of(0.10, 1e10).value == pytest.approx((9 * found.wire(1e10) - 0.15) / 0.05, rel=0.05)
    assert found.batch_of(0.10, 1e12).value == 1, "no fewer than one image"


def test_whether_the_network_is_a_bottleneck_depends_on_the_batch(frame: pd.DataFrame) -> None:
    found = judged(claim("network-no-bottleneck"), frame)
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and math.isinf(found.rounds_more)
    assert "SimpleBig: below 10% from 30" in found.reason and "images per worker on" in found.reason


@pytest.mark.parametrize(("factor", "word"), [(1e-3, SUPPORTED), (1e4, CONTRADICTED)])
def test_a_network_that_is_light_or_heavy_at_every_batch_decides(frame: pd.DataFrame, factor: float, word: str) -> None:
    other = scaled(frame.assign(link_bytes_busiest=float("nan")), "bytes_sent", factor, strategy="allreduce")
    assert judged(claim("network-no-bottleneck"), other).answer == word
    inactive = judged(claim("cpu-inactive"), other)
    assert inactive.answer == (CONTRADICTED if word == SUPPORTED else SUPPORTED)
    assert "the network is a bottleneck" in inactive.reason


def test_a_cpu_may_be_inactive_at_the_smallest_batches_only(frame: pd.DataFrame) -> None:
    found = judged(claim("cpu-inactive"), frame)
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and "up to 1 [1, 1] images per worker" in found.reason


@pytest.mark.parametrize("name", ["network-no-bottleneck", "cpu-inactive"])
def test_without_two_batch_sizes_or_bytes_nothing_is_known(frame: pd.DataFrame, name: str) -> None:
    assert judged(claim(name), without(frame, experiment="batches")).answer == NOT_YET
    one = without(frame, experiment="batches", global_batch_size=32)
    found = judged(claim(name), one)
    assert found.answer == NOT_YET and "one batch size only" in found.reason
    silent = not_run(frame, "failed", "rank 1 raised", experiment="weak", use_case="ComplexSmall", device="cpu")
    assert judged(claim(name), silent).answer == NOT_YET
    assert judged(claim(name), records(rounds=4)).answer == UNDECIDED


def test_a_round_in_which_more_images_took_less_time_is_left_out(frame: pd.DataFrame) -> None:
    odd = frame.copy()
    hit = (odd["experiment"] == "batches") & (odd["use_case"] == "SimpleBig") & (odd["global_batch_size"] == 32)
    odd.loc[odd[hit].index[0], "step_seconds"] = 0.01
    assert len(regimes.worker(odd, "SimpleBig").image) == len(regimes.worker(frame, "SimpleBig").image) - 1


def test_the_peak_of_the_network_is_compared_per_step(frame: pd.DataFrame) -> None:
    found = judged(claim("network-peak"), frame)
    assert (found.answer, found.grade) == (CONTRADICTED, BOUND) and "hours" in found.reason
    small = judged(claim("network-peak"), frame.assign(bytes_sent=35 * 1024.0))
    assert small.answer == SUPPORTED and "35 [35, 35] KiB" in small.measured
    assert judged(claim("network-peak"), without(frame, strategy="allreduce")).answer == NOT_YET


def test_the_map_has_a_row_per_use_case_and_cores_of_a_node(frame: pd.DataFrame) -> None:
    table = regimes.regime_table(frame).set_index(["use_case", "cores"])
    assert len(table) == 2 * len(regimes.CORES)
    row = table.loc[("SimpleBig", 1)]
    assert row["1 Gbit/s"] > row["10 Gbit/s"] > row["25 Gbit/s"]
    assert row["10 Gbit/s_low"] < row["10 Gbit/s"] < row["10 Gbit/s_high"]
    assert table.loc[("SimpleBig", 16), "10 Gbit/s"] > 16 * row["10 Gbit/s"], "more cores share a batch"
    poor = regimes.regime_table(without(frame, experiment="batches", use_case="SimpleBig", global_batch_size=8))
    assert poor.set_index("use_case").loc["SimpleBig", "reason"].startswith("SimpleBig: steps of one batch size")

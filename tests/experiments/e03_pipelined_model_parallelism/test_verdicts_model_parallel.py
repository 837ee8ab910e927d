"""Verdicts on model parallelism: each turns with the records, and no row of the CPU stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import not_run, scaled, without
from fake_pipelines import IDLE, NO_CUDA, SPEEDUP, claim, on_gpus, records, resources
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e03_pipelined_model_parallelism.verdicts import RULES

CPU = {"naive-model-slower", "pipelining-pays", "cpu-model-parallel-overhead", "model-parallel-no-sync"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == "03_pipelined_model_parallelism"].to_dict("records")


def judged(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judge(row, Stored(frame, {} if traces is None else {"resources": traces}), RULES)


def test_every_claim_has_its_function_and_gpus_are_missing_here(frame: pd.DataFrame) -> None:
    assert len(own_claims()) == 10 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        found, name = judged(row, frame, resources("speedup", ("gpipe", "1f1b"))), row["id"].removeprefix("s2m-")
        if name in CPU:
            assert found.answer in (SUPPORTED, CONTRADICTED), name
        else:
            assert found == Verdict(NEEDS_HARDWARE, "", NO_CUDA), name


def test_without_records_and_with_too_few_rounds_nothing_is_decided() -> None:
    traces = resources("speedup", ("gpipe", "1f1b"), rounds=4)
    for row in own_claims():
        assert judge(row, no_records(), RULES).answer == NOT_YET, row["id"]
        assert judged(row, records(4), traces).answer in {NOT_YET, NEEDS_HARDWARE}, row["id"]


# --- on the CPU ---


def test_naive_model_parallelism_is_held_against_one_core(frame: pd.DataFrame) -> None:
    found = judged(claim("naive-model-slower"), frame)
    assert found.answer == SUPPORTED and found.reason.endswith("a device is a core here")
    assert f"SimpleBig: {1 / SPEEDUP['naive_pipeline']:.3g} " in found.measured
    fast = scaled(frame, "images_per_second", 1.3, strategy="naive_pipeline", use_case="ComplexSmall")
    assert judged(claim("naive-model-slower"), fast).answer == CONTRADICTED
    failed = not_run(frame, "failed", "rank 1 was killed", strategy="naive_pipeline", device="cpu")
    found = judged(claim("naive-model-slower"), failed)
    assert found.answer == NOT_YET and "rank 1 was killed" in found.reason


def test_pipelining_pays_if_the_fastest_schedule_beats_one_core(frame: pd.DataFrame) -> None:
    found = judged(claim("pipelining-pays"), frame)
    assert found.answer == SUPPORTED
    text = "1.65 [1.65, 1.65] times the images/s of one core, by 2 cores at batch 256 (the fastest of 2 schedules: "
    assert text in found.measured
    slow = scaled(frame, "images_per_second", 0.5, use_case="SimpleBig", experiment="speedup", schedule="1f1b")
    slow = scaled(
        slow, "images_per_second", 0.5, use_case="SimpleBig", experiment="speedup", schedule="gpipe", device="cpu"
    )
    assert judged(claim("pipelining-pays"), slow).answer == CONTRADICTED


def test_a_gain_over_one_core_contradicts_that_it_is_overhead_only(frame: pd.DataFrame) -> None:
    """Slower than two cores spent otherwise, but 1.65 times one core: a gain."""
    found = judged(claim("cpu-model-parallel-overhead"), frame)
    assert found.answer == CONTRADICTED and "a gain: the pipeline is faster" in found.reason
    assert "over one core: 1.65 " in found.measured and "over threads inside operators: 0.917 " in found.measured
    assert "compared: the fastest of 2 schedules: pipeline: 1F1B" in found.reason


def test_overhead_only_means_no_gain_over_either(frame: pd.DataFrame) -> None:
    slow = frame
    for name in ("gpipe", "1f1b"):
        slow = scaled(slow, "images_per_second", 0.55, strategy=name, experiment="speedup", device="cpu")
    found = judged(claim("cpu-model-parallel-overhead"), slow)
    assert found.answer == SUPPORTED and "no gain" in found.reason
    alone = without(frame, strategy="intra_op")
    found = judged(claim("cpu-model-parallel-overhead"), alone)
    assert found == Verdict(NOT_YET, "", "no rows that spend the same cores otherwise")


def test_a_pipeline_exchanges_no_gradients(frame: pd.DataFrame) -> None:
    found = judged(claim("model-parallel-no-sync"), frame)
    share = f"{100 * IDLE:.3g} [{100 * IDLE:.3g}, {100 * IDLE:.3g}] % waiting"
    assert found.answer == SUPPORTED and share in found.measured
    sums = frame.assign(exchange_seconds=0.02 * frame["step_seconds"])
    assert judged(claim("model-parallel-no-sync"), sums).answer == CONTRADICTED


# --- on GPUs ---


GAINS = {"sequential": 1.0, "naive_pipeline": 0.9, "gpipe": 1.8, "processes_allreduce": 1.5}


@pytest.mark.parametrize(("value", "word"), [(1.8, SUPPORTED), (6.74, CONTRADICTED)])
def test_a_published_speedup_of_gpus_is_over_one_gpu(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judged(claim("table2-gpu-model-simplebig") | {"value": value}, on_gpus(frame, "speedup", GAINS))
    assert found.answer == word and found.measured.startswith("1.8 ") and "cores" not in found.measured
    assert found.numbers[0][1].value == pytest.approx(1.8)


def test_model_parallelism_is_compared_with_data_parallelism_on_gpus(frame: pd.DataFrame) -> None:
    assert judged(claim("model-beats-data"), on_gpus(frame, "speedup", GAINS)).answer == SUPPORTED
    slow = on_gpus(frame, "speedup", GAINS | {"gpipe": 1.4})
    found = judged(claim("model-beats-data"), slow)
    assert found.answer == CONTRADICTED and "other way round" in found.reason


# --- Figure 4 ---


@pytest.mark.parametrize(("value", "word"), [(5, SUPPORTED), (14, CONTRADICTED)])
def test_threads_are_those_of_the_trace_on_gpus(frame: pd.DataFrame, value: float, word: str) -> None:
    there = on_gpus(frame, "speedup", GAINS)
    wanted = claim("model-threads") | {"value": value}
    assert judged(wanted, there, resources("speedup", ["gpipe"], device="cuda")).answer == word
    found = judged(wanted, there, resources("speedup", ["gpipe"]))
    assert found.answer == NOT_YET and "on GPUs" in found.reason, "a trace of the CPU is another one"
    assert judged(wanted, there, None) == Verdict(NOT_YET, "", "no resource traces were stored")


def test_cpu_use_is_of_the_cores_that_ranks_were_given(frame: pd.DataFrame) -> None:
    there, traces = on_gpus(frame, "speedup", GAINS), resources("speedup", ["gpipe"], device="cuda")
    found = judged(claim("model-cpu-use") | {"value": 50.0}, there, traces)
    assert found.answer == SUPPORTED and "50 [50, 50] % of 2 cores" in found.measured
    assert judged(claim("model-cpu-use"), there, traces).answer == CONTRADICTED


def test_cpu_use_that_swings_varies_much(frame: pd.DataFrame) -> None:
    there, traces = on_gpus(frame, "speedup", GAINS), resources("speedup", ["gpipe"], device="cuda")
    assert judged(claim("model-cpu-varies"), there, traces).answer == SUPPORTED
    flat = traces.assign(cpu_percent=100.0 + traces["seconds"])
    assert judged(claim("model-cpu-varies"), there, flat).answer == CONTRADICTED

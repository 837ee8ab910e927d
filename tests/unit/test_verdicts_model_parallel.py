"""Verdicts on model parallelism: each turns with the records, and no row of the CPU stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from fake_distribution import not_run, scaled, without
from fake_pipelines import IDLE, NO_CUDA, SPEEDUP, claim, hybrid_records, records, resources

from lockstep.published import read_claims
from lockstep.report import no_records
from lockstep.verdicts import NOT_MEASURABLE, NOT_REPRODUCED, NOT_YET, REPRODUCED, Verdict, judge

THREE, FOUR = "03_pipelined_model_parallelism", "04_hybrid_parallelism"
CPU = {"naive-model-slower", "pipelining-pays", "cpu-model-parallel-overhead", "model-parallel-no-sync"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


@pytest.fixture(scope="module")
def both() -> pd.DataFrame:
    return hybrid_records()


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"].isin([THREE, FOUR])].to_dict("records")


def judged(row: dict[str, Any], rounds: int = 5) -> Verdict:
    stored = records(rounds) if row["notebook"] == THREE else hybrid_records(rounds)
    return judge(row, stored, resources("speedup", ("gpipe", "1f1b"), rounds))


def test_every_claim_has_its_function_and_gpus_are_missing_here() -> None:
    assert len(own_claims()) == 17 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        found, name = judged(row), row["id"].removeprefix("s2m-")
        if name in CPU:
            assert found.verdict in (REPRODUCED, NOT_REPRODUCED), name
        else:
            assert found == Verdict(NOT_MEASURABLE, "", NO_CUDA), name


def test_without_records_and_with_too_few_rounds_nothing_is_decided() -> None:
    for row in own_claims():
        assert judge(row, no_records()).verdict == NOT_YET, row["id"]
        assert judged(row, rounds=4).verdict in {NOT_YET, NOT_MEASURABLE}, row["id"]


# --- on the CPU ---


def test_naive_model_parallelism_is_held_against_one_core(frame: pd.DataFrame) -> None:
    found = judge(claim("naive-model-slower"), frame)
    assert found.verdict == REPRODUCED and found.reason.endswith("a device is a core here")
    assert f"SimpleBig: {1 / SPEEDUP['naive_pipeline']:.3g} " in found.measured
    fast = scaled(frame, "images_per_second", 1.3, strategy="naive_pipeline", use_case="ComplexSmall")
    assert judge(claim("naive-model-slower"), fast).verdict == NOT_REPRODUCED
    failed = not_run(frame, "failed", "rank 1 was killed", strategy="naive_pipeline", device="cpu")
    found = judge(claim("naive-model-slower"), failed)
    assert found.verdict == NOT_YET and "rank 1 was killed" in found.reason


def test_pipelining_pays_if_the_fastest_schedule_beats_one_core(frame: pd.DataFrame) -> None:
    found = judge(claim("pipelining-pays"), frame)
    assert found.verdict == REPRODUCED
    told = "1.65 [1.65, 1.65] times the images/s of one core, by 2 cores at batch 256 (the fastest of 2 schedules: "
    assert told in found.measured
    slow = scaled(frame, "images_per_second", 0.5, use_case="SimpleBig", experiment="speedup", schedule="1f1b")
    slow = scaled(
        slow, "images_per_second", 0.5, use_case="SimpleBig", experiment="speedup", schedule="gpipe", device="cpu"
    )
    assert judge(claim("pipelining-pays"), slow).verdict == NOT_REPRODUCED


def test_a_gain_over_one_core_contradicts_that_it_is_overhead_only(frame: pd.DataFrame) -> None:
    """Slower than two cores spent otherwise, but 1.65 times one core: a gain."""
    found = judge(claim("cpu-model-parallel-overhead"), frame)
    assert found.verdict == NOT_REPRODUCED and "a gain: the pipeline is faster" in found.reason
    assert "over one core: 1.65 " in found.measured and "over threads inside operators: 0.917 " in found.measured
    assert "compared: the fastest of 2 schedules: pipeline: 1F1B" in found.reason


def test_overhead_only_means_no_gain_over_either(frame: pd.DataFrame) -> None:
    slow = frame
    for name in ("gpipe", "1f1b"):
        slow = scaled(slow, "images_per_second", 0.55, strategy=name, experiment="speedup", device="cpu")
    found = judge(claim("cpu-model-parallel-overhead"), slow)
    assert found.verdict == REPRODUCED and "no gain" in found.reason
    alone = without(frame, strategy="intra_op")
    found = judge(claim("cpu-model-parallel-overhead"), alone)
    assert found == Verdict(NOT_YET, "", "no rows that spend the same cores otherwise")


def test_a_pipeline_exchanges_no_gradients(frame: pd.DataFrame) -> None:
    found = judge(claim("model-parallel-no-sync"), frame)
    share = f"{100 * IDLE:.3g} [{100 * IDLE:.3g}, {100 * IDLE:.3g}] % waiting"
    assert found.verdict == REPRODUCED and share in found.measured
    sums = frame.assign(exchange_seconds=0.02 * frame["step_seconds"])
    assert judge(claim("model-parallel-no-sync"), sums).verdict == NOT_REPRODUCED


# --- on GPUs ---


def on_gpus(frame: pd.DataFrame, experiment: str, gains: dict[str, float]) -> pd.DataFrame:
    """The skipped rows of an experiment as if GPUs had run them: 10 images/s alone, times the gain of each strategy.
    Several replicas of a pipeline are the strategy `hybrid` there."""
    frame = frame.copy()
    own = (frame["experiment"] == experiment) & (frame["device"] == "cuda")
    assert own.any()
    combined = (frame["stages"] > 1) & (frame["sync"] == "allreduce")
    gain = frame["strategy"].mask(combined, "hybrid").map(gains)
    frame.loc[own, "images_per_second"] = (10 * gain / (1 + 0.1 * frame["round"]))[own]
    frame.loc[own, "step_seconds"] = (frame["global_batch_size"] / frame["images_per_second"])[own]
    frame.loc[own, ["status", "reason"]] = ["ok", ""]
    return frame


GAINS = {"sequential": 1.0, "naive_pipeline": 0.9, "gpipe": 1.8, "processes_allreduce": 1.5}


@pytest.mark.parametrize(("value", "word"), [(1.8, REPRODUCED), (6.74, NOT_REPRODUCED)])
def test_a_published_speedup_of_gpus_is_over_one_gpu(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judge(claim("table2-gpu-model-simplebig") | {"value": value}, on_gpus(frame, "speedup", GAINS))
    assert found.verdict == word and found.measured.startswith("1.8 ") and "cores" not in found.measured
    assert found.numbers[0][1].median == pytest.approx(1.8)


def test_model_parallelism_is_compared_with_data_parallelism_on_gpus(frame: pd.DataFrame) -> None:
    assert judge(claim("model-beats-data"), on_gpus(frame, "speedup", GAINS)).verdict == REPRODUCED
    slow = on_gpus(frame, "speedup", GAINS | {"gpipe": 1.4})
    found = judge(claim("model-beats-data"), slow)
    assert found.verdict == NOT_REPRODUCED and "other way round" in found.reason


def hybrids_on_gpus(frame: pd.DataFrame, hybrid: float) -> pd.DataFrame:
    gains = {"sequential": 1.0, "processes_allreduce": 1.5, "gpipe": 1.8, "hybrid": hybrid}
    return on_gpus(frame, "hybrid", gains)


@pytest.mark.parametrize(("hybrid", "word"), [(1.65, REPRODUCED), (1.3, NOT_REPRODUCED), (2.0, NOT_REPRODUCED)])
def test_the_hybrid_lies_between_the_other_two(both: pd.DataFrame, hybrid: float, word: str) -> None:
    found = judge(claim("hybrid-between"), hybrids_on_gpus(both, hybrid))
    assert found.verdict == word and "hybrid over data: " in found.measured


@pytest.mark.parametrize(("value", "word"), [(1.65, REPRODUCED), (3.85, NOT_REPRODUCED)])
def test_the_hybrids_speedup_is_of_replicas_of_a_pipeline(both: pd.DataFrame, value: float, word: str) -> None:
    found = judge(claim("table2-gpu-hybrid-simplebig") | {"value": value}, hybrids_on_gpus(both, 1.65))
    assert found.verdict == word and found.measured.startswith("1.65 ")


# --- Figure 4 ---


@pytest.mark.parametrize(("value", "word"), [(5, REPRODUCED), (14, NOT_REPRODUCED)])
def test_threads_are_those_of_the_trace_on_gpus(frame: pd.DataFrame, value: float, word: str) -> None:
    there = on_gpus(frame, "speedup", GAINS)
    asked = claim("model-threads") | {"value": value}
    assert judge(asked, there, resources("speedup", ["gpipe"], device="cuda")).verdict == word
    found = judge(asked, there, resources("speedup", ["gpipe"]))
    assert found.verdict == NOT_YET and "on GPUs" in found.reason, "a trace of the CPU is another one"
    assert judge(asked, there, None) == Verdict(NOT_YET, "", "no resource traces were stored")


def test_cpu_use_is_of_the_cores_that_ranks_were_given(frame: pd.DataFrame, both: pd.DataFrame) -> None:
    there, traces = on_gpus(frame, "speedup", GAINS), resources("speedup", ["gpipe"], device="cuda")
    found = judge(claim("model-cpu-use") | {"value": 50.0}, there, traces)
    assert found.verdict == REPRODUCED and "50 [50, 50] % of 2 cores" in found.measured
    assert judge(claim("model-cpu-use"), there, traces).verdict == NOT_REPRODUCED
    traces = resources("hybrid", ["gpipe"], device="cuda")
    found = judge(claim("hybrid-cpu-use") | {"value": 25.0}, hybrids_on_gpus(both, 1.65), traces)
    assert found.verdict == REPRODUCED and "% of 4 cores" in found.measured


def test_cpu_use_that_swings_varies_much(frame: pd.DataFrame) -> None:
    there, traces = on_gpus(frame, "speedup", GAINS), resources("speedup", ["gpipe"], device="cuda")
    assert judge(claim("model-cpu-varies"), there, traces).verdict == REPRODUCED
    flat = traces.assign(cpu_percent=100.0 + traces["seconds"])
    assert judge(claim("model-cpu-varies"), there, flat).verdict == NOT_REPRODUCED


def test_memory_of_the_host_with_the_hybrid(both: pd.DataFrame) -> None:
    there = hybrids_on_gpus(both, 1.65).assign(peak_pss_bytes=2.0**30)
    found = judge(claim("hybrid-ram"), there)
    assert found.verdict == REPRODUCED and found.reason.startswith("no more: ")
    more = there.assign(peak_pss_bytes=there["peak_pss_bytes"].where(there["sync"] == "local", 1.5 * 2**30))
    assert judge(claim("hybrid-ram"), more).verdict == NOT_REPRODUCED
    found = judge(claim("hybrid-gpu-memory"), there)
    assert found.verdict == NOT_YET and "no row holds the memory of a GPU" in found.reason

"""Verdicts on model parallelism: each turns with the records, and no row of the CPU stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import not_run, scaled, without
from fake_pipelines import DECODED, NO_CUDA, SPEEDUP, claim, noisy, on_gpus, records, resources
from lockstep.analysis.judging import judge
from lockstep.analysis.published import AUDIT, read_claims, read_ledger
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    MEASURED,
    NEEDS_HARDWARE,
    NOT_YET,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.e03_pipelined_model_parallelism import EXPERIMENT
from lockstep.experiments.e03_pipelined_model_parallelism.verdicts import Pipelined, schedules, speedup_cell

RULES = EXPERIMENT.verdicts
CPU = {"naive-model-slower", "pipelining-pays", "cpu-model-parallel-overhead"}
TRACES = {"model-threads", "model-cpu-varies"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == EXPERIMENT.name].to_dict("records")


def judged(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judge(row, Stored(frame, {} if traces is None else {"resources": traces}), RULES)


def test_every_claim_has_an_answer_with_its_grade_and_traces_need_the_hardware(frame: pd.DataFrame) -> None:
    assert len(own_claims()) == 9 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        found, name = judged(row, frame, resources("speedup", ("gpipe", "1f1b"))), row["id"].removeprefix("s2m-")
        if name in TRACES:
            assert found.answer == NEEDS_HARDWARE and NO_CUDA in found.reason and "two CUDA GPUs" in found.reason, name
        else:
            assert found.answer in (SUPPORTED, CONTRADICTED), name
            assert (found.grade == MEASURED) == (name in CPU), name


def test_what_cannot_be_otherwise_is_listed_and_not_judged() -> None:
    ledger = read_ledger().set_index("id")
    assert ledger.loc["s2m-model-parallel-no-sync", "kind"] == AUDIT


def test_without_records_and_with_too_few_rounds_nothing_is_measured() -> None:
    traces = resources("speedup", ("gpipe", "1f1b"), rounds=4)
    for row in own_claims():
        for found in (judge(row, no_records(), RULES), judged(row, records(4), traces)):
            assert found.answer in (NOT_YET, NEEDS_HARDWARE, UNDECIDED) or found.grade in (PAPER, BOUND), row["id"]


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


def test_an_interval_that_holds_1_decides_nothing_and_says_how_many_rounds_would(frame: pd.DataFrame) -> None:
    swinging = noisy(frame, 0.2, strategy="naive_pipeline")
    found = judged(claim("naive-model-slower"), swinging)
    assert found.answer == UNDECIDED and found.rounds_more > 1


def test_a_use_case_that_was_not_measured_is_left_out(frame: pd.DataFrame) -> None:
    """Section 3.3.1 names none."""
    found = judged(claim("naive-model-slower"), without(frame, use_case="ComplexSmall"))
    assert found.answer == SUPPORTED and "ComplexSmall" not in found.measured


def slowed(frame: pd.DataFrame, factor: float, *use_cases: str) -> pd.DataFrame:
    """Pipelines that are slower on the CPU."""
    for name in ("gpipe", "1f1b"):
        for use_case in use_cases:
            rows = {"strategy": name, "experiment": "speedup", "device": "cpu", "use_case": use_case}
            frame = scaled(frame, "images_per_second", factor, **rows)
    return frame


def test_pipelining_pays_if_it_beats_one_core_with_some_batch_and_model(frame: pd.DataFrame) -> None:
    found = judged(claim("pipelining-pays"), frame)
    assert found.answer == SUPPORTED
    text = (
        "1.65 [1.65, 1.65] times the images/s of one core, by 2 cores at batch 256 in 8 micro-batches (the fastest of"
    )
    assert text in found.measured
    assert "over the same two cores spent otherwise it gives 0.917 " in found.reason
    assert "of two GPUs over one, modelled: " in found.reason
    assert judged(claim("pipelining-pays"), slowed(frame, 0.5, "SimpleBig")).answer == SUPPORTED, "it depends"
    assert judged(claim("pipelining-pays"), slowed(frame, 0.5, "SimpleBig", "ComplexSmall")).answer == CONTRADICTED
    level = noisy(slowed(frame, 1 / 1.65, "SimpleBig", "ComplexSmall"), 0.1, strategy="1f1b")
    assert judged(claim("pipelining-pays"), noisy(level, 0.1, strategy="gpipe")).answer == UNDECIDED


def test_the_fastest_schedule_pays_for_being_chosen(frame: pd.DataFrame) -> None:
    """Two schedules stood beside one core: the interval is wider than that of the faster one alone."""
    swinging = noisy(noisy(frame, 0.1, strategy="gpipe"), 0.1, strategy="1f1b")
    alone = speedup_cell(swinging, "SimpleBig", strategy="sequential")
    found = schedules(swinging, "SimpleBig")
    assert len(found) == 2
    both, one = Pipelined.over(swinging, found, alone), Pipelined.over(swinging, found[1:], alone)
    assert both.ratio.value == one.ratio.value and both.ratio.half_width > one.ratio.half_width
    assert both.name.startswith("the fastest of 2 schedules: ") and len(both.sides) == 3
    text = judged(claim("pipelining-pays"), swinging).measured
    assert str(both.ratio) in text, "and so judged"


def test_a_gain_over_one_core_alone_is_no_gain_of_the_second(frame: pd.DataFrame) -> None:
    """1.65 times one core, and less than two cores give otherwise."""
    found = judged(claim("cpu-model-parallel-overhead"), frame)
    assert found.answer == SUPPORTED and "no gain of 10% or more on the same cores" in found.reason
    assert "over threads inside operators: 0.917 " in found.measured


def test_one_way_that_is_as_good_is_enough_and_all_must_be_worse_to_contradict(frame: pd.DataFrame) -> None:
    one = scaled(frame, "images_per_second", 0.5, strategy="intra_op")
    assert judged(claim("cpu-model-parallel-overhead"), one).answer == SUPPORTED, "processes are still faster"
    both = scaled(one, "images_per_second", 0.5, strategy="processes")
    found = judged(claim("cpu-model-parallel-overhead"), both)
    assert found.answer == CONTRADICTED and "a gain: the pipeline is faster" in found.reason
    level = scaled(both, "images_per_second", 1.65 / 0.95, strategy="processes")
    assert judged(claim("cpu-model-parallel-overhead"), noisy(level, 0.2, strategy="processes")).answer == UNDECIDED
    alone = without(without(frame, strategy="intra_op"), strategy="processes")
    found = judged(claim("cpu-model-parallel-overhead"), alone)
    assert found.answer == NOT_YET and found.reason == "no rows that spend the same cores otherwise"


# --- on GPUs ---


GAINS = {"sequential": 1.0, "naive_pipeline": 0.9, "gpipe": 1.8, "processes_allreduce": 1.5}


def test_without_gpus_two_of_them_bound_what_one_gives(frame: pd.DataFrame) -> None:
    found = judged(claim("table2-gpu-model-simplebig"), frame)
    assert (found.answer, found.grade) == (CONTRADICTED, BOUND) and "at least 9 GPUs" in found.reason
    assert "two CUDA GPUs" in found.reason
    small = judged(claim("table2-gpu-model-simplebig") | {"value": 1.9}, frame)
    assert (small.answer, small.grade) == (UNDECIDED, BOUND)


@pytest.mark.parametrize(("value", "word"), [(1.8, SUPPORTED), (6.74, CONTRADICTED)])
def test_a_published_speedup_of_gpus_is_over_one_gpu(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judged(claim("table2-gpu-model-simplebig") | {"value": value}, on_gpus(frame, "speedup", GAINS))
    assert found.answer == word and found.measured.startswith("1.8 ") and "cores" not in found.measured
    assert found.grade == MEASURED and found.numbers[0][1].value == pytest.approx(1.8)


def test_model_parallelism_is_compared_with_data_parallelism_on_gpus(frame: pd.DataFrame) -> None:
    found = judged(claim("model-beats-data"), frame)
    assert (found.answer, found.grade) == (SUPPORTED, PAPER) and "SimpleBig: 8.01 (model, Table 2)" in found.measured
    found = judged(claim("model-beats-data"), on_gpus(frame, "speedup", GAINS))
    assert (found.answer, found.grade) == (SUPPORTED, MEASURED)
    slow = on_gpus(frame, "speedup", GAINS | {"gpipe": 1.4})
    assert judged(claim("model-beats-data"), slow).answer == CONTRADICTED


# --- Figure 4 ---


@pytest.mark.parametrize(("value", "word"), [(5, SUPPORTED), (14, CONTRADICTED)])
def test_threads_are_those_of_the_trace_on_gpus(frame: pd.DataFrame, value: float, word: str) -> None:
    there = on_gpus(frame, "speedup", GAINS)
    wanted = claim("model-threads") | {"value": value}
    assert judged(wanted, there, resources("speedup", ["gpipe"], device="cuda")).answer == word
    found = judged(wanted, there, resources("speedup", ["gpipe"]))
    assert found.answer == NEEDS_HARDWARE and "on GPUs" in found.reason, "a trace of the CPU is another one"


def test_cpu_use_is_of_the_cores_that_ranks_were_given(frame: pd.DataFrame) -> None:
    there, traces = on_gpus(frame, "speedup", GAINS), resources("speedup", ["gpipe"], device="cuda")
    found = judged(claim("model-cpu-use") | {"value": 50.0}, there, traces)
    assert found.answer == SUPPORTED and "50 [50, 50] % of 2 cores" in found.measured
    assert judged(claim("model-cpu-use"), there, traces).answer == CONTRADICTED


def test_without_gpus_cpu_use_is_held_against_what_decoding_costs(frame: pd.DataFrame) -> None:
    """8 % at 8.01 / 1.25 times the images/s is an 80th of the CPU per image."""
    found = judged(claim("model-cpu-use"), frame)
    assert (found.answer, found.grade) == (CONTRADICTED, BOUND) and "1/80 of data parallelism's" in found.measured
    assert f"at most {DECODED / 80:.3g}" in found.reason
    cheap = scaled(frame, "images_per_second", 200 / DECODED, strategy="decode")
    assert judged(claim("model-cpu-use"), cheap).answer == UNDECIDED
    assert judged(claim("model-cpu-use"), without(frame, strategy="decode")).answer == NOT_YET


def test_cpu_use_that_swings_varies_much(frame: pd.DataFrame) -> None:
    there, traces = on_gpus(frame, "speedup", GAINS), resources("speedup", ["gpipe"], device="cuda")
    assert judged(claim("model-cpu-varies"), there, traces).answer == SUPPORTED
    flat = traces.assign(cpu_percent=100.0 + traces["seconds"])
    assert judged(claim("model-cpu-varies"), there, flat).answer == CONTRADICTED

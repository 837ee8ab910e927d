"""Verdicts on Table 1's GPUs: without any by the paper's table, counted memory and a model; with some by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fake_records import records, resources
from lockstep.analysis.judging import judge
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    MEASURED,
    MODEL,
    NEEDS_HARDWARE,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.e02_threads_vs_processes import EXPERIMENT


def judged(verdict: str, frame: pd.DataFrame, **changes: Any) -> Verdict:
    row = {"id": "x", "use_case": "both", "value": float("nan"), "unit": "", "note": "", "verdict": verdict}
    return judge(row | changes, Stored(frame), EXPERIMENT.verdicts)


def test_figure_3_needs_a_gpu_and_says_which() -> None:
    found = judged("gpu_threads", records())
    assert found.answer == NEEDS_HARDWARE and "no CUDA device" in found.reason and "one CUDA GPU" in found.reason


@pytest.mark.parametrize("missing", ["GPUs", "records"])
@pytest.mark.parametrize(
    ("verdict", "word", "grade"),
    [
        ("gpu_gains_less", SUPPORTED, PAPER),
        ("gpu_worst_simple_big", SUPPORTED, PAPER),
        ("gpu_processes_overflow", CONTRADICTED, MODEL),
    ],
)
def test_tables_and_a_model_answer_without_gpus(verdict: str, word: str, grade: str, missing: str) -> None:
    found = judged(verdict, records() if missing == "GPUs" else no_records().records)
    assert (found.answer, found.grade) == (word, grade) and "CUDA GPU" in found.reason


def test_a_speedup_over_one_gpu_is_modelled_without_any() -> None:
    found = judged("gpu_speedup", records(), use_case="SimpleBig", value=1.25)
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and "two CUDA GPUs" in found.reason
    assert judged("gpu_speedup", records(), use_case="SimpleBig", value=2.5).answer == CONTRADICTED


def on_gpus(simple_big: float, complex_small: float) -> pd.DataFrame:
    """Records in which GPUs ran what was skipped: two of them so many times as fast as one."""
    frame = records()
    skipped = frame[frame["device"] == "cuda"].drop_duplicates(["use_case", "strategy"])
    gains = skipped["use_case"].map({"SimpleBig": simple_big, "ComplexSmall": complex_small})
    speeds = 100.0 * gains.where(skipped["strategy"] != "sequential", 1.0)
    ran = skipped.assign(status="ok", reason="", images_per_second=speeds)
    rounds = [ran.assign(round=number) for number in range(8)]
    return pd.concat([frame[frame["device"] != "cuda"], *rounds], ignore_index=True)


@pytest.mark.parametrize(("simple_big", "word"), [(1.2, SUPPORTED), (1.8, CONTRADICTED)])
def test_measured_gpus_stand_above_table_and_model(simple_big: float, word: str) -> None:
    found = judged("gpu_worst_simple_big", on_gpus(simple_big, 1.5))
    assert (found.answer, found.grade) == (word, MEASURED)
    number = judged("gpu_speedup", on_gpus(simple_big, 1.5), use_case="ComplexSmall", value=1.5)
    assert (number.answer, number.grade) == (SUPPORTED, MEASURED)


def on_one_gpu(pss: float) -> pd.DataFrame:
    """One GPU stood beside each case of the CPU; its process held so many times the memory of the smallest of them."""
    frame = records()
    frame = frame[frame["device"] == "cpu"].copy()
    excepted = (frame["use_case"] == "SimpleBig") & (frame["strategy"] == "processes")
    frame.loc[excepted, "peak_pss_bytes"] *= 0.01  # the paper's own exception
    cases = frame[frame["strategy"].isin(["threads", "processes"]) & (frame["experiment"] == "table1")]
    cases = cases[(cases["variant"] == "a") & (cases["precision"] == "float32")]
    gpu = cases.assign(strategy="sequential", sync="local", device="cuda", workers=1, cores_per_worker=1)
    gpu["peak_pss_bytes"] = pss * cases["peak_pss_bytes"][~excepted].min()
    return pd.concat([frame, gpu.drop_duplicates(["use_case", "round"])], ignore_index=True)


def traced(threads: int, cores_busy: float, jitter: float, traces: int = 5) -> pd.DataFrame:
    """Traces of the CPU's cases, whose CPU use jumps by a tenth, and of one GPU's host."""
    beside = resources(traces)
    beside["cpu_percent"] *= 1 + 0.1 * (np.arange(len(beside)) % 2)
    gpu = beside[beside["strategy"] == "threads"].copy()
    wave = 1 + jitter * (np.arange(len(gpu)) % 2)
    gpu = gpu.assign(strategy="sequential", device="cuda", threads=threads, cpu_percent=100 * cores_busy * wave)
    return pd.concat([beside, gpu.assign(round=gpu["round"] + 5000)], ignore_index=True)


def seen(verdict: str, traces: pd.DataFrame, **changes: Any) -> Verdict:
    row = {"id": "x", "use_case": "both", "value": float("nan"), "unit": "", "note": "", "verdict": verdict}
    elsewhere = Stored(on_one_gpu(0.5), {"resources": traces}, gpus="An accelerator beside 16 cores")
    return judge(row | changes, Stored(records(), beside=elsewhere), EXPERIMENT.verdicts)


@pytest.mark.parametrize(("threads", "word"), [(13, SUPPORTED), (6, CONTRADICTED)])
def test_threads_beside_one_gpu_are_those_of_its_trace(threads: int, word: str) -> None:
    found = seen("gpu_threads", traced(threads, 1.0, 0.0), value=13.0)
    assert (found.answer, found.grade) == (word, MEASURED) and "An accelerator beside 16 cores" in found.measured


def test_four_traces_of_a_gpu_are_too_few_and_are_counted() -> None:
    found = seen("gpu_threads", traced(6, 1.0, 0.0, traces=4), value=13.0)
    assert found.answer == UNDECIDED
    assert "only 4 rounds of mean 6, An accelerator beside 16 cores; an interval needs 5" in found.reason


@pytest.mark.parametrize(("busy", "word"), [(0.97, SUPPORTED), (0.4, CONTRADICTED)])
def test_cpu_use_beside_one_gpu_is_of_the_cores_it_was_given(busy: float, word: str) -> None:
    found = seen("gpu_cpu_use", traced(6, busy, 0.0), value=100.0)
    assert found.answer == word and "% of 1 core, An accelerator" in found.measured


@pytest.mark.parametrize(("jitter", "word"), [(0.01, SUPPORTED), (0.4, CONTRADICTED)])
def test_a_gpus_host_is_steadier_if_its_cpu_use_jumps_less(jitter: float, word: str) -> None:
    assert seen("gpu_steadier", traced(6, 0.9, jitter)).answer == word


@pytest.mark.parametrize(("pss", "word"), [(0.5, SUPPORTED), (2.0, CONTRADICTED)])
def test_ram_beside_a_gpu_is_compared_with_the_cases_of_its_own_host(pss: float, word: str) -> None:
    assert judged("gpu_less_ram", on_one_gpu(pss)).answer == word
    alone = on_one_gpu(pss)
    found = judged("gpu_less_ram", alone[alone["variant"] == "a"])
    assert found.answer == UNDECIDED and "times the GPU's peak PSS" in found.measured, "without an A/A pair"
    assert judged("gpu_less_ram", records()).answer == NEEDS_HARDWARE

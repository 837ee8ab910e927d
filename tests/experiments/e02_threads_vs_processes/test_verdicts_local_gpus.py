"""Verdicts on Table 1's GPUs: without any by the paper's table, counted memory and a model; with some by them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_records import records
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

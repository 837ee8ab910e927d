"""Verdicts on notebook 01's claims."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from fake_single_node import records
from lockstep.analysis.judging import judge as judge_claim
from lockstep.analysis.rules import enough
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import CONTRADICTED, MEASURED, MODEL, NOT_YET, SUPPORTED, UNDECIDED, NotNow, Verdict
from lockstep.experiments.e01_single_node_baselines.verdicts import RULES

CLAIM: dict[str, Any] = {"id": "x", "use_case": "both", "verdict": "gpu_beats_cpu"}


def judge(frame: pd.DataFrame) -> Verdict:
    return judge_claim(CLAIM, Stored(frame), RULES)


def with_gpu(times_best: float, rounds: int = 8) -> pd.DataFrame:
    """Records in which a GPU stood beside the fastest rung, and was so many times as fast."""
    frame = records(rounds)
    best = frame[frame["strategy"] == "channels_last"].drop_duplicates(["round", "use_case"])
    best = best[best["experiment"] == "ladder"]
    gpu = frame[(frame["device"] == "cuda") & (frame["experiment"] == "ladder")].drop_duplicates("use_case")
    on_gpu = gpu.drop(columns=["round", "images_per_second", "measuring_seconds", "status", "reason"]).merge(
        best[["use_case", "round", "images_per_second", "measuring_seconds", "status", "reason"]], on="use_case"
    )
    on_gpu["images_per_second"] *= times_best
    rest = frame[(frame["device"] != "cuda") | (frame["experiment"] != "ladder")]
    return pd.concat([rest, on_gpu[frame.columns]], ignore_index=True)


def test_a_gpu_is_compared_with_the_best_setting_of_the_cpu() -> None:
    """Twice the fastest rung, not twice the baseline."""
    found = judge(with_gpu(2.0))
    assert (found.answer, found.grade) == (SUPPORTED, MEASURED)
    assert "SimpleBig: 2 [2, 2] times the best CPU setting" in found.measured
    assert judge(with_gpu(0.5)).answer == CONTRADICTED
    assert judge(with_gpu(1.0)).answer == UNDECIDED


def test_the_best_setting_of_the_cpu_pays_for_being_chosen() -> None:
    """1.15 times the fastest of five by rounds that swing: enough beside one setting, and too little beside five."""
    frame = with_gpu(1.15)
    frame.loc[frame["device"] == "cuda", "images_per_second"] *= 1 + 0.06 * (frame["round"] % 2)
    several, alone = judge(frame), judge(frame[frame["strategy"].isin(["sequential", "channels_last", "bfloat16"])])
    ends = [float(re.findall(r"SimpleBig: [\d.]+ \[([\d.]+)", found.measured)[0]) for found in (several, alone)]
    assert ends[0] < ends[1]


def test_without_a_gpu_the_model_of_one_stands_beside_this_cpu() -> None:
    found = judge(records())
    assert (found.answer, found.grade) == (SUPPORTED, MODEL) and "CUDA GPU" in found.reason
    fast = records()
    fast["images_per_second"] *= 1000
    assert judge(fast).answer == CONTRADICTED, "no GPU of those years is as fast as that"
    assert judge(records().iloc[:0]).answer == NOT_YET
    few = judge(records(1))
    assert (few.answer, few.grade, few.measured) == (UNDECIDED, MODEL, ""), "what would decide it is a model"
    assert "only 2 rounds; an interval needs 5" in few.reason


@pytest.mark.parametrize(("rounds", "few"), [(1, "only 1 round; an interval needs 5"), (4, "only 4 rounds; an ")])
def test_too_few_rounds_are_counted(rounds: int, few: str) -> None:
    with pytest.raises(NotNow, match=few) as stopped:
        enough(rounds)
    assert stopped.value.verdict.grade == MEASURED
    enough(5)

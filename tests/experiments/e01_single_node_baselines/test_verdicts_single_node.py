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
    assert re.search(r"SimpleBig: 2 \[2, 2\] times the images/s of `channels_last`, the nearest of \d", found.measured)
    assert judge(with_gpu(0.5)).answer == CONTRADICTED
    assert judge(with_gpu(1.0)).answer == UNDECIDED


def test_a_gpu_must_beat_each_setting_of_the_cpu_and_pays_for_none_that_it_beats() -> None:
    """All hold together with the largest chance of theirs. Seen: five rounds of a ratio of 20 on an H100 had an
    interval without ends, since its two settings shared 5 %."""
    few = judge(with_gpu(20.0, rounds=5))
    assert (few.answer, few.grade) == (SUPPORTED, MEASURED)
    slower = with_gpu(2.0)
    ahead = (slower["strategy"] == "fused") & (slower["use_case"] == "SimpleBig")
    slower.loc[ahead, "images_per_second"] *= 100
    assert judge(slower).answer == CONTRADICTED, "one setting of one use case is ahead of it"
    slower.loc[ahead, "images_per_second"] *= 0.02 * (1 + 0.3 * (slower["round"] % 3))
    assert judge(slower).answer == UNDECIDED, "one may be as fast"


def test_a_gpu_elsewhere_answers_where_here_is_none_and_is_named() -> None:
    """A claim about GPUs is looked up in the folder beside; every other one in its own."""
    elsewhere = Stored(with_gpu(3.0), gpus="An accelerator beside 16 cores")
    here = Stored(records(), beside=elsewhere)
    found = judge_claim(CLAIM, here, RULES)
    assert (found.answer, found.grade) == (SUPPORTED, MEASURED)
    assert found.measured.count("An accelerator beside 16 cores") == 2
    own = Stored(with_gpu(0.5), beside=elsewhere)
    assert judge_claim(CLAIM, own, RULES).answer == CONTRADICTED, "what this machine's GPU measured comes first"


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

"""Verdicts on notebook 01's claims."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fake_single_node import records
from lockstep.analysis import verdicts
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e01_single_node_baselines.verdicts import RULES

CLAIM: dict[str, Any] = {"id": "x", "use_case": "both", "verdict": "gpu_beats_cpu"}


def judge(frame: pd.DataFrame) -> Verdict:
    return verdicts.judge(CLAIM, Stored(frame), RULES)


def test_the_gpu_is_compared_with_the_best_setting_of_the_cpu() -> None:
    """Twice the fastest rung, not twice the baseline."""
    frame = records()
    assert judge(frame) == Verdict(NEEDS_HARDWARE, "", "no CUDA device")
    on_gpu = (frame["device"] == "cuda") & (frame["experiment"] == "ladder")
    best = frame[frame["strategy"] == "channels_last"].set_index(["round", "use_case"])["images_per_second"].dropna()
    frame.loc[on_gpu, "status"] = "ok"
    for index, row in frame[on_gpu].iterrows():
        frame.loc[index, "images_per_second"] = 2 * best[row["round"], row["use_case"]]
    found = judge(frame)
    assert found.answer == SUPPORTED and "SimpleBig: 2 [2, 2] times the best CPU setting" in found.measured
    frame.loc[on_gpu, "images_per_second"] /= 4
    assert judge(frame).answer == CONTRADICTED
    assert judge(frame.iloc[:0]).answer == NOT_YET

"""Verdicts on notebook 01's claims."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fake_single_node import records
from lockstep.analysis.judging import judge as judge_claim
from lockstep.analysis.rules import enough
from lockstep.analysis.stored import Stored, read_stored
from lockstep.analysis.verdicts import CONTRADICTED, MEASURED, MODEL, NOT_YET, SUPPORTED, UNDECIDED, NotNow, Verdict
from lockstep.experiments.e01_single_node_baselines.verdicts import RULES
from lockstep.records.places import repository_root

CLAIM: dict[str, Any] = {"id": "x", "use_case": "both", "verdict": "gpu_beats_cpu"}


def judge(frame: pd.DataFrame) -> Verdict:
    return judge_claim(CLAIM, Stored(frame), RULES)


def with_gpu(times_best: float, rounds: int = 8) -> pd.DataFrame:
    """Records in which a GPU stood beside every rung, and was so many times as fast as the fastest in float32."""
    frame = records(rounds)
    ladder = frame[frame["experiment"] == "ladder"]
    gpu = ladder[ladder["device"] == "cuda"].drop_duplicates("use_case")
    best = ladder[(ladder["strategy"] == "channels_last") & (ladder["variant"] == "a")]
    usual, own = (best.groupby(by)["images_per_second"].median() for by in ("use_case", ["use_case", "round"]))
    ran = ladder[ladder["device"] == "cpu"].drop_duplicates(["use_case", "round"])
    names = ["use_case", "round", "measuring_seconds", "status", "reason"]
    on_gpu = gpu.drop(columns=names[1:]).merge(ran[names], on="use_case")
    places = zip(on_gpu["use_case"], on_gpu["round"], strict=True)
    on_gpu["images_per_second"] = [times_best * own.get((name, at), usual[name]) for name, at in places]
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
    assert [name for name, _ in found.numbers] == ["ComplexSmall", "SimpleBig"]
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


def test_a_setting_with_few_rounds_does_not_silence_another_that_contradicts() -> None:
    frame = with_gpu(0.5)
    few = frame[(frame["strategy"] != "fused") | (frame["round"] % 8 < 1)]
    assert judge(few).answer == CONTRADICTED


def test_the_folder_of_a_gpu_stands_beside_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a relative path; and it is read by nobody who asks nothing of GPUs."""
    monkeypatch.chdir(repository_root() / "results" / "reference")
    here = read_stored(Path("01_single_node_baselines"))
    assert isinstance(here.beside, Path) and not here.gpus
    assert here.on_gpus.gpus.endswith("beside 16 cores") and "cuda" in set(here.on_gpus.of("ladder")["device"])
    assert read_stored(Path("03_pipelined_model_parallelism")).beside is None

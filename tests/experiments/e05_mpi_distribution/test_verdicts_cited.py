"""Verdicts on what the paper quotes from others, judged where it was measured here."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import NO_CLUSTER, claim, not_run, records, scaled
from lockstep.analysis.judging import judge
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame) -> Verdict:
    return judge(row, Stored(frame), EXPERIMENT.verdicts)


def test_das_two_nodes_and_sixteen(frame: pd.DataFrame) -> None:
    found = judged(claim("das-2"), frame)
    assert found.answer == SUPPORTED and found.measured.startswith("1.75 [1.75, 1.75] at batch 64 (base: 32) on 2")
    slow = scaled(frame, "images_per_second", 0.8, experiment="links", strategy="allreduce")
    assert judged(claim("das-2"), slow).answer == CONTRADICTED
    assert judged(claim("das-16"), frame) == Verdict(
        NEEDS_HARDWARE, "", "the most hosts that trained here are 5, not 16"
    )
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="links", strategy="allreduce")
    for name in ("das-2", "das-16"):
        assert judged(claim(name), skipped) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)


def test_sixteen_nodes_are_judged_where_there_are_some(frame: pd.DataFrame) -> None:
    many = frame["hosts"].where((frame["experiment"] != "links") | (frame["strategy"] != "allreduce"), 16)
    found = judged(claim("das-16"), frame.assign(hosts=many, workers=many.where(many == 16, frame["workers"])))
    assert found.answer == CONTRADICTED and "does not hold 6.4" in found.reason


def test_terngrad_is_judged_where_the_link_is_slow(frame: pd.DataFrame) -> None:
    found = judged(claim("terngrad-speed"), frame)
    assert found.answer == SUPPORTED and found.measured == "2 [2, 2] over all-reduce in images/s at 1 Gbit/s"
    slow = scaled(frame, "images_per_second", 0.5, strategy="terngrad", link_bits_per_second=1e9)
    assert judged(claim("terngrad-speed"), slow).answer == CONTRADICTED
    fast = scaled(frame, "images_per_second", 0.5, strategy="terngrad", link_bits_per_second=1e10)
    assert judged(claim("terngrad-speed"), fast).answer == SUPPORTED


@pytest.mark.parametrize(("value", "word"), [(37208, NEEDS_HARDWARE), (50, SUPPORTED), (90, CONTRADICTED)])
def test_top_k_sends_no_fewer_bytes_than_its_density_allows(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judged(claim("sparse-binary-compression") | {"value": value}, frame)
    assert found.answer == word and found.measured.startswith("50 [50, 50] times fewer bytes sent, top-k of 0.01")
    assert ("more than 100 times fewer" in found.reason) == (word == NEEDS_HARDWARE)


@pytest.mark.parametrize("name", ["terngrad-accuracy", "sparse-binary-accuracy", "fastest-costs-accuracy"])
def test_accuracy_says_how_long_it_would_take(frame: pd.DataFrame, name: str) -> None:
    """1008 images at 20 images/s, 20 % more in the median round: 60.48 s an epoch, 90 epochs, ten runs."""
    found = judged(claim(name), frame)
    assert found.answer == NEEDS_HARDWARE and "10 runs of 90 epochs" in found.reason
    assert f"{60.48 * 90 * 10 / 3600:.3g} h" in found.reason
    scored = frame.assign(test_accuracy=frame["test_accuracy"].where(frame["strategy"] != "topk", 0.9))
    assert judged(claim(name), scored).answer == NOT_YET
    unknown = frame.assign(epoch_seconds=float("nan"))
    assert judged(claim(name), unknown) == Verdict(NOT_YET, "", "the length of an epoch is not known")

"""Verdicts on what the paper quotes from others: by bytes, by a model and by seeds."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from fake_distribution import NO_CLUSTER, claim, not_run, records, scaled, without
from lockstep.analysis.judging import judge
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    EMULATED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT
from lockstep.experiments.e05_mpi_distribution.cited_verdicts import golomb_bits


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame) -> Verdict:
    return judge(row, Stored(frame), EXPERIMENT.verdicts)


def test_two_nodes_are_judged_for_every_batch_that_may_have_been_used(frame: pd.DataFrame) -> None:
    """On the wire 0.19 s, of an image 0.05 s and of a step 0.15 s: 0.9 of two nodes takes 31 images per worker."""
    found = judged(claim("das-2"), frame)
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and math.isinf(found.rounds_more)
    assert "within ± 10% of 1.8 from 13" in found.reason and "two emulated hosts" in found.reason
    assert judged(claim("das-2") | {"value": 3.0}, frame).answer == CONTRADICTED, "more than two nodes can give"
    assert judged(claim("das-2"), without(frame, experiment="batches")).answer == NOT_YET
    assert "emulated hosts" not in judged(claim("das-2"), without(frame, experiment="timeline", hosts=2)).reason


def test_sixteen_nodes_follow_from_two() -> None:
    """1 / (1/16 + 15/8 x (1/1.8 - 1/2)) = 6."""
    found = judge(claim("das-16"), no_records(), EXPERIMENT.verdicts)
    assert (found.answer, found.grade, found.measured) == (SUPPORTED, MODEL, "6 times one node")
    assert "13.2 if each had the whole batch" in found.reason
    assert judge(claim("das-16") | {"value": 8.0}, no_records(), EXPERIMENT.verdicts).answer == CONTRADICTED


def test_terngrad_is_judged_over_every_link(frame: pd.DataFrame) -> None:
    found = judged(claim("terngrad-speed"), frame)
    assert (found.answer, found.grade) == (SUPPORTED, EMULATED)
    assert "at 1 Gbit/s" in found.measured and "at 10 Gbit/s" in found.measured
    slow = scaled(frame, "images_per_second", 0.5, experiment="links", strategy="terngrad")
    found = judged(claim("terngrad-speed"), slow)
    assert found.answer == UNDECIDED and "2 times up to" in found.reason, "a slower link may be the paper's"
    longer = scaled(slow, "link_bytes_busiest", 16.0, experiment="links", strategy="terngrad")
    found = judged(claim("terngrad-speed"), longer)
    assert found.answer == CONTRADICTED and "at no rate" in found.reason
    one = scaled(slow, "images_per_second", 2.0, strategy="terngrad", link_bits_per_second=1e9)
    found = judged(claim("terngrad-speed"), one)
    assert found.answer == UNDECIDED and "depends on the link" in found.reason and math.isinf(found.rounds_more)


def test_terngrad_needs_links_and_rounds(frame: pd.DataFrame) -> None:
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="links")
    assert judged(claim("terngrad-speed"), skipped) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)
    assert judged(claim("terngrad-speed"), records(rounds=4)).answer == UNDECIDED


def test_golombs_code_of_a_position() -> None:
    """Six bits, and one for each 64 entries that are left out before it; rarer entries take longer."""
    assert golomb_bits(0.01) == pytest.approx(6 + 1 / (1 - 0.99**64))
    assert golomb_bits(0.001) > golomb_bits(0.01)


@pytest.mark.parametrize(("value", "word"), [(37208, SUPPORTED), (50000, CONTRADICTED)])
def test_the_largest_compression_is_bytes_times_code_times_delay(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judged(claim("sparse-binary-compression") | {"value": value}, frame)
    assert (found.answer, found.grade) == (word, MODEL) and found.measured.startswith("39468 = 50 (bytes counted")
    fewer = scaled(frame, "bytes_sent", 0.5, experiment="links", strategy="topk")
    assert judged(claim("sparse-binary-compression"), fewer).answer == CONTRADICTED


# --- accuracy ---


def test_terngrad_loses_less_than_it_may(frame: pd.DataFrame) -> None:
    found = judged(claim("terngrad-accuracy"), frame)
    assert found.answer == SUPPORTED and "over 8 seeds" in found.measured
    assert judged(claim("terngrad-accuracy"), lost(frame, 0.05, strategy="terngrad")).answer == CONTRADICTED
    found = judged(claim("terngrad-accuracy"), lost(frame, 0.016, strategy="terngrad"))
    assert found.answer == UNDECIDED and found.minutes_more > 0


def lost(frame: pd.DataFrame, accuracy: float, **conditions: Any) -> pd.DataFrame:
    frame = frame.copy()
    hit = frame["experiment"] == "paired"
    for name, value in conditions.items():
        hit &= frame[name] == value
    assert hit.any()
    frame.loc[hit, "test_accuracy"] -= accuracy
    return frame


def test_a_weaker_compression_can_only_contradict(frame: pd.DataFrame) -> None:
    found = judged(claim("sparse-binary-accuracy"), frame)
    assert found.answer == CONTRADICTED and "top-k of 0.001" in found.measured
    better = judged(claim("sparse-binary-accuracy"), lost(frame, -0.05, density=0.001))
    assert better.answer == UNDECIDED and math.isinf(better.rounds_more) and "stronger" in better.reason


def test_what_sends_least_costs_accuracy_or_not(frame: pd.DataFrame) -> None:
    found = judged(claim("fastest-costs-accuracy"), frame)
    assert found.answer == SUPPORTED and found.reason.startswith("topk of 0.001 sends least")
    free = judged(claim("fastest-costs-accuracy"), lost(frame, -0.06, density=0.001))
    assert free.answer == CONTRADICTED
    assert judged(claim("fastest-costs-accuracy"), records(rounds=4)).answer == UNDECIDED


@pytest.mark.parametrize("name", ["terngrad-accuracy", "sparse-binary-accuracy", "fastest-costs-accuracy"])
def test_without_learning_nothing_is_known_of_accuracy(frame: pd.DataFrame, name: str) -> None:
    assert judged(claim(name), without(frame, experiment="paired")).answer == NOT_YET

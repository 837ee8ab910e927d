"""Answers on GPUs without any: what was measured goes first, and each answer can turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep.analysis.confidence import Estimate, estimate, highest
from lockstep.analysis.published import read_claims
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    NotNow,
    Verdict,
    settle,
)
from lockstep.predict import gpu_answers as answers
from lockstep.predict import gpu_memory, gpus


def claim(name: str) -> dict[str, Any]:
    (found,) = [row for row in read_claims().to_dict("records") if row["id"] == f"s2m-{name}"]
    return found


def lacking(word: str) -> Verdict:
    raise NotNow(word, "no CUDA device")


def test_what_gpus_measured_stands_above_what_is_said_without() -> None:
    ran, said = Verdict(UNDECIDED, "1 [0.9, 1.1]", "wide"), Verdict(SUPPORTED, "", "a table", grade=PAPER)
    assert answers.measured_or(lambda: ran, lambda: said, "a GPU") is ran
    for word in (NEEDS_HARDWARE, NOT_YET):
        found = answers.measured_or(lambda word=word: lacking(word), lambda: said, "a GPU")
        assert (found.answer, found.grade, found.reason) == (SUPPORTED, PAPER, "a table; a GPU")
        found = answers.only_measured(lambda word=word: lacking(word), "a GPU")
        assert (found.answer, found.reason) == (NEEDS_HARDWARE, "no CUDA device; a GPU")


def test_a_text_is_held_against_the_papers_tables() -> None:
    pairs = [("X", ("a", 2.0), ("b", 1.0))]
    assert answers.in_tables(pairs).answer == SUPPORTED and answers.in_tables(pairs).grade == PAPER
    found = answers.in_tables([*pairs, ("Y", ("a", 1.0), ("b", 1.0))])
    assert found.answer == CONTRADICTED and found.reason == "Y: a is not above b"


@pytest.mark.parametrize(
    ("value", "word", "count"), [(6.74, CONTRADICTED, "7 GPUs"), (8.01, CONTRADICTED, "9 GPUs"), (2.0, UNDECIDED, "")]
)
def test_two_gpus_give_at_most_two(value: float, word: str, count: str) -> None:
    found = answers.over_one_gpu(claim("table2-gpu-model-simplebig") | {"value": value}, "a pipeline")
    assert (found.answer, found.grade) == (word, BOUND) and count in found.reason


@pytest.mark.parametrize(
    ("published", "low", "high", "word"),
    [
        (1.0, 0.95, 1.05, SUPPORTED),
        (1.0, 1.2, 1.4, CONTRADICTED),
        (1.0, 0.8, 1.4, UNDECIDED),
        (1.0, 0.85, 1.0, UNDECIDED),
    ],
)
def test_a_range_supports_a_number_only_as_a_whole(published: float, low: float, high: float, word: str) -> None:
    found = answers.within_range(published, gpus.Range((low + high) / 2, low, high), "times")
    assert (found.answer, found.grade) == (word, MODEL)


@pytest.mark.parametrize(("share", "word"), [(1.0, SUPPORTED), (0.0, CONTRADICTED), (0.5, UNDECIDED)])
def test_what_holds_in_nearly_all_draws(share: float, word: str) -> None:
    holds = np.arange(1000) < share * 1000
    found = answers.in_all_draws(holds, "", "")
    assert found.answer == word and (found.answer == UNDECIDED or 0 < found.chance < 0.01)


def test_table_1_over_gpus_is_possible_and_its_order_is_that_of_gradients_per_flop() -> None:
    for name in ("table1-gpu-single-simplebig", "table1-gpu-single-complexsmall"):
        found = answers.data_parallel_speedup(claim(name))
        assert (found.answer, found.grade) == (UNDECIDED, MODEL) and "by 4" in found.reason
    assert answers.data_parallel_speedup(claim("table1-gpu-single-simplebig") | {"value": 2.5}).answer == CONTRADICTED
    found = answers.simple_big_gains_least()
    assert (found.answer, found.grade) == (SUPPORTED, MODEL) and "How many photos" in found.reason


def test_mpi_over_gpus_says_from_which_batch_on() -> None:
    found = answers.mpi_speedup(claim("table3-mpi-gpu-simplebig"))
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and "possible from 12 GPUs on" in found.reason
    assert "on 64 nodes" in found.measured and "4.13 for ComplexSmall" in found.reason


def test_a_gpu_beats_as_few_cores_and_not_as_many() -> None:
    few, many = (Estimate(rate, 0.9 * rate, 1.1 * rate, 8) for rate in (40.0, 1e5))
    assert answers.gpu_over_cpu("SimpleBig", few, 2).answer == SUPPORTED
    assert answers.gpu_over_cpu("SimpleBig", many, 4000).answer == CONTRADICTED
    middle = Estimate(900.0, 800.0, 1000.0, 8)
    assert answers.gpu_over_cpu("SimpleBig", middle, 40).answer == UNDECIDED
    assert settle(lambda: answers.gpu_over_cpu("SimpleBig", Estimate(40.0, 0.0, np.inf, 3), 2)).answer == UNDECIDED


def test_a_cpu_whose_best_setting_is_not_known_yet_decides_nothing() -> None:
    """Of five settings with five rounds each the best one's interval is open: no GPU is slower, nor faster."""
    rates = [estimate(40.0 * np.exp(0.01 * np.arange(5) + shift)) for shift in (0.0, 0.01, 0.02, 0.03, 0.04)]
    best = highest(rates)
    assert best.open and answers.gpu_over_cpu("SimpleBig", best, 2).answer == UNDECIDED
    one = answers.gpu_over_cpu("SimpleBig", estimate(40.0 * np.exp(0.01 * np.tile([-1.0, 1.0], 10))), 2)
    assert one.answer == SUPPORTED and 0 < one.chance < 0.001
    vague = answers.gpu_over_cpu("SimpleBig", estimate(40.0 * np.exp(1.5 * np.tile([-1.0, 1.0], 6))), 2)
    assert vague.answer == UNDECIDED, "neither by a wide interval"


def test_processes_on_one_gpu_overflow_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers.processes_overflow(claim("gpu-processes-overflow"))
    assert (found.answer, found.grade) == (
        CONTRADICTED,
        MODEL,
    ) and "SimpleBig: two processes overflow in 0%" in found.measured
    for share, word in ((0.9, SUPPORTED), (0.1, CONTRADICTED)):
        monkeypatch.setattr(gpu_memory, "overflow_share", lambda *_, share=share: share)
        assert answers.processes_overflow(claim("gpu-processes-overflow")).answer == word
    monkeypatch.setattr(gpu_memory, "overflow_share", lambda _, end, count=2: (0.4, 0.6)[end])
    assert answers.processes_overflow(claim("gpu-processes-overflow")).answer == UNDECIDED


def test_a_hybrid_that_shares_gpus_has_a_smaller_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers.hybrid_memory(claim("hybrid-gpu-memory")).answer == SUPPORTED
    monkeypatch.setattr(gpu_memory, "hybrid_batches", lambda *_: (100, 100))
    assert answers.hybrid_memory(claim("hybrid-gpu-memory")).answer == CONTRADICTED


@pytest.mark.parametrize(("ratio", "word"), [(10.0, CONTRADICTED), (85.0, UNDECIDED)])
def test_cpu_use_is_held_against_decoding(ratio: float, word: str) -> None:
    given = Estimate(ratio, 0.9 * ratio, 1.1 * ratio, 8)
    found = answers.cpu_per_image(claim("model-cpu-use"), lambda: given)
    assert (found.answer, found.grade) == (word, BOUND) and "1/80" in found.measured

"""Verdicts on memory, threads and CPU use: each turns with the records and the traces."""

from __future__ import annotations

import math

import pytest

from fake_records import records, resources
from local_verdicts import claim, faster, judge, noisy
from lockstep.analysis.verdicts import BOUND, CONTRADICTED, NOT_YET, SUPPORTED, UNDECIDED

# Memory


def test_memory_verdicts_turn_with_the_memory() -> None:
    asked = claim("processes_less_memory")
    assert judge(asked, records()).answer == SUPPORTED
    assert judge(asked, faster("processes", 1.3)).answer == CONTRADICTED
    assert judge(asked, noisy(0.3)).answer == UNDECIDED


def test_complex_small_memory_turns_with_the_memory_and_names_the_batches() -> None:
    frame, asked = records(), claim("complex_small_more_memory")
    frame.loc[frame["use_case"] == "ComplexSmall", "peak_pss_bytes"] *= 0.3
    found = judge(asked, records())
    assert found.answer == SUPPORTED and "at 1 and 8 images per worker" in found.measured
    assert judge(asked, frame).answer == CONTRADICTED
    assert judge(asked, noisy(0.9)).answer == UNDECIDED


# Traces


@pytest.mark.parametrize(("name", "column"), [
    ("processes_smoother_memory", "pss_bytes"), ("processes_smoother_threads", "threads"),
])  # fmt: skip
def test_what_varies_less_turns_with_the_traces(name: str, column: str) -> None:
    traces = resources()
    assert judge(claim(name), records(), traces).answer == SUPPORTED
    turned = traces.assign(strategy=traces["strategy"].map({"threads": "processes", "processes": "threads"}))
    assert judge(claim(name), records(), turned).answer == CONTRADICTED
    still = judge(claim(name), records(), traces.assign(**{column: 12.0}))
    assert still.answer == UNDECIDED and still.rounds_more == math.inf, "nothing varies that could be compared"
    assert judge(claim(name), records(), None).answer == NOT_YET
    assert judge(claim(name), records(), resources(traces=4)).answer == UNDECIDED


def test_a_trace_of_loading_alone_decides_nothing() -> None:
    loading = resources().assign(phase="load")
    assert judge(claim("cpu_fully_used"), records(), loading).answer == NOT_YET


@pytest.mark.parametrize(("factor", "waiting", "word"), [
    (1.0, 0.02, SUPPORTED), (0.8, 0.02, CONTRADICTED), (1.0, 0.3, UNDECIDED), (0.8, 0.3, CONTRADICTED),
])  # fmt: skip
def test_the_cpu_is_fully_used_unless_waiting_is_what_uses_it(factor: float, waiting: float, word: str) -> None:
    traces, frame = resources(), records()
    frame["wait_seconds"] = waiting * frame["step_seconds"]
    traces["cpu_percent"] *= factor
    assert judge(claim("cpu_fully_used"), frame, traces).answer == word


def test_fewer_threads_than_images_contradict_a_thread_per_image_and_as_many_say_nothing() -> None:
    """Lockstep's own threads are among those that a sample counts."""
    traces = resources()
    found = judge(claim("thread_per_image"), records(), traces)
    assert (found.answer, found.grade) == (CONTRADICTED, BOUND) and "16 images" in found.measured
    many = judge(claim("thread_per_image"), records(), traces.assign(threads=80))
    assert many.answer == UNDECIDED and many.rounds_more == math.inf
    assert judge(claim("thread_per_image"), records(), None).answer == NOT_YET


def test_the_frameworks_threads_stand_apart_from_lockstep_own() -> None:
    told = resources()
    told.loc[told["strategy"] == "processes", "framework_threads"] = 2
    found = judge(claim("same_mean_threads"), records(), told)
    assert found.answer == UNDECIDED and found.rounds_more == math.inf
    assert found.measured.count("of these PyTorch's and Python's own 8 [8, 8] and 2 [2, 2]") == 2


@pytest.mark.parametrize("factor", [1, 2])
def test_equal_numbers_of_threads_say_nothing_about_the_frameworks(factor: int) -> None:
    """Traces from before the two kinds were told apart."""
    traces = resources().drop(columns=["training_threads", "framework_threads"])
    traces["threads"] = traces["threads"].where(traces["strategy"] == "threads", factor * traces["threads"])
    found = judge(claim("same_mean_threads"), records(), traces)
    assert found.answer == UNDECIDED and found.rounds_more == math.inf and "Lockstep" in found.reason

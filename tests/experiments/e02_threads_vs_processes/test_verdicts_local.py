"""Verdicts on notebook 02's claims: each turns with the records, and none says more than they support."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_records import records, resources
from lockstep.analysis import verdicts
from lockstep.analysis.published import read_claims
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e02_threads_vs_processes import EXPERIMENT
from lockstep.experiments.report import published_measured


def claim(verdict: str, **changes: Any) -> dict[str, Any]:
    return {"id": "x", "use_case": "both", "value": float("nan"), "unit": "", "notebook": EXPERIMENT.name,
            "note": "why", "statement": "", "verdict": verdict, **changes}  # fmt: skip


def judge(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return verdicts.judge(row, Stored(frame, {} if traces is None else {"resources": traces}), EXPERIMENT.verdicts)


def judge_all(rounds: int) -> pd.DataFrame:
    """The verdicts on all claims of the notebook, by the claim's name."""
    claims = read_claims()
    stored = Stored(records(rounds), {"resources": resources(rounds)})
    own = claims[claims["notebook"] == EXPERIMENT.name]
    return published_measured(own, stored, EXPERIMENT.verdicts).set_index("claim")


@pytest.fixture(scope="module")
def judged() -> pd.DataFrame:
    return judge_all(rounds=6)


def faster(strategy: str, factor: float) -> pd.DataFrame:
    """Records in which a strategy's images/s and peak PSS are multiplied."""
    frame = records()
    hit = frame["strategy"] == strategy
    frame.loc[hit, ["images_per_second", "peak_pss_bytes"]] *= factor
    return frame


def ratio_of_processes(frame: pd.DataFrame) -> str:
    shared = {"experiment": "table1", "use_case": "SimpleBig", "device": "cpu", "variant": "a"}
    over = [shared | {"strategy": name} for name in ("processes", "sequential")]
    return str(ratio_with_interval(frame, *over, "images_per_second"))


def test_too_few_rounds_decide_nothing() -> None:
    table = judge_all(rounds=4)
    assert set(table["verdict"]) <= {NOT_YET, NEEDS_HARDWARE}
    assert table["reason"].str.contains(r"only 4 paired round").any()


def test_a_speedup_above_the_cores_is_not_measurable_and_names_them(judged: pd.DataFrame) -> None:
    row = judged.loc["s2m-table1-cpu-multi-simplebig"]
    assert (row["verdict"], row["published"]) == (NEEDS_HARDWARE, "15.57 times")
    assert ("2 cores" in row["reason"] and row["measured"].startswith("1.9")) or row["measured"].startswith("1.8")


@pytest.mark.parametrize(("value", "word"), [(1.9, SUPPORTED), (1.8, SUPPORTED), (1.2, CONTRADICTED)])
def test_a_speedup_within_the_cores_is_judged(value: float, word: str) -> None:
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=value), records())
    assert found.answer == word and "10%" in found.reason


def test_gpu_rows_take_the_skipped_rows_reason(judged: pd.DataFrame) -> None:
    for name in ("s2m-table1-gpu-single-simplebig", "s2m-gpu-threads", "s2m-gpu-worst-simplebig"):
        assert (judged.loc[name, "verdict"], judged.loc[name, "reason"]) == (NEEDS_HARDWARE, "no CUDA device")


def test_a_failed_row_is_not_measured_yet_with_its_reason() -> None:
    found = judge(claim("processes_beat_threads"), records(failed="threads"))
    assert found.answer == NOT_YET and "ValueError" in found.reason


@pytest.mark.parametrize(("factor", "word"), [(1.0, SUPPORTED), (1.65 / 1.9, CONTRADICTED), (0.6, CONTRADICTED)])
def test_processes_beat_threads_needs_an_interval_above_1(factor: float, word: str) -> None:
    assert judge(claim("processes_beat_threads"), faster("processes", factor)).answer == word


def test_an_effect_the_other_way_round_says_so() -> None:
    assert "other way round" in judge(claim("processes_beat_threads"), faster("processes", 0.6)).reason


def test_one_use_case_against_the_claim_settles_it() -> None:
    frame = records()
    hit = (frame["strategy"] == "processes") & (frame["use_case"] == "SimpleBig")
    frame.loc[hit, "images_per_second"] *= 0.5
    found = judge(claim("processes_beat_threads"), frame)
    assert found.answer == CONTRADICTED and "ComplexSmall: " in found.measured and "SimpleBig: " in found.reason


def test_the_gil_alone_can_be_refuted_but_not_shown() -> None:
    assert judge(claim("gil_hinders_threads"), records()).answer == NEEDS_HARDWARE
    assert judge(claim("gil_hinders_threads"), faster("processes", 0.6)).answer == CONTRADICTED


def test_best_local_strategy_is_compared_with_threads_inside_operators_too() -> None:
    assert judge(claim("processes_best_local"), records()).answer == SUPPORTED
    assert judge(claim("processes_best_local"), faster("intra_op", 1.3)).answer == CONTRADICTED


def test_unequal_cores_are_no_comparison() -> None:
    frame = records()
    frame.loc[frame["strategy"] == "intra_op", "cores_per_worker"] = 4
    found = judge(claim("processes_best_local"), frame)
    assert found.answer == NOT_YET and "2 cores" in found.reason


def test_cpu_modes_speed_up_needs_both_modes() -> None:
    assert judge(claim("cpu_modes_speed_up"), records()).answer == SUPPORTED
    assert judge(claim("cpu_modes_speed_up"), faster("threads", 0.5)).answer == CONTRADICTED


def test_larger_gain_and_dependence_on_the_use_case() -> None:
    frame = records()
    hit = (frame["use_case"] == "SimpleBig") & frame["strategy"].isin(["threads", "processes"])
    frame.loc[hit, "images_per_second"] *= 0.8
    assert judge(claim("larger_gain_simple_big"), records()).answer == SUPPORTED
    assert judge(claim("larger_gain_simple_big"), frame).answer == CONTRADICTED
    assert judge(claim("gain_depends_on_use_case"), frame).answer == SUPPORTED


@pytest.mark.parametrize(("name", "strategy", "factor"), [
    ("processes_less_memory", "processes", 1.3), ("replicas_need_memory", "processes", 0.5),
])  # fmt: skip
def test_memory_verdicts_turn_with_the_memory(name: str, strategy: str, factor: float) -> None:
    assert judge(claim(name), records()).answer == SUPPORTED
    assert judge(claim(name), faster(strategy, factor)).answer == CONTRADICTED


def test_complex_small_memory_turns_with_the_memory() -> None:
    frame = records()
    frame.loc[frame["use_case"] == "ComplexSmall", "peak_pss_bytes"] *= 0.3
    assert judge(claim("complex_small_more_memory"), records()).answer == SUPPORTED
    assert judge(claim("complex_small_more_memory"), frame).answer == CONTRADICTED


@pytest.mark.parametrize(("name", "column", "change"), [
    ("processes_smoother_memory", "pss_bytes", lambda trace: 5e9),
    ("processes_smoother_threads", "threads", lambda trace: 12),
    ("cpu_fully_used", "cpu_percent", lambda trace: trace["cpu_percent"] * 0.8),
])  # fmt: skip
def test_trace_verdicts_turn_with_the_traces(name: str, column: str, change: Any) -> None:
    traces = resources()
    assert judge(claim(name), records(), traces).answer == SUPPORTED
    flat = traces.assign(**{column: change(traces)})
    assert judge(claim(name), records(), flat).answer in {CONTRADICTED, NOT_YET}
    assert judge(claim(name), records(), None).answer == NOT_YET


def test_threads_per_image_and_equal_means() -> None:
    traces = resources()
    assert judge(claim("thread_per_image"), records(), traces).answer == CONTRADICTED
    assert judge(claim("thread_per_image"), records(), traces.assign(threads=80)).answer == SUPPORTED
    assert judge(claim("same_mean_threads"), records(), traces.assign(threads=80)).answer == SUPPORTED
    doubled = traces["threads"].where(traces["strategy"] == "threads", 2 * traces["threads"])
    assert judge(claim("same_mean_threads"), records(), traces.assign(threads=doubled)).answer == CONTRADICTED


def test_a_gpu_speedup_is_over_one_gpu_when_there_are_gpus() -> None:
    frame = records()
    cuda = frame["device"] == "cuda"
    frame.loc[cuda, ["status", "reason"]] = ["ok", ""]
    frame.loc[cuda, "images_per_second"] = 100.0
    frame.loc[cuda & (frame["strategy"] == "processes"), "images_per_second"] = 157.0
    found = judge(claim("gpu_speedup", use_case="ComplexSmall", value=1.57), frame)
    assert found.answer == SUPPORTED and found.measured.startswith("1.57")
    assert judge(claim("needs_gpu"), frame).answer == NOT_YET


@pytest.mark.parametrize(("published", "word"), [(15.57, NEEDS_HARDWARE), (1.9, NOT_YET)])
def test_one_round_gives_no_number_to_draw(published: float, word: str) -> None:
    """Its interval would have no width: exact, it seems."""
    asked = claim("processes_speedup", use_case="SimpleBig", value=published, unit="times")
    found = judge(asked, records(rounds=1))
    assert (found.answer, found.measured, found.numbers) == (word, "", ())
    assert judge(asked, records(rounds=5)).numbers


def test_numbers_are_kept_beside_the_words() -> None:
    """For figures: a text can't be drawn."""
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=1.9, unit="times"), records())
    ((of, ratio),) = found.numbers
    assert of == "" and found.measured.startswith(str(ratio)) and str(ratio) == ratio_of_processes(records())
    found = judge(claim("cpu_fully_used", value=100, unit="percent"), records(), resources())
    assert [of for of, _ in found.numbers] == [
        f"{use_case}, {strategy}" for use_case in ("ComplexSmall", "SimpleBig") for strategy in ("threads", "processes")
    ]
    assert judge(claim("processes_beat_threads"), records()).numbers == (), "no published figure to stand beside"

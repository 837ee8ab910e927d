"""Verdicts on notebook 02's claims: each turns with the records, and none says more than they support."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fake_records import CHOSEN, records, resources
from local_verdicts import claim, faster, judge, noisy
from lockstep.analysis.published import AUDIT, read_claims, read_ledger
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    DECIDED,
    MEASURED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.e02_threads_vs_processes import EXPERIMENT


def judge_all(rounds: int) -> dict[str, Verdict]:
    """The verdicts on all claims of the notebook that no GPU is needed for, by the claim's name."""
    claims = read_claims()
    own = claims[(claims["notebook"] == EXPERIMENT.name) & ~claims["id"].str.contains("gpu")]
    return {row["id"]: judge(row, records(rounds), resources(rounds)) for row in own.to_dict("records")}


def ratio_of_processes(frame: pd.DataFrame) -> str:
    shared = {"experiment": "table1", "use_case": "SimpleBig", "device": "cpu", "variant": "a", "precision": "float32"}
    over = [shared | {"strategy": name} for name in ("processes", "sequential")]
    return str(ratio_with_interval(frame, *over, "images_per_second"))


def test_too_few_rounds_decide_nothing() -> None:
    found = judge_all(rounds=4)
    found.pop("s2m-complexsmall-more-ram")  # all rounds of a cell count, whatever stood beside it
    measured = [each for each in found.values() if each.grade == MEASURED]
    assert measured and not {each.answer for each in measured} & set(DECIDED)
    assert any("only 4 rounds; an interval needs 5" in each.reason for each in measured)


def test_enough_rounds_answer_every_claim_without_a_gpu() -> None:
    for name, found in judge_all(rounds=8).items():
        assert found.answer in (*DECIDED, UNDECIDED), (name, found)
        assert found.reason and found.measured, name


def test_what_cannot_be_otherwise_is_an_audit() -> None:
    ledger = read_ledger().set_index("id")
    for name in ("s2m-cpu-speedup-both", "s2m-replicas-more-memory"):
        assert ledger.loc[name, "kind"] == AUDIT and ledger.loc[name, "note"]


# Table 1


@pytest.mark.parametrize(("value", "word"), [(1.9, SUPPORTED), (1.8, SUPPORTED), (1.2, CONTRADICTED)])
def test_a_speedup_within_the_cores_is_judged(value: float, word: str) -> None:
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=value), records())
    assert (found.answer, found.grade) == (word, MEASURED) and "10%" in found.reason


def test_a_speedup_within_the_cores_and_a_wide_interval_are_undecided() -> None:
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=1.9), noisy(0.1))
    assert found.answer == UNDECIDED and 1 <= found.rounds_more < math.inf and found.minutes_more > 0


@pytest.mark.parametrize(
    ("factor", "word"),
    [(1.0, UNDECIDED), (0.8, CONTRADICTED), (3.0, CONTRADICTED)],  # 15.57 / 6.15 is 2.53, or 1.1 behind one lock
)
def test_a_speedup_above_the_cores_is_judged_by_what_does_not_depend_on_them(factor: float, word: str) -> None:
    asked = claim("processes_speedup", use_case="SimpleBig", value=15.57)
    frame = faster("threads", 1 / factor, experiment="table1")
    found = judge(asked, frame)
    assert (found.answer, found.grade) == (word, MODEL)
    assert "2.28 to 2.78" in found.reason and "at least 16" in found.reason and "2 cores can't give" in found.reason
    assert found.measured.startswith(str(found.numbers[0][1])), "our own speedup stands there all the same"


def test_the_largest_speedup_of_the_table_bounds_the_cores_of_all_its_rows() -> None:
    found = judge(claim("threads_speedup", use_case="ComplexSmall", value=4.0), records())
    assert "it takes at least 4" in found.reason and "15.57, takes at least 16 cores" in found.reason


def test_more_cores_than_the_speedup_are_asked_directly() -> None:
    frame = records()
    two = frame["workers"] == 2
    frame.loc[two, "cores_per_worker"] = 8
    frame.loc[frame["strategy"].isin(["threads", "processes"]) & two, "images_per_second"] *= 15.57 / 1.9
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=15.57), frame)
    assert (found.answer, found.grade) == (SUPPORTED, MEASURED)


def test_gpu_rows_take_the_skipped_rows_reason() -> None:
    found = judge(claim("gpu_threads"), records())
    assert found.answer == NEEDS_HARDWARE and found.reason.startswith("no CUDA device")


# Processes against threads


def test_a_failed_row_is_not_measured_yet_with_its_reason() -> None:
    found = judge(claim("processes_beat_threads"), records(failed="threads"))
    assert found.answer == NOT_YET and "ValueError" in found.reason


@pytest.mark.parametrize(("factor", "word"), [(1.0, SUPPORTED), (0.6, CONTRADICTED)])
def test_processes_beat_threads_needs_an_interval_above_1(factor: float, word: str) -> None:
    found = judge(claim("processes_beat_threads"), faster("processes", factor))
    assert found.answer == word


def test_an_interval_that_holds_1_is_undecided_and_says_how_long_it_takes() -> None:
    found = judge(claim("processes_beat_threads"), noisy(0.2))
    assert found.answer == UNDECIDED and found.rounds_more >= 1 and found.minutes_more > 0


def test_the_noise_of_two_equal_cells_widens_what_counts_as_a_difference() -> None:
    frame = records()
    frame.loc[frame["variant"] == "b", "images_per_second"] *= 1.3
    found = judge(claim("processes_beat_threads"), frame)
    assert found.answer == UNDECIDED and found.rounds_more == math.inf, (
        "15 % of two cells, of which one is 30 % off itself"
    )


def test_one_use_case_against_the_claim_settles_it() -> None:
    found = judge(claim("processes_beat_threads"), faster("processes", 0.5, use_case="SimpleBig"))
    assert found.answer == CONTRADICTED and "ComplexSmall: " in found.measured and "SimpleBig: " in found.reason


def test_a_lock_shows_where_kernels_are_short_and_less_where_they_are_long() -> None:
    found = judge(claim("gil_hinders_threads"), records())
    assert found.answer == SUPPORTED and "bounds the lock's cost" in found.reason
    ahead = faster("threads", 2.0, experiment="scaling")
    assert judge(claim("gil_hinders_threads"), ahead).answer == CONTRADICTED
    grows = faster("threads", 0.5, experiment="kernels")
    found = judge(claim("gil_hinders_threads"), grows)
    assert found.answer == UNDECIDED and "not as behind a lock" in found.reason and found.rounds_more == math.inf
    assert judge(claim("gil_hinders_threads"), noisy(0.3)).answer == UNDECIDED


def test_a_lock_is_asked_about_with_the_small_network_alone_too() -> None:
    frame = records()
    pair = frame["round"].isin(frame.loc[frame["variant"] == "b", "round"])
    small = frame["experiment"].isin(["scaling", "kernels"])
    found = judge(claim("gil_hinders_threads"), frame[small | pair])
    assert found.answer == SUPPORTED and "bounds" not in found.reason
    found = judge(claim("gil_hinders_threads"), frame[small])
    assert found.answer == UNDECIDED and "no A/A pair has 5 rounds" in found.reason


def test_best_local_strategy_is_compared_with_threads_inside_operators_too() -> None:
    assert judge(claim("processes_best_local"), records()).answer == SUPPORTED
    assert judge(claim("processes_best_local"), faster("intra_op", 1.3)).answer == CONTRADICTED
    found = judge(claim("processes_best_local"), faster("intra_op", 1.9 / 1.7))
    assert found.answer == UNDECIDED


def test_unequal_cores_are_no_comparison() -> None:
    frame = records()
    frame.loc[frame["strategy"] == "intra_op", "cores_per_worker"] = 4
    found = judge(claim("processes_best_local"), frame)
    assert found.answer == NOT_YET and "2 cores" in found.reason


# The two use cases


def in_simple_big(factor: float, *strategies: str) -> pd.DataFrame:
    frame = records()
    hit = (frame["use_case"] == "SimpleBig") & frame["strategy"].isin(strategies)
    frame.loc[hit, "images_per_second"] *= factor
    return frame


def test_a_larger_gain_with_simple_big() -> None:
    more = in_simple_big(1.05, "threads", "processes")
    assert judge(claim("larger_gain_simple_big"), more).answer == SUPPORTED
    assert judge(claim("larger_gain_simple_big"), records()).answer == SUPPORTED, "8 %, by the noise of three pairs"
    noisy_pair = records()
    noisy_pair.loc[noisy_pair["variant"] == "b", "images_per_second"] *= 1.1
    found = judge(claim("larger_gain_simple_big"), noisy_pair)
    assert found.answer == UNDECIDED and "the A/A noise of 52.4%" in found.reason
    assert judge(claim("larger_gain_simple_big"), in_simple_big(0.8, "threads", "processes")).answer == CONTRADICTED
    assert judge(claim("larger_gain_simple_big"), in_simple_big(0.92, "threads", "processes")).answer == UNDECIDED


def test_one_mode_without_an_interval_does_not_silence_the_other() -> None:
    """Seen: threads had too few rounds, and the verdict showed no number, though processes had theirs."""
    frame = in_simple_big(0.8, "threads", "processes")
    few = frame[(frame["strategy"] != "threads") | (frame["round"] % 8 < 2)]
    found = judge(claim("larger_gain_simple_big"), few)
    assert found.answer == CONTRADICTED and "processes: 0.8" in found.measured


@pytest.mark.parametrize(
    ("factor", "strategies", "word"),
    [
        (0.8, ("threads", "processes"), SUPPORTED),
        (0.92, ("threads", "processes"), CONTRADICTED),  # then both use cases gain alike
        (0.8, ("threads",), SUPPORTED),  # one strategy whose gain depends on the use case is enough
    ],
)
def test_a_gain_depends_on_the_use_case_or_is_alike(factor: float, strategies: tuple[str, ...], word: str) -> None:
    found = judge(claim("gain_depends_on_use_case"), in_simple_big(factor, *strategies))
    assert found.answer == word and "why" in found.reason


def test_a_gain_that_may_depend_is_undecided() -> None:
    found = judge(claim("gain_depends_on_use_case"), noisy(0.2))
    assert found.answer == UNDECIDED and found.chance == 0.0 and found.rounds_more >= 1


# Numbers


def test_one_round_gives_no_number_to_draw() -> None:
    """Its interval would have no width: exact, it seems."""
    for published in (15.57, 1.9):
        asked = claim("processes_speedup", use_case="SimpleBig", value=published, unit="times")
        found = judge(asked, records(rounds=1))
        assert (found.answer, found.measured, found.numbers) == (UNDECIDED, "", ())
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


def test_the_measured_batches_are_named() -> None:
    found = judge(claim("processes_speedup", use_case="SimpleBig", value=1.9), records())
    batch = CHOSEN.workers * CHOSEN.per_worker_batch_size["SimpleBig"]
    assert f"at batch {batch} (base: {batch})" in found.measured

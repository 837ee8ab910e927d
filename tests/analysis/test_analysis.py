"""Every definition with a worked example, and the tables built from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_records import records, resources
from lockstep.analysis.cells import CELL, cells, outcome
from lockstep.analysis.confidence import estimate, told_apart
from lockstep.analysis.noise import aa_noise, aa_pairs, pooled_noise
from lockstep.analysis.rules import above_one
from lockstep.analysis.sentences import measure_of, times
from lockstep.analysis.statistics import (
    AnalysisError,
    Estimate,
    amdahl,
    amdahl_fit,
    each_strategy,
    highest_ratio,
    interval_of,
    is_difference,
    over_sessions,
    paired_ratios,
    per_round,
    ratio_by_way_of,
    ratio_with_interval,
    roughness,
)
from lockstep.analysis.tables import ratio_columns, summary_table, trace_table
from lockstep.analysis.verdicts import UNDECIDED
from lockstep.engine.job import Job
from lockstep.records import COLUMNS, CONTENDED, make_row


def small(ours: list[float], base: list[float]) -> pd.DataFrame:
    """Two strategies, a row per round."""
    rows = []
    for strategy, values in (("threads", ours), ("sequential", base)):
        for number, value in enumerate(values):
            rows.append({"strategy": strategy, "global_batch_size": 64 if strategy == "threads" else 32,
                         "round": number, "variant": "a", "session": 0, "seed": 0, "experiment": "table1",
                         "images_per_second": value, "step_seconds": 32 / value,
                         "status": "ok", "source": "measured"})  # fmt: skip
    return pd.DataFrame(rows)


def test_ratios_are_paired_per_round_and_not_taken_of_medians() -> None:
    # 2, 3, 4 per round; the ratio of the medians would be 30 / 20 = 1.5.
    frame = small([20, 30, 160], [10, 10, 40]).sample(frac=1, random_state=0)
    ratios = paired_ratios(frame, {"strategy": "threads"}, {"strategy": "sequential"}, "images_per_second")
    assert ratios.to_dict() == {(0, 0): 2.0, (0, 1): 3.0, (0, 2): 4.0}, "by session and round"


def test_a_round_that_lacks_one_half_is_left_out() -> None:
    frame = small([20, 30], [10, 10, 40])
    frame.loc[frame.index[0], "status"] = "failed"
    ratios = paired_ratios(frame, {"strategy": "threads"}, {"strategy": "sequential"}, "images_per_second")
    assert ratios.to_dict() == {(0, 1): 3.0}


def test_no_common_round_is_an_error_that_names_both() -> None:
    with pytest.raises(AnalysisError, match=r"ddp.*0 rounds.*sequential"):
        paired_ratios(small([1], [1]), {"strategy": "ddp"}, {"strategy": "sequential"}, "images_per_second")


def test_conditions_that_mix_cells_are_refused_with_the_columns_that_differ() -> None:
    with pytest.raises(AnalysisError, match="strategy"):
        per_round(small([1, 2], [1, 2]), {"variant": "a"}, "images_per_second")


def test_unknown_column_is_refused_by_name() -> None:
    with pytest.raises(AnalysisError, match="wrokers"):
        per_round(small([1], [1]), {"wrokers": 2}, "images_per_second")


def test_amdahl_worked() -> None:
    # A tenth serial on 4 workers: 1 / (0.1 + 0.9 / 4) = 3.0769.
    assert amdahl(4, 0.1) == pytest.approx(3.0769, abs=1e-4)


@given(st.floats(0.0, 1.0))
def test_amdahl_fit_finds_the_serial_fraction(serial: float) -> None:
    workers = [1, 2, 4, 8]
    assert amdahl_fit(workers, [amdahl(p, serial) for p in workers]) == pytest.approx(serial, abs=1e-9)


def test_amdahl_fit_stays_between_0_and_1() -> None:
    assert amdahl_fit([1, 2], [1, 2.4]) == 0.0
    assert amdahl_fit([1, 2], [1, 0.5]) == 1.0
    with pytest.raises(AnalysisError, match="more than one worker"):
        amdahl_fit([1, 1], [1, 1])


@pytest.mark.parametrize(
    ("ratio", "noise", "expected"),
    [
        (Estimate(1.2, 1.1, 1.3, 5), 0.0, True),
        (Estimate(0.8, 0.7, 0.9, 5), 0.0, True),
        (Estimate(1.2, 0.99, 1.3, 5), 0.0, False),  # its interval holds 1
        (Estimate(1.2, 1.1, 1.3, 4), 0.0, False),  # too few rounds
        (Estimate(1.02, 1.01, 1.03, 5), 0.02, False),  # reaches into what noise alone gives
        (Estimate(1.2, 1.1, 1.3, 5), 0.02, True),
    ],
)
def test_is_difference(ratio: Estimate, noise: float, expected: bool) -> None:
    assert is_difference(ratio, noise) is expected


def test_what_learns_is_paired_by_its_seed() -> None:
    """Round 7 of one cell and round 3 of another are the same seed, maybe of another day."""
    frame = small([0.9, 0.8], [0.5, 0.4]).assign(experiment="learning", seed=[0, 1, 1, 0], session=[0, 0, 1, 1])
    frame["round"] = [7, 8, 3, 4]
    ratios = paired_ratios(frame, {"strategy": "threads"}, {"strategy": "sequential"}, "images_per_second")
    assert ratios.to_list() == pytest.approx([0.9 / 0.4, 0.8 / 0.5])


def of_sessions(*sessions: list[float]) -> pd.Series:
    index = [(number, 100 * number + at) for number, values in enumerate(sessions) for at in range(len(values))]
    values = [value for session in sessions for value in session]
    return pd.Series(values, index=pd.MultiIndex.from_tuples(index, names=["session", "round"]))


FIRST = [2.0, 2.1, 1.9, 2.0, 2.05, 1.95]


def test_sessions_that_are_alike_are_as_good_as_one() -> None:
    same = [2.02, 1.98, 2.1, 1.9, 2.0, 2.0]
    together, pooled = interval_of(of_sessions(FIRST, same)), interval_of(pd.Series([*FIRST, *same]))
    assert (together.low, together.high, together.rounds) == pytest.approx((pooled.low, pooled.high, 12))
    assert together.half_width < interval_of(of_sessions(FIRST)).half_width and not together.apart


def test_sessions_that_differ_are_spanned_and_told_one_by_one() -> None:
    apart = interval_of(of_sessions(FIRST, [1.5 * value for value in FIRST]))
    alone = [interval_of(pd.Series(values)) for values in (FIRST, [1.5 * value for value in FIRST])]
    assert apart.value == pytest.approx(2.0 * math.sqrt(1.5), rel=0.01)
    assert apart.low < alone[0].value < alone[1].value < apart.high
    assert apart.rounds_until(9.0) == math.inf, "no number of rounds makes two machines one"
    told = "(sessions differ: session 0: 2 [1.85, 2.16]; session 1: 3 [2.77, 3.24])"
    assert str(apart).endswith(told) and str(apart.times(2.0)).count("session 1: 6 [") == 1
    assert "session 0: 0.5 [" in str(interval_of(pd.Series(np.ones(6))).over(apart)), "a quotient's sessions, too"
    assert times(apart, "as fast").endswith(told) and measure_of(apart, "s").endswith(told)
    assert ratio_columns(apart)["speedup_sessions"] == told
    assert set(ratio_columns(alone[0])) == {"speedup", "low", "high"}


def test_sessions_with_too_few_rounds_for_an_interval_are_told_as_others() -> None:
    """Bug: a mean lay below both sessions that were told, for a third one counted, too, and stood nowhere. A quotient's
    rounds are those of one side alone, so nothing can be counted there."""
    apart = interval_of(of_sessions(FIRST, [1.5 * value for value in FIRST], [1.0, 1.1]))
    assert str(apart).endswith("]; others: 2 rounds, too few in each)")
    assert [text.partition(":")[0] for text in told_apart(str(apart))] == ["session 0", "session 1"]
    assert "others" not in str(apart.over(interval_of(pd.Series(np.ones(9)))))


def test_a_ratio_by_way_of_a_third_cell_takes_it_always_where_it_must() -> None:
    """Bug: with five rounds of both cells it was their own ratio, where the text says that it follows from two."""
    rates = {("sequential", 0): 1.0, ("a", 0): 2.0, ("a", 1): 3.0, ("b", 1): 2.0, ("sequential", 2): 1.0, ("b", 2): 2.0}
    rows = [
        {"strategy": name, "round": 10 * kind + at, "rate": rate * (1 + 0.01 * at), "status": "ok", "session": 0,
         "reason": "", "experiment": "x", "source": "measured"}
        for (name, kind), rate in rates.items() for at in range(5)
    ]  # fmt: skip
    sides, third = ({"strategy": "a"}, {"strategy": "sequential"}), {"strategy": "b"}
    found = [ratio_by_way_of(pd.DataFrame(rows), sides, third, "rate", always=always) for always in (False, True)]
    assert [each.value for each in found if each] == pytest.approx([2.0, 3.0])


def test_a_session_of_few_rounds_takes_little_from_a_long_one() -> None:
    long = FIRST * 6
    alone, with_few = interval_of(of_sessions(long)), interval_of(of_sessions(long, [2.02, 2.03]))
    assert 0.9 * alone.half_width < with_few.half_width < 1.05 * alone.half_width and not with_few.apart


def test_no_test_switches_the_interval_of_several_sessions() -> None:
    """As a second machine departs from the first, the interval grows evenly: nowhere by a tenth within a thousandth."""
    widths = [interval_of(of_sessions(FIRST, [gap * each for each in FIRST])).half_width
              for gap in np.arange(1.0, 1.3, 0.001)]  # fmt: skip
    steps = np.array(widths[1:]) / widths[:-1]
    assert widths[-1] > 2 * widths[0] and steps.max() < 1.1 and steps.min() > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("between", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("count", [2, 3])
def test_the_interval_of_several_sessions_holds_their_mean_whenever_it_is_looked_at(count: int, between: float) -> None:
    """Session after session, each with an effect of its own; looked at every fourth round of the last one."""
    random, runs, missed = np.random.default_rng(21), 200, 0
    for _ in range(runs):
        effects = between * random.standard_normal(count)
        values = effects[:, None] + 0.05 * random.standard_normal((count, 24))
        looks = [over_sessions(of_sessions(*values[:-1].tolist(), values[-1, :rounds].tolist()), logarithmic=False)
                 for rounds in range(8, 25, 4)]  # fmt: skip
        missed += any(not found.low <= effects.mean() <= found.high for found in looks)
    assert missed / runs <= 0.05


def test_aa_noise_of_one_pair_is_wide_and_of_none_unknown() -> None:
    """4 % between the two runs of one cell: 12.7 times as much is what one pair can promise of the next."""
    frame = records()
    base = frame[(frame["strategy"] == "sequential") & (frame["variant"] == "a") & (frame["status"] == "ok")]
    alone = base[(base["use_case"] == "SimpleBig") & (base["experiment"] == "table1")]
    apart = pd.concat([alone, alone.assign(variant="b", images_per_second=alone["images_per_second"] * 1.04)])
    assert len(aa_pairs(apart)) == 1
    assert aa_noise(apart) == pytest.approx(12.706 * math.log(1.04), rel=1e-4)
    assert aa_noise(base) == math.inf, "no pair"
    few = apart[apart["round"].isin(sorted(set(apart["round"]))[:4])]
    assert aa_noise(few) == math.inf, "no pair with rounds enough"


def test_a_session_starts_its_teams_anew_and_so_is_a_pair_of_its_own() -> None:
    frame = small([1.04] * 6, [1.0] * 6).assign(global_batch_size=32)
    pair = frame.assign(variant=np.where(frame["strategy"] == "threads", "b", "a"), strategy="sequential")
    pair = pd.concat([pair, pair.assign(session=1, round=pair["round"] + 6)], ignore_index=True)
    pair = pair.reindex(columns=[*dict.fromkeys([*CELL, *pair.columns])], fill_value="")
    found = aa_pairs(pair)
    assert [each.value for each in found] == pytest.approx([1.04, 1.04]) and [each.rounds for each in found] == [6, 6]
    assert aa_noise(pair) == pytest.approx(4.303 * math.log(1.04), rel=1e-3)
    few = aa_pairs(pair[pair["round"].isin([3, 4, 5, 6, 7, 8])])
    assert [each.rounds for each in few] == [6], "three rounds each are one pair together"


def test_the_more_pairs_the_less_is_unknown() -> None:
    pair = Estimate(1.04, 1.0, 1.08, 12)
    widths = [pooled_noise([pair] * count) / math.log(1.04) for count in (1, 2, 4, 30)]
    assert widths == pytest.approx([12.71, 4.30, 2.78, 2.04], abs=0.01)


def test_a_difference_is_not_shown_where_the_noise_is_unknown() -> None:
    found = above_one(interval_of(pd.Series([1.5, 1.6] * 6)), math.inf, "times")
    assert found.answer == UNDECIDED and "no A/A pair has 5 rounds" in found.reason and math.isnan(found.rounds_more)
    assert not is_difference(interval_of(pd.Series([1.5, 1.6] * 6)), math.inf)


@pytest.mark.parametrize("pairs", [1, 2, 4])
@pytest.mark.parametrize("teams", [0.0, 0.05], ids=["equal teams", "teams that differ"])
def test_two_equal_cells_are_rarely_called_different(pairs: int, teams: float) -> None:
    """Each team is a little faster or slower throughout; the pairs of a notebook tell how much, however few."""
    random, runs, called = np.random.default_rng(7), 1000, 0
    for _ in range(runs):
        shift = teams * random.standard_normal((pairs + 1, 1))
        found = [estimate(np.exp(row)) for row in shift + 0.05 * random.standard_normal((pairs + 1, 12))]
        called += is_difference(found[0], pooled_noise(found[1:]))
    assert called / runs <= 0.05


def test_differences_among_ten_equal_pairs_together_are_rarely_called_one() -> None:
    """A/A over ten pairs together: at most one run in twenty calls any of them a difference."""
    rng, called = np.random.default_rng(7), 0
    for _ in range(200):
        pairs = [estimate(np.exp(0.05 * rng.standard_normal(12))) for _ in range(10)]
        called += any(is_difference(pair, pooled_noise(pairs)) for pair in pairs)
    assert called / 200 <= 0.05


def test_roughness_is_the_mean_change_over_the_mean_without_the_first_sample() -> None:
    # 2, 4, 3 follow the ramp: changes 2 and 1, mean change 1.5, mean 3.
    trace = pd.DataFrame({"seconds": [0, 3, 1, 2], "pss_bytes": [99, 3, 2, 4]})
    assert roughness(trace, "pss_bytes") == pytest.approx(0.5)
    assert math.isnan(roughness(trace.head(1), "pss_bytes"))


# Tables


def row_of(table: pd.DataFrame, **conditions: object) -> pd.Series:
    for name, value in conditions.items():
        table = table[table[name] == value]
    assert len(table) == 1, f"{len(table)} rows for {conditions}"
    return table.iloc[0]


def test_summary_table_keeps_every_cell_with_speedup_base_and_seconds() -> None:
    table = summary_table(records())
    row = row_of(table, use_case="SimpleBig", strategy="processes", device="cpu", precision="float32", variant="a")
    assert row["low"] <= row["speedup"] <= row["high"] and row["speedup"] == pytest.approx(1.9, rel=0.02)
    assert (row["base"], row["rounds"], bool(row["difference"])) == ("sequential", 8, True)
    assert row["step_seconds"] == pytest.approx(16 / 18 / 1.9, rel=0.02)
    skipped = row_of(table, use_case="SimpleBig", strategy="processes_allreduce", device="cuda")
    assert (skipped["status"], skipped["reason"]) == ("skipped", "no CUDA device")
    assert math.isnan(skipped["speedup"]) and not skipped["difference"]


def test_the_second_half_of_the_aa_pair_is_no_difference() -> None:
    frame = records(experiments=("table1",))
    frame = frame[(frame["use_case"] == "SimpleBig") & (frame["strategy"] == "processes")]
    table = summary_table(frame, base={"strategy": "processes", "variant": "a"})
    row = row_of(table, variant="b", precision="float32")
    assert row["speedup"] == pytest.approx(1, abs=0.03) and not row["difference"]


def test_failed_cells_stay_rows_and_a_failed_round_is_told() -> None:
    table = summary_table(records(failed="ddp"))
    failed = row_of(table, use_case="SimpleBig", strategy="ddp", precision="float32")
    assert failed["status"] == "failed" and "ValueError" in failed["reason"]
    frame = records()
    base = frame[(frame["strategy"] == "sequential") & (frame["status"] == "ok")]
    hit = frame.index[(frame["strategy"] == "ddp") & frame["round"].isin(base["round"])][0]
    frame.loc[hit, ["status", "reason", "images_per_second"]] = ["failed", "killed", math.nan]
    some = row_of(summary_table(frame), use_case="SimpleBig", strategy="ddp", precision="float32")
    assert (some["status"], some["rounds"], some["reason"]) == ("ok", 7, "1 of 16 rounds failed: killed")


def test_each_part_of_the_reasons_of_a_cell_is_told_once() -> None:
    """And in the singular where there is one: older rows say "1 servers x 1 cores"."""
    shared = "2 workers and 1 servers x 1 cores on 2 usable cores: workers share cores"
    rows = pd.DataFrame({"status": "ok", "reason": [shared, None, f"{shared}; {CONTENDED}", "11 cores"]})
    told = "2 workers and 1 server x 1 core on 2 usable cores: workers share cores"
    assert outcome(rows) == ("ok", f"{told}; {CONTENDED}; 11 cores")
    assert outcome(rows.assign(status="failed")) == ("failed", f"{told}; {CONTENDED}; 11 cores")
    one = outcome(rows.assign(status=["ok", "ok", "ok", "failed"]))[1]
    assert one == f"1 of 4 rounds failed: {told}; {CONTENDED}; 11 cores"


def test_without_a_base_there_is_no_speedup() -> None:
    frame = records()
    table = summary_table(frame[(frame["strategy"] != "sequential") & (frame["variant"] == "a")])
    assert table["speedup"].isna().all() and (table["base"] == "").all()


def several(*speeds: list[float]) -> tuple[pd.DataFrame, list[dict[str, Any]], dict[str, Any]]:
    """Strategies beside a base of speed 1 in every round; the conditions of each, and the base's."""
    parts = [small(own, [1.0] * len(own)) for own in speeds]
    named = [part[part["strategy"] == "threads"].assign(strategy=f"way {number}") for number, part in enumerate(parts)]
    sides = [{"strategy": f"way {number}"} for number in range(len(speeds))]
    return pd.concat([*named, parts[0][parts[0]["strategy"] == "sequential"]]), sides, {"strategy": "sequential"}


def test_the_fastest_of_several_is_not_judged_as_if_it_had_been_the_only_one() -> None:
    swing = np.tile([0.95, 1.05], 6)
    frame, sides, base = several(list(1.20 * swing), list(1.15 * swing), list(1.10 * swing), [1.0] * 12)
    ratio, place = highest_ratio(frame, sides, base, "images_per_second")
    alone = ratio_with_interval(frame, sides[0], base, "images_per_second")
    assert place == 0 and ratio.value == alone.value and ratio.low < alone.low < alone.high < ratio.high
    assert ratio.chance(1.0) == pytest.approx(4 * alone.chance(1.0), rel=1e-4)
    assert [each["strategy"] for each in each_strategy(frame, {"status": "ok"})] == [
        "way 0", "way 1", "way 2", "way 3", "sequential"
    ]  # fmt: skip


def test_what_never_stood_beside_the_base_is_no_candidate() -> None:
    frame, sides, base = several([1.2, 1.3] * 6, [2.0] * 12)
    frame.loc[frame["strategy"] == "way 1", "round"] += 100
    ratio, place = highest_ratio(frame, sides, base, "images_per_second")
    assert place == 0 and ratio == ratio_with_interval(frame, sides[0], base, "images_per_second")
    for none in (sides[1:], []):
        with pytest.raises(AnalysisError, match="measure them in one run"):
            highest_ratio(frame, none, base, "images_per_second")
    twice = pd.concat([frame, frame])
    with pytest.raises(AnalysisError, match="several rows"):
        highest_ratio(twice, sides, base, "images_per_second")


def test_ratio_with_interval_reads_as_text() -> None:
    ratio = ratio_with_interval(small([20, 30, 40], [10] * 3), {"strategy": "threads"}, {"strategy": "sequential"},
                                "images_per_second")  # fmt: skip
    assert str(ratio) == "2.88 (no interval yet)" and ratio.rounds == 3, "three rounds leave everything open"


def test_a_trace_tells_threads_that_train_from_the_frameworks() -> None:
    """Traces from before both were counted have the number of all, and none of either kind."""
    table = trace_table(resources(2))
    assert (table["framework_threads_mean"] == 8).all()
    assert (table["training_threads_mean"] + 8).tolist() == pytest.approx(table["threads_mean"].tolist())
    older = trace_table(resources(2).drop(columns=["training_threads", "framework_threads"]))
    assert older[["training_threads_mean", "framework_threads_mean"]].isna().all(axis=None)
    assert older["threads_mean"].equals(table["threads_mean"])


def test_disturbed_rounds_are_left_out_where_quiet_ones_are() -> None:
    """Figures and findings rest on the rounds that verdicts rest on. Seen: a disturbed round of the whole grid stayed,
    because no quiet round held the very same cells."""
    frame = records()
    first = frame[frame["round"] == frame["round"].min()]
    slow = first.assign(round=1000, reason=CONTENDED)
    slow.loc[slow["strategy"] == "processes", "images_per_second"] /= 100
    alone = first.assign(round=1001, reason=CONTENDED, strategy="another").head(1)
    everything = pd.concat([frame, slow, alone], ignore_index=True)
    cell = {"experiment": "table1", "use_case": "SimpleBig", "variant": "a", "device": "cpu", "precision": "float32"}
    above, base = cell | {"strategy": "processes"}, cell | {"strategy": "sequential"}
    for measured in (frame, everything):
        assert 1000 not in set(per_round(measured, above, "images_per_second").index.get_level_values("round"))
    assert ratio_with_interval(everything, above, base, "images_per_second") == ratio_with_interval(
        frame, above, base, "images_per_second"
    )
    rows = {found["strategy"]: set(own["round"]) for found, own in cells(everything, "table1")}
    assert rows["another"] == {1001} and 1000 not in rows["processes"]


def test_a_disturbed_seed_drops_no_quiet_cell_of_its_round() -> None:
    """Bug: others disturbed a cell that learns, and the speeds of its round were left out with it."""
    quiet = pd.DataFrame([make_row(Job.of("threads", workers=2, round=number), {"images_per_second": 10.0 + number})
                          for number in range(3)], columns=list(COLUMNS))  # fmt: skip
    learnt = make_row(Job.of("sequential", experiment="learning", epochs=1, round=1), {}, reason=CONTENDED)
    frame = pd.DataFrame([*quiet.to_dict("records"), learnt], columns=list(COLUMNS))
    found = per_round(frame, {"strategy": "threads"}, "images_per_second")
    assert found.index.get_level_values("round").tolist() == [0, 1, 2]

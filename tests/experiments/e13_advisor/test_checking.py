"""What is predicted of made-up records whose costs are known, what ranges hold, and what stands in errors.json."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

import fake_advisor
from lockstep.advisor.errors import AS_CALIBRATED, ERRORS_FILE, KindError, read_errors
from lockstep.analysis.stored import Stored
from lockstep.experiments.e13_advisor import checking
from lockstep.experiments.e13_advisor import picks as picking
from lockstep.experiments.e13_advisor.answer import answer
from lockstep.experiments.e13_advisor.drawings import memory_points
from lockstep.experiments.e13_advisor.errors_file import (
    FEWEST_ROUNDS,
    errors_text,
    further_cell,
    known_errors,
    write_errors,
)
from lockstep.experiments.e13_advisor.findings import chosen, covered, errors, held
from lockstep.experiments.e13_advisor.grid import HELD_OUT
from lockstep.experiments.e13_advisor.picks import picks
from lockstep.experiments.e13_advisor.tables import coverage, farthest, kinds, noise_floor, quantile_of, share_of
from lockstep.records import CONTENDED, MEMORY
from stored_reference import stored_reference


@cache
def exact() -> Stored:
    """Of cells that follow the model of costs to the last digit."""
    return fake_advisor.stored(rounds=5, off=0.0, noise=0.0)


@cache
def scattered() -> Stored:
    return fake_advisor.stored(off=0.05)


def longer(stored: Stored, times: float, **conditions: object) -> Stored:
    """The same with longer steps in the held-out cells that fit."""
    records = stored.records.copy()
    rows = records["experiment"] == HELD_OUT
    for name, value in conditions.items():
        rows &= records[name] == value
    assert rows.any()
    records.loc[rows, ["step_seconds", "compute_seconds"]] *= times
    records.loc[rows, "images_per_second"] /= times
    return Stored(records, stored.tables)


def test_cells_that_follow_the_model_are_predicted_exactly() -> None:
    table = checking.predictions(exact())
    same = table[~table["kind"].str.startswith("several hosts, turns")]
    assert len(same) > 40 and same["error"].max() < 1e-9
    assert set(table["kind"]) >= {AS_CALIBRATED, "one worker, another batch", "turns on a core", "several hosts"}
    assert picks(exact())["good"].all() and (checking.memories(exact())["ratio"] - 1).abs().max() < 1e-6


def test_a_cell_that_is_slower_than_the_model_is_off_by_as_much() -> None:
    slow = longer(exact(), 1.25, use_case="MLPMixer", strategy="processes", workers=4)
    table = checking.predictions(slow)
    (row,) = table[(table["error"] > 0.1) & (table["hosts"] == 1)].to_dict("records")
    assert (row["use_case"], row["workers"]) == ("MLPMixer", 4)
    assert row["error"] == pytest.approx(row["step_seconds"] / row["predicted_seconds"] - 1)
    worst = farthest(slow).iloc[0]
    assert worst["part"] == "computing" and worst["part_seconds"] > 0 and worst["use_case"] == "MLPMixer"


def test_a_model_s_ranges_come_from_the_other_models() -> None:
    """A model that alone is half as fast again lies outside its ranges; the others' ranges become wide by it."""
    usual = checking.judged(exact())
    odd = checking.judged(longer(exact(), 1.5, use_case="TextLSTM", strategy="sequential"))

    def own(table: pd.DataFrame, name: str) -> pd.DataFrame:
        return table[(table["use_case"] == name) & (table["strategy"] == "sequential") & (table["variant"] == "a")]

    assert not own(odd, "TextLSTM")["holds"].any()
    width = [(own(each, "MLPMixer")["range_high"] / own(each, "MLPMixer")["range_low"]).min() for each in (usual, odd)]
    assert width[1] > 1.2 * width[0]


def test_a_processor_without_a_cost_hides_no_other_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"a": 0.1, "b": math.nan, "c": 0.5}
    tables = {name: pd.DataFrame({"advised_loss": [loss]}) for name, loss in losses.items()}
    monkeypatch.setattr(picking, "picks", tables.__getitem__)
    monkeypatch.setattr(picking, "other_processors", lambda stored: {"B": "b", "C": "c"})
    text: str = picking.advised_costs("a")  # type: ignore[arg-type]
    assert text.endswith("1.1 times at most (on other processors at most 1.5)")


def test_two_processors_are_not_mixed() -> None:
    """What is calibrated with the seconds of two is a model of none. The other's error is told, and all names whose the
    numbers are."""
    own, slower = exact().records, longer(exact(), 1.2).records
    few = slower[slower["round"] >= slower["round"].median()].assign(session=1)
    few["round"] += 1 + own["round"].max()
    seconds = [name for name in few if name.endswith("_seconds")]
    few[seconds] = few[seconds].astype(float) * 3
    few["images_per_second"] /= 3
    names = {0: "AMD EPYC", 1: "Intel(R) Xeon(R) Processor"}
    both = Stored(pd.concat([own, few], ignore_index=True), exact().tables, processors=names)
    for found in (checking.predictions, picks, noise_floor):
        pd.testing.assert_frame_equal(found(both), found(exact()))
    text = errors(both)
    own_median = "with a calibration of its own, the median is 20 % [20, 20] on Intel Xeon ("
    assert f"; all of that on AMD EPYC; {own_median}" in text and "on Intel Xeon" not in errors(exact())
    assert re.search(r"off in the median of 12 cells \([\d.]+ % \[[^]]+\] on Intel Xeon\)\. ", text)
    assert "all of that" not in errors(exact()) and "AMD" not in answer(exact())
    assert answer(both).endswith("Numbers are of AMD EPYC, on which most was measured.")
    choices = len(picks(exact()))
    elsewhere = picks(checking.each_processor(both)["Intel Xeon"])
    hits = int((elsewhere["pick"] == elsewhere["best"]).sum())
    assert picking.quickest_elsewhere(both) == f" on AMD EPYC (on Intel Xeon in {hits} of {choices})"
    assert picking.quickest_elsewhere(exact()) == ""
    most = 1 + elsewhere["advised_loss"].max()
    assert most > 1 and chosen(both).endswith(f"times at most (on other processors at most {most:.3g}).")
    assert "other processors" not in chosen(exact())
    assert "On Intel Xeon, " in covered(both) and "were held" not in covered(exact())
    one = both.records[(both.records["session"] == 0) | (both.records["use_case"] == "MLPMixer")]
    one = one[(one["session"] == 0) | (one["round"] == one["round"][one["session"] == 1].max())]
    alone = Stored(one, both.tables, processors=names)
    assert checking.other_processors(alone) == {}, "seen: 42 cells, most of one round"
    every = checking.all_predictions(both)
    assert len(every) == 2 * len(checking.predictions(exact()))
    assert every["error"].iloc[len(every) // 2 :].median() == pytest.approx(0.2)
    alike = Stored(both.records, both.tables, processors=dict.fromkeys(names, "AMD EPYC"))  # one name, two speeds
    pd.testing.assert_frame_equal(checking.predictions(alike), checking.predictions(both))
    pd.testing.assert_frame_equal(checking.all_predictions(alike), every)
    assert list(checking.other_processors(alike)) == ["AMD EPYC (session 1)"]
    assert list(checking.each_processor(alike)) == ["AMD EPYC (session 0)", "AMD EPYC (session 1)"]
    assert len(checking.memories(alike)) == len(checking.memories(both)) > 0, "one that calls itself never ends"
    assert "; all of that on AMD EPYC (session 0); " in errors(alike)


def test_the_memory_of_every_processor_is_judged() -> None:
    """It hardly depends on the processor, and the worst of all is what "never too low" is held against."""
    own = exact().records[exact().records["experiment"] == MEMORY]
    more = exact().records.assign(session=1)
    more["round"] += 1 + more["round"].max()
    several = (more["experiment"] == MEMORY) & (more["workers"] > 1)
    more.loc[several, "peak_pss_bytes"] = more.loc[several, "peak_pss_bytes"].astype(float) * 1.25
    names = {0: "AMD EPYC", 1: "Intel(R) Xeon(R) Processor"}
    both = Stored(pd.concat([exact().records, more], ignore_index=True), exact().tables, processors=names)
    table = checking.memories(both)
    assert len(own) and len(table) == 2 * len(checking.memories(exact()))
    assert sorted(set(table["ratio"].round(6))) == [0.8, 1.0] and set(table["processor"]) == {"AMD EPYC", "Intel Xeon"}
    assert f"of {len(table)} cells on two processors" in held(both) and "20 % below" in held(both)
    assert ", on Intel Xeon." in held(both) and "processor" not in held(exact())
    figure = memory_points(table, "title")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["AMD EPYC", "Intel Xeon"]


def test_what_processes_hold_counts_whatever_others_did_meanwhile() -> None:
    """Bug: the larger of two peaks was left out, for others were at work, and a worker's memory was predicted a sixth
    too low by the smaller one. Other programs take time and no memory of ours."""
    whole = exact().records
    peaks = (whole["experiment"] == MEMORY) & (whole["workers"] == 1)
    again = whole[peaks].assign(round=lambda rows: rows["round"] + 1 + whole["round"].max(), reason=CONTENDED)
    again["peak_pss_bytes"] = 1.5 * again["peak_pss_bytes"].astype(float)
    both = Stored(pd.concat([whole, again], ignore_index=True), exact().tables)
    for stored in (both, both.quiet):
        assert (checking.memories(stored)["ratio"] > 1.2).all()


def test_ranges_hold_about_as_many_as_they_should() -> None:
    table = coverage(scattered())
    assert list(table["level"]) == sorted(table["level"]) and table["held"].is_monotonic_increasing
    assert ((table["low"] <= table["level"]) & (table["level"] <= table["high"])).all()


def test_a_further_cell_stays_within_student_s_prediction_interval() -> None:
    logs = pd.Series([-0.1, 0.1, 0.0, 0.0])
    low, high = further_cell(logs, 0.90)
    assert (low, high) == pytest.approx((-0.2149, 0.2149), abs=1e-3), "2.353 x 0.0816 x sqrt(1.25)"


def test_errors_of_a_kind_need_cells_enough() -> None:
    table = pd.DataFrame({
        "kind": ["a core each"] + ["a core each, another batch"] * 3,
        "log_error": [0.3, 0.0, 0.1, 0.2], "error": [0.35, 0.0, 0.105, 0.22], "rounds": 5,
    })  # fmt: skip
    found = known_errors(table)
    assert found["a core each"].cells == 4, "too few of its own: those of another batch count too"
    assert found["a core each, another batch"].cells == 3
    assert known_errors(table.iloc[:2]) == {} == known_errors(pd.DataFrame())


def test_errors_hold_how_far_their_calibrations_were_off() -> None:
    """Rounds that differ are in the error of a kind, and so a calibration that differs as much widens it by nothing."""
    table = checking.predictions(scattered())
    known = known_errors(table)
    own = table[table["kind"] == "turns on a core"]
    spread = known["turns on a core"].calibration_spread
    assert own["calibration_spread"].min() <= spread <= own["calibration_spread"].max() and spread > 0
    judged = checking.judged(scattered())
    cell = judged[judged["kind"] == "turns on a core"].iloc[0]
    others = known_errors(table[table["use_case"] != cell["use_case"]])["turns on a core"]
    beyond = math.sqrt(max(0.0, cell["calibration_spread"] ** 2 - others.calibration_spread**2))
    high = math.log(cell["range_high"] / cell["predicted_seconds"])
    assert high == pytest.approx(others.high + math.hypot(others.high, beyond) - abs(others.high))


def test_the_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    write_errors(checking.predictions(scattered()), path)
    known = read_errors(path)
    assert known["turns on a core"].cells == 12 and known["turns on a core"].low < 0 < known["turns on a core"].high
    few = checking.predictions(fake_advisor.stored(rounds=FEWEST_ROUNDS - 1))
    assert json.loads(errors_text(few))["kinds"] == {}, "too few rounds"
    assert json.loads(errors_text(pd.DataFrame()))["kinds"] == {}


def test_the_advisor_s_errors_are_those_of_the_reference(root: Path) -> None:
    """`lockstep run 13 --reference` writes the file; whoever changes how predictions are made runs it again."""
    stored = stored_reference(root / "results" / "reference" / "13_advisor")
    assert ERRORS_FILE.read_text(encoding="utf-8") == errors_text(checking.all_predictions(stored.shown))


def test_the_noise_floor_is_what_a_cell_differs_by_from_itself() -> None:
    records = exact().records.copy()
    twice = records["variant"] == "b"
    records.loc[twice, "images_per_second"] /= 1.04
    table = noise_floor(Stored(records, exact().tables))
    assert len(table) == 13 and table["apart"].tolist() == pytest.approx([0.04] * 13)


def test_a_wrong_pick_costs_what_it_is_slower_by() -> None:
    """With shared memory half as fast again as it was calibrated, at four times the batch the advice is wrong."""
    slow = longer(exact(), 1.5, use_case="SmallResNet", strategy="processes", workers=2, global_batch_size=32)
    found = picks(slow)
    (row,) = found[(found["use_case"] == "SmallResNet") & (found["global_batch_size"] == 32)].to_dict("records")
    assert row["pick"] == "processes x 2" and row["best"] == "processes_allreduce x 2" and not row["good"]
    assert 0.2 < row["loss"] < 0.5


def test_what_is_recommended_is_the_simplest_way_that_cannot_be_told_from_the_quickest(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    exactly = picks(exact())
    assert (exactly["advised"] == exactly["pick"]).all() and exactly["advised_good"].all(), "errors of 0"
    assert (exactly["pick"] != "sequential").any()
    wide = KindError(9, 1.0, -3.0, 3.0)
    kinds = {kind: wide for kind in ("as calibrated", "one worker", "a core each", "turns on a core")}
    monkeypatch.setattr(picking, "known_errors", lambda table: kinds)
    found = picks(longer(exact(), 1.0, use_case="SmallResNet"))
    own = found[found["best"] != "sequential"]
    assert (own["advised"] == "sequential").any() and (own["advised_loss"] > 0).any()
    assert not (found["advised"].str.contains(" x ") & found["pick"].eq("sequential")).any(), "never a harder one"


def test_quantiles_and_shares_have_intervals_over_cells() -> None:
    found = quantile_of(pd.Series(range(101), dtype=float), 0.9)
    assert found.value == 90 and 80 < found.low < 90 < found.high <= 100 and found.rounds == 101
    assert quantile_of(pd.Series([1.0, 2.0]), 0.5).open
    share = share_of(pd.Series([True] * 9 + [False]))
    assert (share.value, share.low, share.high) == pytest.approx((0.9, 0.555, 0.9975), abs=1e-3)
    assert share_of(pd.Series([True] * 4)).high == 1.0


def test_kinds_stand_in_the_order_of_their_difficulty() -> None:
    table = kinds(scattered())
    assert table["kind"].iloc[0] == AS_CALIBRATED and table["kind"].iloc[-1].startswith("several hosts")
    assert (table["median"] <= table["p90"]).all() and math.isfinite(table["bias"].sum())

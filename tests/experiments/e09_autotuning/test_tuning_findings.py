"""What notebook 09 says follows from its records, and flips with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fake_tuning
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import CONTRADICTED, SUPPORTED, UNDECIDED
from lockstep.experiments.e09_autotuning import EXPERIMENT, comparing, verdicts
from lockstep.experiments.e09_autotuning.choice import shown_studies
from lockstep.experiments.e09_autotuning.chosen_setting import SETTING, write_chosen
from lockstep.experiments.e09_autotuning.drawings import engine_points
from lockstep.experiments.e09_autotuning.findings import FINDINGS, saves
from lockstep.experiments.e09_autotuning.grid import CHOSEN
from lockstep.experiments.e09_autotuning.stored_pool import pool_in
from lockstep.experiments.e09_autotuning.tables import TABLES, ladder
from lockstep.records import RunFolder, read_tables
from lockstep.tuning.pool import CurvePool
from lockstep.tuning.replay import Replayed
from lockstep.tuning.setting_file import read_setting
from stored_reference import stored_reference

CLAIM = {"value": 83.0, "use_case": "Pneumonia"}


@pytest.mark.parametrize("name", FINDINGS)
def test_without_a_pool_every_finding_says_what_is_missing(name: str) -> None:
    assert FINDINGS[name](no_records()).startswith("Nothing is stored yet")
    records = fake_tuning.stored().records
    assert "do not answer this yet" in FINDINGS[name](Stored(records[records["experiment"] == "pool"]))


def test_the_ladder_says_what_each_step_gains() -> None:
    said = FINDINGS["ladder"](fake_tuning.stored(tuned=0.05))
    assert said.startswith(
        "Of four networks with additions, 4 are shown to gain on the plain CNN's 80.0 % of test images. "
        "A network with dropout gains 1 points"
    )
    assert "a network with dropout and L2 gains 2 points" in said
    assert "the tuned network gains 5.01 points [" in said
    assert "the tuned network loses 3.99 points [" in FINDINGS["ladder"](fake_tuning.stored(tuned=-0.04))
    alike = FINDINGS["ladder"](fake_tuning.stored(tuned=0.0))
    assert "additions, 3 are shown" in alike and "the tuned network cannot be told apart from it (" in alike
    few = FINDINGS["ladder"](fake_tuning.stored(seeds=2))
    assert "with too few seeds for an interval" in few and "gains" not in few and "none is shown to gain" in few


def test_steps_of_other_seeds_are_compared_over_those_that_both_have() -> None:
    """Seen: a tuned network of 13 seeds beside a plain CNN of five, whose five pairs counted as 13."""
    many, few = fake_tuning.stored(seeds=9), fake_tuning.stored(seeds=3)
    both = "differences are over the seeds that both have"
    assert both not in FINDINGS["ladder"](many)
    rows = many.records
    for kept in (rows["experiment"] == CHOSEN, rows["strategy"].notna() & (rows["experiment"] != CHOSEN)):
        cut = Stored(rows[kept | (rows["seed"] < 3)], many.tables)
        said = FINDINGS["ladder"](cut)
        assert "the tuned network is " in said and "with too few seeds for an interval" in said and both in said
        assert "with too few seeds" in FINDINGS["ladder"](few) and "too few seeds" in EXPERIMENT.answer(cut)


@pytest.mark.parametrize("rule", ["tuned_accuracy", "tuning_gains", "tuned_learns_faster", "engines_faster"])
def test_verdicts_say_what_a_round_takes(rule: str) -> None:
    whole = fake_tuning.stored()
    timed = Stored(whole.records.assign(measuring_seconds=60.0), whole.tables)
    sides = 2 if rule != "tuned_accuracy" else 1
    assert verdicts.RULES[rule](CLAIM, timed).round_seconds == 60.0 * sides


def test_the_ladder_is_paired_by_seed() -> None:
    table = ladder(fake_tuning.stored()).set_index("step")
    assert table["more"].round(6).to_dict() | {"plain CNN": 0} == pytest.approx(
        {"plain CNN": 0, "+ dropout": 1, "+ L2": 2, "+ LSTM head": 3, "tuned": 3.0}, abs=0.2
    )
    assert table.loc["+ dropout", "more_high"] - table.loc["+ dropout", "more_low"] < 1e-6, "the same wobble"


def test_curves_name_the_best_the_median_and_the_worst_as_they_are_drawn() -> None:
    """Bug: the title told accuracies, and neither the axis nor the order of the curves was that of accuracies."""
    stored = fake_tuning.stored(diverged=2)
    said, last = FINDINGS["curves"](stored), fake_tuning.curves(14)[:, -1]
    assert f"the best ends at a score of {last[0]:.3g}, the median one {np.median(last):.3g}, and " in said
    assert f"the worst {last[-1]:.3g}; two settings diverged." in said
    axis = EXPERIMENT.figures["curves"](stored).axes[0]
    assert axis.get_ylabel().startswith("score") and all(tick == int(tick) for tick in axis.get_xticks())


def test_engines_say_how_many_and_how_much_faster_they_are() -> None:
    """Bug: "several engines", of which there were two."""
    assert FINDINGS["engines"](fake_tuning.stored()).startswith("Two engines train one list of trials 1.8 times")


@pytest.mark.parametrize("name", ["ladder", "pruners", "forecasts", "importances"])
def test_whiskers_say_of_what_they_are(root: Path, name: str) -> None:
    """Bug: intervals were drawn that neither an axis nor a legend named."""
    figure = EXPERIMENT.figures[name](stored_reference(root / "results" / "reference" / EXPERIMENT.name))
    assert any("whiskers: 95 %" in text for axis in figure.axes for text in (axis.get_xlabel(), axis.get_ylabel()))


@pytest.mark.parametrize(
    ("rule", "changes", "answer"),
    [
        ("tuned_accuracy", {"tuned": 0.03}, SUPPORTED),
        ("tuned_accuracy", {"tuned": 0.09}, CONTRADICTED),
        ("tuned_accuracy", {"seeds": 3}, UNDECIDED),
        ("tuning_gains", {"tuned": 0.05}, SUPPORTED),
        ("tuning_gains", {"tuned": -0.05}, CONTRADICTED),
        ("tuned_learns_faster", {"needed": 2}, SUPPORTED),
        ("tuned_learns_faster", {"needed": 7}, CONTRADICTED),
        ("engines_faster", {"engines": 1.8}, SUPPORTED),
        ("engines_faster", {"engines": 0.7}, CONTRADICTED),
    ],
)
def test_verdicts_flip_with_the_records(rule: str, changes: dict[str, float], answer: str) -> None:
    compute = verdicts.RULES[rule]
    try:
        found = compute(CLAIM, fake_tuning.stored(**changes))
    except verdicts.NotNow as error:
        found = error.verdict
    assert found.answer == answer


def test_epochs_saved_counts_what_was_never_reached_as_one_more() -> None:
    """The plain CNN's loss is lowest in its fourth epoch."""
    assert verdicts.epochs_saved(fake_tuning.stored(needed=2)).value == pytest.approx(4 / 2)
    assert verdicts.epochs_saved(fake_tuning.stored(needed=4)).value == pytest.approx(1.0), "alike on both sides"
    assert verdicts.epochs_saved(fake_tuning.stored(needed=99)).value == pytest.approx(4 / 9)


def test_the_chosen_setting_goes_to_a_file_and_comes_back(tmp_path: Path) -> None:
    stored = fake_tuning.stored()
    write_chosen(stored, tmp_path)
    pool = pool_in(stored)
    assert pool is not None
    written = read_setting(tmp_path / SETTING)
    assert pool.setting(1).items() <= dict(written).items() and written["epochs"] == 8
    fake_tuning.tuned_cell(fake_tuning.PARAMETERS, "chosen", {**written, "epochs": 8})  # it can be trained
    write_chosen(Stored(stored.records[stored.records["experiment"] != "chosen"], stored.tables), tmp_path / "none")
    assert not (tmp_path / "none").exists()


# What is computed of the pool


def test_regret_falls_as_trials_finish() -> None:
    """Three settings of four epochs: the first is stopped after one, the second finishes, and the third, the best."""
    pool = CurvePool(np.array([[0.1, 0.1, 0.1, 0.1], [0.2, 0.3, 0.4, 0.5], [0.2, 0.4, 0.6, 0.8]]), np.ones(3), 100)
    found = Replayed(0.75, True, 0.0, 9.0, np.arange(3), np.array([1, 4, 4]), np.array([False, True, True]))
    lost = comparing.regret_until(pool, found, np.array([1 / 12, 4 / 12, 5 / 12, 8 / 12, 9 / 12, 1.0]))
    assert lost == pytest.approx([0.8, 0.8, 0.3, 0.3, 0.0, 0.0])


def test_a_ratio_of_means_has_an_interval_over_curves() -> None:
    base = np.linspace(0.1, 0.3, 50)
    value, low, high = comparing.ratio_of_means(0.5 * base, base)
    assert (value, low, high) == pytest.approx((0.5, 0.5, 0.5))
    value, low, high = comparing.ratio_of_means(base[::-1], base)
    assert low < value < high and value == pytest.approx(1.0)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "ORDERS", 6)
    monkeypatch.setattr(comparing, "DRAWN_ORDERS", 3)
    monkeypatch.setattr(comparing, "STUDIES", (6,))
    monkeypatch.setattr(comparing, "WORKERS", (1,))
    monkeypatch.setattr(comparing, "SEEN", (1, 4))
    rules = {"none": ("none",), "Median": ("median", "median:warmup=2"), "gain rule": ("gain:p=0.1",)}
    monkeypatch.setattr(comparing, "CANDIDATES", rules)
    monkeypatch.setattr(comparing, "FORECASTERS", ("last", "best", "gain"))
    monkeypatch.setattr(comparing, "DRAWN", ("none", "Median"))


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
def test_comparisons_are_computed_once_for_a_pool_and_stay_when_a_run_goes_on(tmp_path: Path) -> None:
    stored = fake_tuning.stored()
    comparing.compare(stored, tmp_path)
    tables = read_tables(tmp_path)
    assert set(tables) == {"replays", "best_so_far", "curve_forecasts", "importances"}
    assert {int(each["pool"].iloc[0]) for each in tables.values()} == {16}
    none = tables["replays"].set_index("compared").loc["none"]
    assert none["share_of_epochs"] == 1.0 and none["kept"] == 1.0 and none["effective"] < 6
    last, best = (tables["curve_forecasts"].query(f"forecaster == {name!r}") for name in ("last", "best"))
    assert last["error"].to_numpy() == pytest.approx(best["error"].to_numpy()), "these curves only rise"
    assert last["relative"].to_numpy() == pytest.approx(1.0), "the first of the forecasters had no ratio"
    assert tables["importances"]["importance"].sum() == pytest.approx(1, abs=1e-3)
    with RunFolder(tmp_path, {"notebook": "09_autotuning", "parameters": {}}, {}):
        assert set(read_tables(tmp_path)) == set(tables), "they are of no round"
    known = Stored(stored.records, {**stored.tables, **tables})
    before = (tmp_path / "replays.csv").stat().st_mtime_ns
    comparing.compare(known, tmp_path)
    assert (tmp_path / "replays.csv").stat().st_mtime_ns == before
    for name in ("pruners", "course", "importances"):
        assert "do not answer" not in FINDINGS[name](known) or name == "pruners"
    assert all(len(TABLES[name](known)) for name in ("replays", "forecasts", "importances", "settings", "finalists"))
    for recipe in EXPERIMENT.figures.values():
        assert recipe(known).axes or recipe(known).texts


def test_a_small_pool_is_not_compared(tmp_path: Path) -> None:
    comparing.compare(fake_tuning.stored(settings=8), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_pool_whose_half_holds_no_study_is_not_compared(tmp_path: Path) -> None:
    """Forty minutes gave sixteen settings, and `lockstep run 07 09` ended with an IndexError."""
    assert not comparing.studies(16) and comparing.studies(20)
    comparing.compare(fake_tuning.stored(settings=16), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("settings", "trials"), [(24, [10]), (60, [10]), (76, [10, 30]), (122, [10, 30])])
def test_longer_studies_leave_a_fifth_of_the_half_to_other_orders(settings: int, trials: list[int]) -> None:
    """Replaying 60 of 61 settings took a quarter of an hour, and told next to nothing of other orders."""
    assert comparing.studies(settings) == trials


def test_the_answer_does_not_count_settings_that_came_after_the_choice() -> None:
    """It said that the network was chosen among all settings of the pool, which goes on growing."""
    said = EXPERIMENT.answer(fake_tuning.stored(tuned=0.05)) if EXPERIMENT.answer else ""
    assert "chose among settings drawn at random gains 5.01 points [" in said and "among 16" not in said


def test_the_answer_says_what_was_found_what_it_took_and_what_is_not_known_yet() -> None:
    stored = fake_tuning.stored(tuned=0.05)
    assert EXPERIMENT.answer is not None
    said = EXPERIMENT.answer(stored)
    last = 100 * fake_tuning.curves(16)[:, -1]
    chosen = "Compared with the plain CNN of the paper's Table 2, the network that held-out images chose "
    assert said.startswith(chosen)
    assert "Of 16 settings drawn at random and trained for 8 epochs, the best classifies " in said
    assert f"the median one {np.median(last):.1f} %, and the worst {last[-1]:.1f} %" in said
    hours = (16 * 2.0 * 8 + sum(range(16))) / 3600
    assert f"took {hours:.2g} core-hours; two engines train one list of trials 1.8 times as fast" in said
    pool = stored.records[stored.records["experiment"] == "pool"]
    said = EXPERIMENT.answer(Stored(pool, stored.tables))
    assert said.startswith("Not known yet is whether tuning pays on test images: no network that held-out images chose")
    assert "what several engines save in time is not known yet: the list of trials was not timed yet" in said
    assert "what pruners save: not known yet" in said


def replays(effective: float) -> pd.DataFrame:
    shares = {"share_of_epochs": 0.8, "share_low": 0.7, "share_high": 0.9, "kept": 0.9, "kept_low": 0.8}
    row = shares | {"kept_high": 1.0, "trials": 12, "workers": 1, "effective": effective, "on_frontier": True}
    return pd.DataFrame([row | {"compared": name, "text": f"{name.lower()}:p=0.3"} for name in ("LSTM", "Median")])


def test_a_pool_of_few_studies_tells_nothing_of_pruners() -> None:
    """Bug: intervals from 0 to 100 % were told as what a pruner saves."""
    whole, of_pool = fake_tuning.stored(), "cannot be told from this pool: the orders that are replayed have most"
    assert EXPERIMENT.answer is not None
    for effective, unsure in ((1.7, True), (40.0, False)):
        told = Stored(whole.records, {**whole.tables, "replays": replays(effective)})
        for text in (FINDINGS["pruners"](told), EXPERIMENT.answer(told)):
            assert (of_pool in text) == unsure and ("80 % [70, 90] of the epochs" in text) != unsure
            assert ("(lstm:p=0.3) trains 80 %" in text) != unsure, "with the options that it is true of"
    assert "amount to 1.7 independent studies, and an interval needs 5" in FINDINGS["pruners"](
        Stored(whole.records, {**whole.tables, "replays": replays(1.7)})
    )


def test_longer_studies_of_which_there_are_too_few_do_not_hide_shorter_ones() -> None:
    """Bug: a pool of 102 settings, enough for an interval of studies of ten trials, was said to tell nothing of
    pruners, for the two studies of 30 trials that it amounts to."""
    whole = fake_tuning.stored()
    longer = replays(2.1).assign(trials=30, share_of_epochs=0.5)
    for effective, trials in ((5.1, 12), (4.9, 30)):
        both = pd.concat([replays(effective), longer], ignore_index=True)
        told = Stored(whole.records, {**whole.tables, "replays": both})
        assert set(shown_studies(both)["trials"]) == {trials}
        assert ("80 % [70, 90] of the epochs" in FINDINGS["pruners"](told)) == (trials == 12)


def test_a_forecast_is_told_beside_a_rule_that_costs_nothing_and_where_it_is_worst() -> None:
    """Bug: an LSTM as good as a rule without a network, and worse than the last value later, was told as better."""
    rows = []
    for name, errors in (("lstm", (0.64, 1.3)), ("gain", (0.65, 0.9)), ("last", (1.1, 1.1)), ("power", (1.0, 1.0))):
        for epoch, error in zip((2, 8), errors, strict=True):
            ends = {"relative_low": error - 0.1, "relative_high": error + 0.1}
            rows.append({"forecaster": name, "epoch": epoch, "relative": error, "covered": 0.9} | ends)
    whole = fake_tuning.stored()
    said = FINDINGS["forecasts"](Stored(whole.records, {**whole.tables, "curve_forecasts": pd.DataFrame(rows)}))
    assert "errs less than the best value so far, and cannot be told apart from best so far + usual gain, a" in said
    assert "its own is then 0.64 [0.54, 0.74], and the rule's 0.65 [0.55, 0.75]; " in said
    assert "it is the largest after 8 epochs, 1.3 [1.2, 1.4]." in said


def test_choices_whose_intervals_overlap_do_not_stand_out() -> None:
    """Bug: the first three were called most important of all, with intervals that held those of all others."""
    whole, table = fake_tuning.stored(), pd.DataFrame({"name": ["rate", "batch"], "importance": [0.6, 0.4]})
    for low, begins in ((0.2, "No choice stands out: all intervals overlap. "), (0.55, "One choice stands out. ")):
        own = table.assign(low=[low, 0.3], high=[0.7, 0.5])
        assert FINDINGS["importances"](Stored(whole.records, {**whole.tables, "importances": own})).startswith(begins)


def test_the_ladder_does_not_promise_a_step_that_is_not_there() -> None:
    """Bug: its figure was headed "and tuning add" without any tuned network."""
    whole = fake_tuning.stored()
    without = Stored(whole.records[whole.records["experiment"] != "chosen"], whole.tables)
    titles = [EXPERIMENT.figures["ladder"](each).axes[0].get_title() for each in (whole, without)]
    assert titles[0].endswith("an LSTM head, and tuning add") and "no tuned network" in titles[1]


def test_pruners_have_intervals_however_few_studies_there_are() -> None:
    row = {"kept": 0.99, "kept_low": 0.23, "kept_high": 1.0, "effective": 1.7}
    told = saves(row | {"share_of_epochs": 0.8, "share_low": 0.0, "share_high": 1.0}, "it")
    assert told == "it trains 80 % [0, 100] of the epochs and keeps the best setting in 99 % [23, 100]"


def test_engines_are_drawn_whatever_numbers_a_table_holds() -> None:
    """Bug: a table's own whole numbers are numpy's, and the labels of the axis ended in a TypeError."""
    table = pd.DataFrame({"engines": np.array([1, 2, 1, 2]), "seconds": [42.0, 23.0, 41.0, 22.0], "trials": 4})
    labels = [label.get_text() for label in engine_points(table, "One list").axes[0].get_yticklabels()]
    assert labels == ["1 engine", "2 engines"]

"""Notebook 10's verdicts and targets on made-up records, in which each answer flips."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import fake_forecasts
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.targets import target_table
from lockstep.analysis.verdicts import CONTRADICTED, MEASURED, MODEL, NOT_YET, SUPPORTED, UNDECIDED, Verdict
from lockstep.experiments.e10_straggler_forecasts import EXPERIMENT

CLAIMS = {claim["id"]: claim for claim in read_claims().to_dict("records") if claim["notebook"] == EXPERIMENT.name}


@cache
def made_up(**changes: float) -> Stored:
    return fake_forecasts.stored(**changes)


def verdict(claim: str, **changes: float) -> Verdict:
    return judge(CLAIMS[claim], made_up(**changes), EXPERIMENT.verdicts)


@pytest.mark.parametrize(
    ("claim", "changes", "answer", "grade"),
    [
        ("dps-lstm-forecasts", {}, SUPPORTED, MODEL),
        ("dps-lstm-forecasts", {"lstm": 1.1}, CONTRADICTED, MODEL),
        ("dps-lstm-forecasts", {"lstm": 1.0}, UNDECIDED, MODEL),
        ("dps-lstm-forecasts", {"lstm": 1.1, "trained": 0.8}, SUPPORTED, MODEL),
        ("dps-long-range", {}, SUPPORTED, MODEL),
        ("dps-long-range", {"lstm": 0.9}, CONTRADICTED, MODEL),
        ("dps-stragglers-beforehand", {}, SUPPORTED, MODEL),
        ("dps-stragglers-beforehand", {"recall": 0.3}, CONTRADICTED, MODEL),
        ("dps-small-jobs-hard", {}, SUPPORTED, MODEL),
        ("dps-small-jobs-hard", {"early": 0.7}, CONTRADICTED, MODEL),
        ("dps-vanishing-makes-stragglers", {}, CONTRADICTED, MEASURED),
        ("dps-vanishing-makes-stragglers", {"behind": 4.0}, SUPPORTED, MEASURED),
        ("dps-no-vanishing", {}, CONTRADICTED, MEASURED),
        ("dps-no-vanishing", {"passed_on": 1e-4}, UNDECIDED, MEASURED),
        ("dps-decoding-half", {}, SUPPORTED, MEASURED),
        ("dps-decoding-half", {"decoding": 45.0}, CONTRADICTED, MEASURED),
        ("dps-loading-makes-stragglers", {}, SUPPORTED, MODEL),
        ("dps-loading-makes-stragglers", {"stragglers": 0.2}, CONTRADICTED, MODEL),
        ("dps-loading-makes-stragglers", {"slow_step": 1.0}, CONTRADICTED, MODEL),
    ],
)  # fmt: skip
def test_an_answer_follows_the_records(claim: str, changes: dict[str, float], answer: str, grade: str) -> None:
    found = verdict(claim, **changes)
    assert (found.answer, found.grade) == (answer, grade), found
    assert found.reason and "nan" not in found.measured + found.reason


def test_every_claim_but_the_documentary_one_has_a_verdict_of_its_own() -> None:
    names = {claim["verdict"] for claim in CLAIMS.values()}
    assert names == {*EXPERIMENT.verdicts, "documentary"}


@pytest.mark.parametrize("claim", [name for name, row in CLAIMS.items() if row["verdict"] != "documentary"])
def test_without_records_nothing_is_said(claim: str) -> None:
    assert judge(CLAIMS[claim], no_records(), EXPERIMENT.verdicts).answer == NOT_YET


def test_a_mean_over_kinds_waits_for_all_kinds() -> None:
    """Of those that are stored alone another answer could come."""
    whole = made_up()
    table = whole.tables["forecasts"]
    rest = Stored(whole.records, {**whole.tables, "forecasts": table[table["delays"] != "periodic"]})
    found = judge(CLAIMS["dps-lstm-forecasts"], rest, EXPERIMENT.verdicts)
    assert found.answer == NOT_YET and found.reason == "not simulated yet: periodic"


def test_the_reason_names_the_kinds_where_the_lstm_wins_and_loses() -> None:
    assert "worse on none" in verdict("dps-lstm-forecasts").reason
    assert "better on none; worse on exponential pauses 1.1" in verdict("dps-lstm-forecasts", lstm=1.1).reason


def test_who_is_better_or_worse_by_little_is_told_in_digits_that_show_it() -> None:
    """Bug: "worse on bimodal pauses 1.00"."""
    reason = verdict("dps-long-range", lstm=0.6025, best=0.6).reason
    told = re.findall(r"[a-z] (\d\.\d+)(?=[,;]|$)", reason.partition("worse on ")[2])
    assert any("1.00" < each < "1.01" for each in told) and all(len(each) == 5 for each in told), reason


def test_the_reason_says_that_all_workers_slow_down_together() -> None:
    reason = verdict("dps-vanishing-makes-stragglers").reason
    assert "40" in reason and "slow down together" in reason
    assert "1.5 times as long from 45 sigmoids on" in reason


def test_denormal_numbers_are_told_by_processor_where_processors_differ() -> None:
    """Seen: one ratio of an Intel that is slow with them and an AMD that is not, "10 (no useful interval yet)"."""
    whole = made_up()
    rounds = whole.records.loc[whole.records["experiment"] == "vanishing", "round"]
    late = set(rounds.iloc[len(rounds) // 2 :])
    gradients = whole.tables["gradients"].copy()
    quick = gradients["round"].isin(late)
    gradients.loc[quick, "seconds"] = gradients.loc[quick, "flushed_seconds"]
    sessions = whole.records.assign(session=whole.records["round"].isin(late).astype(int))
    two = replace(
        whole, records=sessions, tables={**whole.tables, "gradients": gradients},
        processors={0: "Intel(R) Xeon(R) Processor", 1: "AMD EPYC"},
    )  # fmt: skip
    found = judge(CLAIMS["dps-vanishing-makes-stragglers"], two, EXPERIMENT.verdicts).reason
    assert "more than 1.5 times as long on Intel Xeon from 45 sigmoids on (20 times [" in found
    assert found.endswith("on AMD EPYC never")


def rows(**changes: float) -> dict[str, dict[str, Any]]:
    return {row["target"]: row for row in target_table(EXPERIMENT.targets, made_up(**changes)).to_dict("records")}


(
    PERIODIC, OVER_AR, ONSETS, DRIFT, *PAUSES, SUDDEN, LEAK, EARLY, LATER, CREDITS, AR, SE, ST, COST, DPRO_SM, DEADLINE,
    BY_REPLAY,
) = (target.name for target in EXPERIMENT.targets)  # fmt: skip


def test_the_targets_are_those_of_the_plan() -> None:
    assert [target.threshold for target in EXPERIMENT.targets] == [
        0.65, 0.85, 0.4, 0.92, 0.75, 0.75, 0.75, 0.97, 0.1, 1.03, 1.03, 0.9, 1.0, 1.0, 1.0, 0.02, 0.02, 0.02, 0.02
    ]  # fmt: skip


@pytest.mark.slow
def test_every_target_reads_its_own_cells() -> None:
    found = rows()
    assert found[PERIODIC]["ratio"] == pytest.approx(0.6, rel=0.02)
    assert found[OVER_AR]["ratio"] == pytest.approx(0.6 / 0.85, rel=0.02)
    assert found[ONSETS]["ratio"] == pytest.approx(0.8, rel=0.02)
    assert found[CREDITS]["ratio"] == pytest.approx(0.2 * 0.95, rel=0.02), "of the linear forecaster, told the balance"
    assert found[EARLY]["ratio"] == pytest.approx(0.72 / 0.7, rel=0.03)
    assert found[AR]["ratio"] == pytest.approx(1.2 / 0.7)
    assert found[COST]["ratio"] == pytest.approx(0.017, rel=0.02)
    assert [found[name]["ratio"] for name in (DPRO_SM, DEADLINE, BY_REPLAY)] == pytest.approx([0.015] * 3, rel=0.02)
    reached = {name: row["reached"] for name, row in found.items()}
    assert reached[PERIODIC] == reached[ONSETS] == reached[DRIFT] == reached[AR] == reached[COST] == "yes"
    assert reached[SUDDEN] == "no", "the LSTM errs less than the last value even there: the future leaked"
    assert all(reached[name] == "yes" for name in PAUSES)


@pytest.mark.slow
def test_targets_can_be_missed() -> None:
    found = rows(lstm=1.0, recall=0.1, learned=0.5, best=0.9)
    for name in (PERIODIC, OVER_AR, ONSETS, DRIFT, AR, SE, ST, EARLY, LATER):
        assert found[name]["reached"] == "no", name


def test_a_target_without_a_number_says_why() -> None:
    table = target_table(EXPERIMENT.targets, no_records())
    assert set(table["reached"]) == {NOT_YET}

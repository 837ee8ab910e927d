"""What notebook 10 says of recorded runs' onsets, of states that begin without a sign, and of what is undecided."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fake_forecasts
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.targets import target_table
from lockstep.analysis.verdicts import UNDECIDED
from lockstep.experiments.e10_straggler_forecasts import EXPERIMENT
from lockstep.experiments.e10_straggler_forecasts.findings import _than
from lockstep.experiments.e10_straggler_forecasts.grid import FORECASTS, KINDS, SUDDEN
from lockstep.experiments.e10_straggler_forecasts.ratios import per_seed, scored
from lockstep.experiments.e10_straggler_forecasts.sudden import _said, past_alone, possible
from lockstep.experiments.e10_straggler_forecasts.targets import TARGETS
from lockstep.experiments.simulated_targets import rounds_to_decide, seconds_of_a_round
from stored_reference import stored_reference


@pytest.fixture(scope="module")
def measured() -> Stored:
    return fake_forecasts.stored()


@pytest.fixture(scope="module")
def reference(root: Path) -> Stored:
    return stored_reference(root / "results" / "reference" / EXPERIMENT.name)


@pytest.mark.slow
def test_undecided_targets_say_how_many_minutes_would_decide_them(reference: Stored) -> None:
    """Seen: none of them did."""
    rows = target_table(TARGETS, reference).to_dict("records")
    undecided = [row for row in rows if row["reached"] == UNDECIDED]
    said = r"about \S+ more rounds? would decide it: .+ minutes?$|a day of measuring would not decide it$"
    assert undecided and all(re.search(said, row["reason"]) for row in undecided)
    assert not any("would decide" in row["reason"] for row in rows if row["reached"] != UNDECIDED)


def test_minutes_are_the_rounds_that_take_the_threshold_out_of_the_interval() -> None:
    target = TARGETS[3]
    found = Estimate(0.9, 0.85, 0.95, 20)
    more = int(rounds_to_decide(target, found))
    assert found.ends(more=more)[1] < target.threshold <= found.ends(more=more - 1)[1]
    assert rounds_to_decide(target, replace(found, apart=((0, found), (1, found)))) == np.inf


def test_a_round_takes_what_its_cells_took(measured: Stored) -> None:
    delays = list(KINDS.values())
    assert seconds_of_a_round(measured, FORECASTS, delays=delays) == 2.0 * len(delays)
    assert seconds_of_a_round(measured, FORECASTS, delays=delays[:1]) == 2.0
    assert np.isnan(seconds_of_a_round(no_records(), FORECASTS))
    failed = Stored(measured.records.assign(measuring_seconds=np.nan))
    assert np.isnan(seconds_of_a_round(failed, FORECASTS)), "bug: 0 seconds, so that a minute would decide everything"


def with_onsets(measured: Stored, recall: float, only: str) -> Stored:
    """Onsets on one trace alone, of which the LSTM names so many."""
    table = measured.table("trace_forecasts")
    there, lstm = table["delays"].str.contains(only), table["forecaster"] == "lstm"
    onsets = table["onsets"].where(there, 0)
    named = table["onset_recall"].mask(lstm, recall).where(there)
    table = table.assign(onsets=onsets, onset_recall=named)
    return Stored(measured.records, {**measured.tables, "trace_forecasts": table})


@pytest.mark.slow
def test_onsets_of_recorded_runs_are_told(measured: Stored) -> None:
    say = EXPERIMENT.findings["traces"]
    none = say(with_onsets(measured, 0.0, "SE"))
    assert "Of SE's 6 onsets the last value, follow the best, and the LSTM foresee none, no other" in none
    assert "; AR and ST have none. On whole steps" in none
    some = say(with_onsets(measured, 0.25, "AR"))
    assert "Of AR's 6 onsets the last value foresees 0 %, follow the best 0 %, the LSTM 25 %, no other" in some
    assert "SE and ST have none" in some
    assert "AR, SE, and ST have no onsets. " in say(with_onsets(measured, 0.0, "nowhere"))


def test_onsets_of_the_reference_are_those_of_its_records(reference: Stored) -> None:
    table = reference.table("trace_forecasts")
    own = table[table["delays"].str.contains("SE") & (table["unit"] == "micro-batches") & (table["seed"] == 0)]
    count = int(own[own["forecaster"] == "last"]["onsets"].sum())
    assert f"Of SE's {count} onsets " in EXPERIMENT.findings["traces"](reference)


def test_stragglers_and_quantiles_of_recorded_runs_have_a_table(measured: Stored) -> None:
    shown = EXPERIMENT.tables["trace_stragglers"](measured)
    assert len(shown) == 3 * 2 * 3 and set(shown["onsets_per_stage"]) == {3.0}
    wanted = {"onset_recall", "chance", "lead_steps", "below quantile 0.1", "below quantile 0.9"}
    assert wanted <= set(shown.columns)


def test_the_worlds_simulated_anew_are_those_of_the_records(reference: Stored) -> None:
    again = past_alone(reference)
    for kind in SUDDEN:
        stored = per_seed(
            scored(reference), "mean_absolute_error", kind=kind, forecaster="last", period="later", state="none"
        )
        own = again[again["kind"] == kind].set_index("seed")["last_seconds"]
        assert own.to_numpy() == pytest.approx(stored.to_numpy(), rel=1e-9)


def test_what_the_past_allows_is_made_of_the_past() -> None:
    """A task slowed down in part, on the way up and on the way down; no step is in its own forecast."""
    slowed = np.array([[1.0], [1.4], [3.0], [3.0], [2.0], [1.0]])
    repeated, continued = _said(slowed, 3.0)
    assert repeated[:, 0].tolist() == [1.0, 1.0, 1.4, 3.0, 3.0, 2.0]
    assert continued[:, 0].tolist() == [1.0, 1.0, 3.0, 3.0, 3.0, 1.0]
    later = slowed.copy()
    later[-1] = 9.0
    for before, after in zip((repeated, continued), _said(later, 3.0), strict=True):
        assert before.tolist() == after.tolist()


@pytest.mark.slow
def test_that_no_forecaster_needs_the_future_is_computed(measured: Stored, reference: Stored) -> None:
    text = EXPERIMENT.texts["sudden"](reference)
    assert text.endswith(": neither needs the future.")
    for kind in SUDDEN:
        error = possible(reference, "continued", kind)
        assert f"{error.value:.3g} {error.interval} on {kind}" in text
    # The made-up LSTM errs less than that.
    leaking = EXPERIMENT.texts["sudden"](measured)
    assert leaking.endswith("do not show that the past is enough for both on Markov states and groups.")
    assert EXPERIMENT.texts["sudden"](no_records()).startswith("Nothing is stored")


def test_targets_name_who_reached_or_missed_them(reference: Stored) -> None:
    reasons = {row["target"]: row["reason"] for row in target_table(TARGETS, reference).to_dict("records")}
    credits = reasons["burst credits: onsets forecast with the balance known"]
    assert re.fullmatch(
        r"linear \(Wrangler\); LSTM trained online 0\.\d+ \[.+\], also trained beforehand 0\.\d+ \[.+\]", credits
    )
    least = reasons["Markov states, groups: least error of any forecaster over the last value's"]
    assert re.match(r"LSTM, also trained before, on Markov states, where the past alone allows an error of 0\.", least)


def test_an_interval_that_holds_one_is_not_called_less_or_more() -> None:
    assert _than(Estimate(0.99, 0.95, 1.03, 20)) == "not distinguishably less or more than"
    assert [_than(Estimate(value, value, value, 20)) for value in (0.9, 1.1)] == ["less than", "more than"]

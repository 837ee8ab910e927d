"""What notebook 10's probes compute: small real runs, and what each row is of."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import fake_forecasts
from fake_forecasts import recorded
from lockstep.engine.forecasts import make_forecast
from lockstep.engine.forecasts.scores import EARLY, LATER, mean_absolute_error, walk
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace
from lockstep.experiments.e10_straggler_forecasts import causes, measuring
from lockstep.experiments.e10_straggler_forecasts.forecasters import (
    BINS,
    DECIDING,
    DRAWN_ROUNDS,
    FORECASTERS,
    LEARNING_CURVES,
    TRAINED,
)
from lockstep.experiments.e10_straggler_forecasts.grid import COSTS, KINDS, SHARES, TRACED, VANISHING, cells, loading
from lockstep.experiments.e10_straggler_forecasts.measuring import Timed, part_row, probes
from lockstep.experiments.e10_straggler_forecasts.worlds import simulated_world
from lockstep.experiments.simulated import simulated
from lockstep.records import TABLES, TEXTS_OF_TABLES
from photo_sets import photo_set

JOBS = cells(fake_forecasts.CHOSEN)


@pytest.fixture(autouse=True)
def _little_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "TRAINING_STEPS", 5)


def run(job: Job, site: Site | None = None) -> Trace:
    return probes()[job.experiment].run(job, ThreadGroup.of(1)[0], site)


def fits_the_schema(trace: Trace, job: Job) -> None:
    """Every table is known, and its texts are those that are read as such."""
    for name, rows in trace.tables.items():
        assert name in TABLES and name in probes()[job.experiment].tables and rows
        texts = {column for row in rows for column, value in row.items() if isinstance(value, str)}
        assert texts <= set(TEXTS_OF_TABLES)
        assert all(row.keys() == rows[0].keys() for row in rows)


@pytest.mark.slow
def test_forecasts_of_a_world() -> None:
    """80 rounds: each forecaster has a row for each period, whose error is that of its own walk."""
    job = simulated("forecasts", delays=KINDS["periodic"], workers=3, steps=80, seed=0)
    trace = run(job)
    fits_the_schema(trace, job)
    rows = trace.tables["forecasts"]
    assert [(row["forecaster"], row["period"]) for row in rows] == [
        (name, period) for name in (*FORECASTERS, TRAINED) for period in ("early", "later")
    ]
    world = simulated_world(job.delays, 3, 80, 0)
    said = walk(make_forecast("median", 3, 0), world.seconds)[..., 0]
    found = {row["period"]: row["mean_absolute_error"] for row in rows if row["forecaster"] == "median"}
    for period, rounds in (("early", EARLY), ("later", LATER)):
        assert found[period] == mean_absolute_error(world.seconds[rounds], said[rounds])
    assert all(row["mean_absolute_error"] == 0 for row in rows if row["forecaster"] == "oracle")
    assert trace.scores == {"step_seconds": world.seconds.max(axis=1).mean()}
    curves = trace.tables["histories"]
    assert [row["seen_rounds"] for row in curves if row["forecaster"] == "ar"] == list(BINS)
    two = next(row for row in curves if (row["forecaster"], row["seen_rounds"]) == ("median", 2))
    assert two["mean_absolute_error"] == mean_absolute_error(world.seconds[2:5], said[2:5])
    assert math.isnan(curves[-1]["mean_absolute_error"]), "nobody saw 200 rounds"
    drawn = trace.tables["examples"]
    assert len(drawn) == DRAWN_ROUNDS * (1 + len(LEARNING_CURVES))
    seen = [row["seconds"] for row in drawn if row["forecaster"] == "seen"]
    assert seen == world.seconds[-DRAWN_ROUNDS:, 0].tolist()
    assert "examples" not in run(job.with_(seed=1)).tables


@pytest.mark.slow
def test_the_balance_of_credits_is_told_to_some_and_tells_them_who_slows_down() -> None:
    job = simulated("forecasts", delays="credits:seconds=180", workers=4, steps=160)
    rows = [row for row in run(job).tables["forecasts"] if row["period"] == "later"]
    states = {row["forecaster"]: row["state"] for row in rows if row["state"] != "none"}
    assert states == dict.fromkeys(("linear", "best", "lstm", "trained"), "credits")
    told, untold = (
        next(row for row in rows if (row["forecaster"], row["state"]) == ("linear", state))
        for state in ("credits", "none")
    )
    assert told["onsets"] == untold["onsets"] > 5
    assert told["onset_recall"] > untold["onset_recall"]


def test_nothing_is_forecast_across_a_gap() -> None:
    """The first round of each job but the first: what the last job ended with says nothing of it."""
    world = simulated_world("credits:seconds=90", 4, 80, seed=0)
    said = measuring._walked(world, 0)["last", "none"]
    assert np.isnan(said[world.after_a_gap()]).all()
    assert np.isfinite(said[1:11]).all()


def test_a_row_of_what_is_not_defined_is_nan() -> None:
    world = simulated_world("none", 3, 30, seed=0)
    row = part_row(world, np.repeat(world.work[..., None], 3, axis=2), slice(60, None))
    assert all(math.isnan(row[name]) for name in ("mean_absolute_error", "f1", "onset_recall", "chance"))
    assert row["onsets"] == 0


def test_a_recorded_run_is_forecast_stage_by_stage(tmp_path: Path) -> None:
    job = next(each for each in JOBS if each.experiment == TRACED)
    trace = run(job, Site(data_root=recorded(tmp_path)))
    fits_the_schema(trace, job)
    rows = trace.tables["trace_forecasts"]
    assert {(row["unit"], row["stage"]) for row in rows} == {(u, s) for u in ("steps", "micro-batches") for s in (0, 1)}
    constant = [row for row in rows if row["unit"] == "micro-batches" and row["forecaster"] == "last"]
    assert [row["mean_absolute_error"] for row in constant] == [0, 0], "both micro-batches of a step take as long"


@pytest.mark.parametrize("share", SHARES)
def test_a_step_is_slowed_down_more_than_its_mean_worker(share: float) -> None:
    job = simulated("slow_loading", delays=loading(share), workers=8, steps=200)
    trace = run(job)
    fits_the_schema(trace, job)
    (row,) = trace.tables["slow_loading"]
    slowed = row["worker_seconds"] / row["usual_worker_seconds"]
    assert 1 < slowed < row["step_seconds"] / row["usual_step_seconds"]
    assert row["stragglers_of_others"] < 0.05
    assert (row["stragglers_of_slow"] > 0.5) == (share >= 0.3)


def test_costs_are_of_every_forecaster_and_training_is_the_lstms() -> None:
    job = next(each for each in JOBS if each.experiment == COSTS).with_(steps=24)
    trace = run(job)
    fits_the_schema(trace, job)
    rows = {row["forecaster"]: row for row in trace.tables["forecast_costs"]}
    assert list(rows) == [*FORECASTERS, *DECIDING]
    assert all(rows[name]["training_milliseconds"] > 0 for name in DECIDING), "by the LSTM"
    assert all(row["asking_milliseconds"] > 0 for row in rows.values())
    assert rows["lstm"]["training_milliseconds"] > 10 * rows["ar"]["training_milliseconds"]


def test_a_timed_forecaster_says_the_same() -> None:
    seconds = simulated_world("exponential", 3, 30, 0).seconds
    plain, timed = (walk(each, seconds) for each in (make_forecast("ar", 3, 0), Timed(make_forecast("ar", 3, 0))))  # type: ignore[arg-type]
    assert np.array_equal(plain, timed, equal_nan=True)


# What machines say


def test_denormal_numbers_are_flushed_only_while_it_is_asked_for() -> None:
    small = torch.full((1,), causes.SMALLEST_NORMAL)
    for wanted in (True, False):
        with causes.flushing(wanted):
            with causes.flushing(not wanted):
                assert ((small * 0.5).item() == 0) != wanted
            assert ((small * 0.5).item() == 0) == wanted, "as before"


def test_no_gradient_is_always_timed_after_the_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first flushed one always was, and the others seemed to be a third quicker than it."""
    order: list[tuple[float, bool]] = []

    def noted(compute: partial[object]) -> float:
        gradient = compute.args[2]
        order.append((float(gradient.abs().max()), bool((gradient * 0 + causes.SMALLEST_NORMAL * 0.5 == 0).all())))
        return 1.0

    monkeypatch.setattr(causes, "_timed", noted)
    monkeypatch.setattr(causes, "EXPONENTS", (0, -10, -20, -30))
    causes.denormal_rows(3, seed=0)
    rounds = [order[start : start + 8] for start in (0, 8, 16)]
    assert all(len(set(each)) == 8 for each in rounds) and rounds[0] != rounds[1] != rounds[2]


def test_small_gradients_are_timed_flushed_and_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "EXPONENTS", (0, -40))
    monkeypatch.setattr(causes, "DEPTHS", (3, 50))
    monkeypatch.setattr(causes, "NETWORKS", ("cnn",))
    job = next(each for each in JOBS if each.experiment == VANISHING).with_(steps=1)
    trace = run(job)
    fits_the_schema(trace, job)
    scales = [(row["exponent"], row["flushed"]) for row in trace.tables["denormals"]]
    assert sorted(scales) == [(-40, 0), (-40, 1), (0, 0), (0, 1)]
    rows = {(row["name"], row["depth"]): row for row in trace.tables["gradients"] if row["worker"] == 7}
    assert len(trace.tables["gradients"]) == 3 * 8
    shallow, deep, own = rows["sigmoid", 3], rows["sigmoid", 50], rows["cnn", 0]
    assert shallow["denormal_share"] == own["denormal_share"] == 0 < deep["denormal_share"]
    assert deep["first_gradient"] < 1e-35 < 1e-6 < shallow["first_gradient"] < shallow["last_gradient"]
    assert own["first_gradient"] > 1e-6


def test_the_parts_of_the_input_are_those_of_the_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "IMAGES", 6)
    photo_set(tmp_path / "fire-smoke", classes=("fire", "none", "smoke"))
    job = Job.of("sequential", experiment="input_parts", use_case="SimpleBig", steps=1, warmup_steps=0)
    trace = run(job, Site(data_root=str(tmp_path)))
    fits_the_schema(trace, job)
    rows = trace.tables["input_parts"]
    assert [(row["way"], row["part"]) for row in rows] == [(way, part) for way in causes.WAYS for part in causes.PARTS]
    assert all(row["milliseconds"] > 0 for row in rows)
    assert trace.scores["step_seconds"] == pytest.approx(sum(row["milliseconds"] for row in rows) * 6 / 1e3)

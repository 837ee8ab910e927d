"""Grids of use cases with small images: what can't work is said before anything runs, and rows say what ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep.engine.data.small as small
from lockstep.engine.data.errors import DataError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.training.loop import STEP_COLUMNS, Trace
from lockstep.engine.usecases import USE_CASES
from lockstep.measure import grid
from lockstep.measure.cell import measure_job
from lockstep.measure.probes import PROBES, exchange
from lockstep.measure.probes.exchange import parameter_count, run_exchange
from lockstep.measure.summary import summarise
from lockstep.measure.teams import Teams
from lockstep.measure.traced_tables import traced_tables
from photo_sets import photo_set

SMALL: dict[str, Any] = {"use_case": "Pneumonia"}


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(small, "_known", type(small._known)())
    return photo_set(tmp_path / "data" / "pneumonia", 4, 1).parent


class NoTeams(Teams):
    def team(self, job: Job) -> Any:
        pytest.fail("started a team")


def refused(jobs: list[Job], photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "Teams", NoTeams)
    results = photos.parent / "out"
    try:
        grid.run_grid(jobs, notebook="07", results=results, rounds=1, parameters={}, data_dir=str(photos))
    finally:
        assert not results.exists()


# --- before anything is measured ---


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"use_case": "SimpleBig", "network": "cnn"}, "network='cnn' with use_case='SimpleBig', whose network is gi"),
        ({"use_case": "Pneumonia", "network": "convlstm", "pooling": "none"}, "positions of unpooled features"),
        ({"use_case": "SimpleBig", "framework": "tensorflow"}, "framework='tensorflow' with use_case='SimpleBig'"),
        (
            {"use_case": "SimpleBig", "framework": "tensorflow", "experiment": "profile"},
            "framework='tensorflow' with use_case='SimpleBig'",
        ),
    ],
)
def test_a_choice_that_a_use_case_has_not_is_refused_before_images_are_looked_at(
    photos: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    """It was a failed row, in the middle of a night's run."""
    monkeypatch.setattr(grid, "find_images", lambda *_: pytest.fail("looked at images"))
    with pytest.raises(JobError, match=message):
        refused([Job(**SMALL), Job(**fields)], photos, monkeypatch)


@pytest.mark.filterwarnings("ignore:.*smaller than 50 x 50", "ignore:.*times the training images")
def test_a_class_too_small_to_hold_some_out_is_refused_before_training(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        (photos / "pneumonia" / "train" / "b" / f"{number:02d}.jpg").unlink()
    with pytest.raises(DataError, match="class 'b' has one training image, too few to hold some out"):
        refused([Job(**SMALL, epochs=1, scored_on="validation")], photos, monkeypatch)


@pytest.mark.parametrize("experiment", sorted(name for name, probe in PROBES.items() if not probe.any_framework))
def test_what_measures_torch_is_not_recorded_as_tensorflows(experiment: str) -> None:
    """A profile of torch's operators had the framework column 'tensorflow'."""
    job = Job(**SMALL, framework="tensorflow", experiment=experiment)
    row, tables, _ = measure_job(job, None, NoTeams())
    told = f"experiment '{experiment}' measures torch alone, not tensorflow"
    assert (row["status"], row["reason"], tables) == ("skipped", told, {})


# --- teams ---


def test_torch_and_tensorflow_have_processes_of_their_own() -> None:
    """Torch's cells ran where TensorFlow was loaded, and their memory was counted with it: 1,001 MB, not 405."""
    torch_job = Job(**SMALL)
    keras = torch_job.with_(framework="tensorflow")
    with Teams() as teams:
        assert teams.team(torch_job) is not teams.team(keras)
        assert teams.team(keras) is teams.team(keras.with_(network="convlstm"))
        assert [placed["framework"] for placed in teams.placements()] == ["tensorflow", "torch"]


# --- rows and tables ---


def step(**values: float) -> dict[str, float]:
    return dict.fromkeys(STEP_COLUMNS, 0.0) | values


@pytest.mark.parametrize(("scored_on", "expected"), [("test", 50.0), ("validation", None)])
def test_an_epoch_without_the_held_out_images_is_not_told_as_one_of_all(scored_on: str, expected: float | None) -> None:
    job = Job(**SMALL, images=100, epochs=1, scored_on=scored_on)
    got = summarise(job, [Trace(0, steps=[step(step_seconds=1.0, images=2.0)])])
    assert (got["images_per_second"], got.get("epoch_seconds")) == (2.0, expected)


def test_cells_that_differ_in_images_or_stages_are_told_apart_in_what_was_learnt() -> None:
    """Epochs of 400 and of 2,000 images had the same columns."""
    job = Job.of(
        "gpipe", workers=2, **SMALL, experiment="ablation", epochs=1, images=400, micro_batches=4,
        memory_format="channels_last",
    )  # fmt: skip
    trace = Trace(0, tables={"epochs": [{"epoch": 1.0, "train_loss": 0.5}], "confusion": []})
    trace.tables["confusion"].append({"split": "test", "actual": "a", "predicted": "b", "count": 1.0})
    found: dict[str, pd.DataFrame] = traced_tables(job, [trace], None)
    for frame in found.values():
        for name in ("images", "exchange_every", "memory_format", "stages", "micro_batches"):
            assert frame[name].tolist() == [getattr(job, name)], name
    assert set(found) == {"epochs", "confusion"}


def test_scores_are_told_by_round_row_and_seed_alone_and_only_where_they_are_wanted() -> None:
    """With all columns of a cell 25,000 scores would take some 5 MB."""
    job = Job(**SMALL, experiment="scores", epochs=1, scored_on="validation", seed=3)
    row: dict[str, float | str] = {"split": "test", "image": 0, "label": 1, "patient": 4, "in_training": 0, "score": 2}
    trace = Trace(0, tables={"scores": [row]})
    assert traced_tables(job, [trace], None)["scores"].to_dict("records") == [{"seed": 3, **row}]


# --- exchange ---


def test_what_is_exchanged_is_of_the_network_that_the_row_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the ConvLSTM had the seconds of the CNN's parameters."""
    job = Job(**SMALL, experiment="exchange", network="convlstm", learning_rate=0.5)
    lengths: list[int] = []

    class Noted(exchange.Vector):
        def __init__(self, length: int) -> None:
            super().__init__(length)
            lengths.append(length)

    monkeypatch.setattr(exchange, "Vector", Noted)
    (group,) = ThreadGroup.of(1)
    trace = run_exchange(job, group)
    assert lengths == [parameter_count(USE_CASES["Pneumonia"].for_job(job))]
    assert lengths != [parameter_count("Pneumonia")] and len(trace.steps) == 1


def test_the_bound_is_of_the_network_that_the_row_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "copy_bandwidth", lambda: 1.0)
    monkeypatch.setattr(exchange, "reduce_update_bytes", lambda length, size: length)
    job = Job(**SMALL, experiment="exchange", network="convlstm")
    (group,) = ThreadGroup.of(1)
    (step,) = exchange._bound(job, group).steps
    assert step["exchange_seconds"] == parameter_count(USE_CASES["Pneumonia"].for_job(job))

"""The hook after each epoch: what it is told, that it stops training, and that the checkpoint comes first."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import tiny
from lockstep.engine.data.errors import DataError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job
from together import Teams, small_job

COLUMNS = {
    "epoch", "train_loss", "validation_loss", "validation_accuracy", "validation_balanced_accuracy", "validation_auc",
    "learning_rate", "seconds",
}  # fmt: skip
LEARNING: dict[str, Any] = {"epochs": 3, "scored_on": "validation", "steps": 1, "warmup_steps": 1}


def train(**site: Any) -> Trace:
    given = {"use_case": tiny.case(), **site}
    return run_job(small_job(**LEARNING), ThreadGroup.of(1)[0], Site(**given))


def test_it_is_told_each_epoch_and_goes_on() -> None:
    told: list[dict[str, Any]] = []
    trace = train(after_epoch=told.append)  # which answers None
    assert told == trace.tables["epochs"]
    assert [set(row) for row in told] == [COLUMNS] * 3
    assert all(math.isfinite(value) for row in told for value in row.values())
    assert told[-1]["validation_balanced_accuracy"] == trace.scores["validation_balanced_accuracy"]
    assert 0 <= told[-1]["validation_auc"] <= 1


def test_it_stops_training_with_a_checkpoint_of_that_epoch(tmp_path: Path) -> None:
    path, stored = str(tmp_path / "checkpoint"), []

    def stop(row: Any) -> bool:
        stored.append(checkpoint.read(path))
        return row["epoch"] == 2

    trace = train(after_epoch=stop, checkpoint=path)
    assert [row["epoch"] for row in trace.tables["epochs"]] == [1, 2]
    assert [[row["epoch"] for row in each["epochs"]] for each in stored] == [[1], [1, 2]]
    assert stored[-1]["epochs"] == trace.tables["epochs"]
    assert trace.scores["epochs_trained"] == 2


def test_a_stopped_run_goes_on_and_its_checkpoint_knows_all_epochs(tmp_path: Path) -> None:
    path, whole = str(tmp_path / "checkpoint"), str(tmp_path / "whole")
    train(after_epoch=lambda row: True, checkpoint=path)
    rest = train(after_epoch=lambda row: False, checkpoint=path, resume=True)
    train(checkpoint=whole)
    assert [row["epoch"] for row in rest.tables["epochs"]] == [2, 3]
    assert [row["epoch"] for row in checkpoint.read(path)["epochs"]] == [1, 2, 3]
    parts, once = (checkpoint.read(each)["parameters"] for each in (path, whole))
    assert parts.equal(once)


def test_all_ranks_stop_where_the_first_one_says(teams: Teams) -> None:
    """The hook of the other rank is never asked."""
    this = small_job(**LEARNING, workers=2, launcher="threads", sync="allreduce")
    site = Site(use_case=tiny.case(), after_epoch=_first_rank_stops)
    traces = teams.of("threads", 2).run(this, site)
    assert [[row["epoch"] for row in trace.tables["epochs"]] for trace in traces] == [[1], [1]]


def _first_rank_stops(row: Any) -> bool:
    assert tiny.rank() == 0
    return True


def test_test_images_stay_closed_until_they_are_scored() -> None:
    case = tiny.case(test=None)
    with pytest.raises(DataError, match="has no test images"):
        train(use_case=case)
    held_out = small_job(**LEARNING | {"scored_on": "held_out"})
    trace = run_job(held_out, ThreadGroup.of(1)[0], Site(use_case=case))
    assert not [name for name in trace.scores if name.startswith(("test", "train_"))]
    assert {row["split"] for row in trace.tables["confusion"]} == {"validation"}
    assert math.isfinite(float(trace.tables["epochs"][-1]["validation_loss"]))

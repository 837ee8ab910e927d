"""A setting that notebook 09 chose is one more finalist of notebook 07."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engine.job import JobError
from lockstep.experiments.e07_convlstm_batch_size.grid import candidate_cells, with_tuned
from lockstep.tuning.setting_file import write_setting


def test_a_setting_of_a_file_is_one_more_finalist_of_its_network(tmp_path: Path) -> None:
    path = tmp_path / "setting.yaml"
    write_setting(path, {"network": "cnn", "learning_rate": 0.003, "dropout": 0.1, "epochs": 7}, "chosen")
    candidates, finalists = {"plain": {}}, {"cnn": ["plain"], "convlstm": ["plain"]}
    more, own = with_tuned(candidates, finalists, str(path), "cnn")
    assert own["cnn"] == ["plain", "tuned"] and more["tuned"]["epochs"] == 7
    jobs = candidate_cells("Pneumonia", "cnn", more, own["cnn"], way="processes", epochs=10)
    tuned = [job for job in jobs if job.learning_rate == 0.003]
    assert [(job.scored_on, job.epochs, job.selected) for job in tuned] == [("held_out", 7, False), ("test", 7, True)]
    assert with_tuned(candidates, finalists, str(path), "convlstm") == (candidates, finalists)
    assert with_tuned(candidates, finalists, "", "cnn") == (candidates, finalists)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dropot: 0.1", "'dropot' is no setting's; nearest: dropout"),
        ("dropout: 2.0", "dropout=2.0"),
        ("- 3", "is no setting; write a mapping"),
        ("a: [", "is no YAML"),
    ],
)
def test_a_file_that_holds_no_setting_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "setting.yaml"
    path.write_text(content)
    with pytest.raises(JobError, match=message):
        with_tuned({}, {}, str(path), "cnn")
    with pytest.raises(JobError, match=r"none.yaml can't be read \(No such file"):
        with_tuned({}, {}, str(tmp_path / "none.yaml"), "cnn")

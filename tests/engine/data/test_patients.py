"""Patients by the names of files: as the public chest X-ray set writes them, and none where nothing is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.engine.data.folders import open_folder
from lockstep.engine.data.patients import numbered_patients, patient_of
from lockstep.engine.data.sources import Arrays
from lockstep.engine.training.image_scores import image_scores
from photo_sets import picture


@pytest.mark.parametrize(
    ("name", "patient"),
    [
        ("person123_bacteria_45.jpeg", "person123"),
        ("person1_virus_6.jpg", "person1"),
        ("IM-0115-0001.jpeg", "IM-0115"),
        ("NORMAL2-IM-0117-0001-0002.jpeg", "NORMAL2-IM-0117"),
        ("personal_1.jpeg", ""),
        ("a_person123_bacteria_45.jpeg", ""),
        ("IM-0115.jpeg", ""),
        ("0001.jpg", ""),
        ("", ""),
    ],
)
def test_a_patient_is_the_beginning_of_the_name(name: str, patient: str) -> None:
    assert patient_of(name.encode()) == patient.encode()


def photos(folder: Path) -> Path:
    names = {
        "train/normal": ["IM-0001-0001", "NORMAL2-IM-0001-0001"],
        "train/pneumonia": ["person7_virus_1", "person7_bacteria_2", "x"],
        "test/normal": ["IM-0002-0001", "x"],
        "test/pneumonia": ["person7_virus_9", "person8_virus_1", "person8_virus_2"],
    }
    for place, (below, own) in enumerate(names.items()):
        (folder / below).mkdir(parents=True)
        for number, name in enumerate(own):
            picture(10 * place + number).save(folder / below / f"{name}.jpg")
    return folder


def test_one_patient_has_one_number_in_all_sets_and_a_score_says_whether_it_was_trained_on(tmp_path: Path) -> None:
    folder = photos(tmp_path)
    train, test = open_folder(folder, "train"), open_folder(folder, "test")
    of_train, of_test = numbered_patients(train, test)
    assert of_train.tolist() == [1, 3, 4, 4, 0] and of_test.tolist() == [2, 0, 4, 5, 5]
    outputs = np.arange(10, dtype=np.float32).reshape(5, 2) ** 2
    rows = image_scores(train, {"validation": None, "test": test}, {"test": outputs})
    assert [row["image"] for row in rows] == [0, 1, 2, 3, 4] and [row["label"] for row in rows] == [0, 0, 1, 1, 1]
    assert [row["patient"] for row in rows] == of_test.tolist()
    assert [row["in_training"] for row in rows] == [0, 0, 1, 0, 0], "an image without a patient shares none"
    assert [row["score"] for row in rows] == [1.0, 5.0, 9.0, 13.0, 17.0]


def test_images_without_names_and_outputs_that_are_not_finite_have_neither_patient_nor_score() -> None:
    data = Arrays(np.zeros((4, 1, 2, 2), np.float32), [0, 1, 0, 1])
    outputs = np.array([[0, 1], [0, np.nan], [0, np.inf], [0, 1.23456]], np.float32)
    rows = image_scores(data, {"test": data}, {"test": outputs})
    assert [row["patient"] for row in rows] == [0] * 4
    scores = [float(row["score"]) for row in rows]
    assert scores[0] == 1 and np.isnan(scores[1:3]).all() and scores[3] == 1.235
    assert image_scores(Arrays(np.zeros((3, 1, 2, 2), np.float32), [0, 1, 2]), {"test": data}, {"test": outputs}) == []

"""The doctor's line on the photos: nothing named, nothing there, something missing, something faulty, all well."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockstep.commands.doctor import GOOD, LACKING, NOTE
from lockstep.commands.doctor.images import check_data
from lockstep.engine import usecases
from photo_sets import photo_set

THREE = ("fire", "none", "smoke")
UNSET = "unset LOCKSTEP_DATA  # the synthetic stand-in needs nothing; or "


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root that LOCKSTEP_DATA names, with a space in it and still empty."""
    (tmp_path / "my photos").mkdir()
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path / "my photos"))
    return tmp_path / "my photos"


def test_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)
    assert check_data().state == NOTE and check_data().fix.startswith("export LOCKSTEP_DATA=")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_DATA", "nowhere")
    found = check_data()
    assert found.state == LACKING and found.detail == f"LOCKSTEP_DATA={tmp_path / 'nowhere'} is not a folder"
    assert found.fix == f"{UNSET}export the folder that holds fire-smoke/"


def test_a_missing_set_is_not_to_be_checked(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = check_data()
    assert found.state == LACKING and "Missing: fire-smoke for ComplexSmall, SimpleBig" in found.detail
    assert found.fix == f"{UNSET}lay fire-smoke out as data/README.md says"
    monkeypatch.chdir(data)
    monkeypatch.setenv("LOCKSTEP_DATA", ".")
    assert check_data().detail == found.detail, "where it is, whatever the working folder"


def test_a_faulty_set_is_to_be_checked(data: Path) -> None:
    shutil.rmtree(photo_set(data / "fire-smoke", 3, 3, THREE) / "test" / "none")
    found = check_data()
    assert found.state == LACKING and "Faulty: fire-smoke for ComplexSmall, SimpleBig" in found.detail
    assert "only in train: none" in found.detail
    assert found.fix.startswith(f".venv/bin/lockstep data check '{data / 'fire-smoke'}'  #")


def test_a_set_with_another_number_of_classes(data: Path) -> None:
    photo_set(data / "fire-smoke", 1, 1, (*THREE, "steam"))
    found = check_data()
    assert found.state == LACKING and "ComplexSmall tells 3 classes apart, and" in found.detail
    assert found.fix == f"{UNSET}mend the class folders"


def test_a_good_set(data: Path) -> None:
    photo_set(data / "fire-smoke", 1, 1, THREE)
    found = check_data()
    assert (found.state, found.fix) == (GOOD, "")
    assert "fire-smoke (3 to train, 3 to test; ComplexSmall, SimpleBig)" in found.detail
    assert found.detail.endswith("The synthetic stand-in is used for Pneumonia, FaceMask, LeafDisease, BreastCancer")
    photo_set(data / "face-mask", 2, 1)
    assert "face-mask (4 to train, 2 to test; FaceMask)" in check_data().detail
    shutil.rmtree(data / "face-mask" / "test" / "a")
    assert "Faulty: face-mask for FaceMask: classes of" in check_data().detail


def test_one_use_case_only(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo_set(data / "fire-smoke", 1, 1, THREE)
    other = usecases.UseCase("Pneumonia", usecases.USE_CASES["SimpleBig"].model, dataset="pneumonia")
    monkeypatch.setitem(usecases.USE_CASES, "Pneumonia", other)
    found = check_data()
    assert found.state == NOTE, "the others can run"
    assert "Missing: pneumonia for Pneumonia" in found.detail and "lay pneumonia out" in found.fix

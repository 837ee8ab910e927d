"""What is trained: that network and images fit together, and where the images come from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lockstep.engine.usecases as usecases
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.synthetic import STAND_INS, ensure_stand_in
from lockstep.engine.usecases import USE_CASES, find_images
from photo_sets import photo_set


@pytest.mark.parametrize("name", USE_CASES)
def test_network_and_stand_in_have_the_classes_that_the_use_case_states(name: str) -> None:
    case = USE_CASES[name]
    with torch.device("meta"):
        model = case.model()
    classes = len(STAND_INS[case.dataset].classes)
    assert STAND_INS[case.dataset].images == min(
        each.images for each in USE_CASES.values() if each.dataset == case.dataset
    )
    if case.network is None:
        assert model(torch.empty(2, 3, 224, 224, device="meta")).shape == (2, classes)
        assert case.classes == classes
    else:
        shape, outputs = (2, case.network.channels, 50, 50), 1 if classes == 2 else classes
        assert model(torch.empty(shape, device="meta")).shape == (2, outputs)
        assert (case.network.classes, case.classes) == (classes, 0), "folders of any number of classes will do"


@pytest.mark.parametrize("classes", ["ab", "abcd"])
def test_another_number_of_classes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: str) -> None:
    monkeypatch.setattr(usecases, "check_photos", lambda *_, **__: pytest.fail("a large set would take minutes"))
    photo_set(tmp_path / "fire-smoke", 2, 1, classes)
    message = (
        rf"SimpleBig tells 3 classes apart, and '.*fire-smoke' has {len(classes)}: {', '.join(classes)}; "
        "give it 3 class folders"
    )
    with pytest.raises(DataError, match=message):
        find_images(USE_CASES["SimpleBig"], str(tmp_path))
    with pytest.raises(DataError, match=message):
        USE_CASES["SimpleBig"].open("train", str(tmp_path))


def test_a_relative_folder_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo_set(tmp_path / "root" / "fire-smoke", 2, 1, "abc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_DATA", "root")
    source = find_images(USE_CASES["SimpleBig"])
    assert (source.root, source.train_images) == (str(tmp_path / "root"), 6)
    monkeypatch.setenv("LOCKSTEP_DATA", "elsewhere")
    with pytest.raises(DataError, match=f"data folder '{tmp_path / 'elsewhere'}' does not exist"):
        find_images(USE_CASES["SimpleBig"])


def test_a_changed_stand_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)
    monkeypatch.setenv("LOCKSTEP_STAND_IN", str(tmp_path))
    folder = ensure_stand_in("fire-smoke", 9) / "fire-smoke"
    assert find_images(USE_CASES["SimpleBig"], images=9).kind == "synthetic"
    (folder / "test" / "none" / "none-00000.jpg").write_text("not looked at")
    (folder / "test" / "none" / "more.jpg").write_text("not looked at")
    with pytest.raises(DataError, match="was changed since it was written: test has 2 of none instead of 1"):
        find_images(USE_CASES["SimpleBig"], images=9)

"""Pneumonia, FaceMask, LeafDisease, BreastCancer: what a job chooses of them, and folders that are not in order."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lockstep.engine.data.small as small
import tiny
from lockstep.engine.data import DataError, Photos
from lockstep.engine.data.small import SmallImages
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.models.layers import Network
from lockstep.engine.models.losses import binary_cross_entropy, cross_entropy
from lockstep.engine.training.loop import Site, run_job
from lockstep.engine.usecases import USE_CASES, find_images
from photo_sets import photo_set, picture

FOUR = {name: case for name, case in USE_CASES.items() if case.network is not None}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCKSTEP_STAND_IN", str(tmp_path / "stand-in"))
    monkeypatch.delenv("LOCKSTEP_DATA", raising=False)
    monkeypatch.setattr(small, "_known", type(small._known)())


def job(use_case: str = "Pneumonia", **fields: Any) -> Job:
    return Job(use_case=use_case, **fields)


def train(root: Path, use_case: str = "Pneumonia", **fields: Any) -> list[float]:
    """Losses of a few steps."""
    values: dict[str, Any] = {"global_batch_size": 4, "steps": 3, "warmup_steps": 0} | fields
    trace = run_job(job(use_case, **values), ThreadGroup.of(1)[0], Site(data_root=str(root)))
    return [step["train_loss"] for step in trace.steps]


# --- what a job chooses ---


def test_the_four_are_the_papers() -> None:
    assert list(FOUR) == ["Pneumonia", "FaceMask", "LeafDisease", "BreastCancer"]
    for case in FOUR.values():
        assert case.network is not None and case.network.kind == "cnn"
        assert case.for_job(job()) is case, "a job that asks for nothing changes nothing"
        (group,) = case.optimiser([torch.zeros(3, requires_grad=True)]).param_groups
        assert (group["lr"], group["weight_decay"]) == (0.001, 0)


def test_a_job_chooses_network_rate_and_augmentation() -> None:
    asked = job(network="convlstm", pooling="average", dropout=0.4, batch_norm=True, learning_rate=0.01)
    case = FOUR["Pneumonia"].for_job(asked.with_(weight_decay=0.1, augmentation="shift"))
    assert case.network == Network("convlstm", 1, 2, "average", 0.4, True)
    assert case.augmentation == "shift" and case.loss is binary_cross_entropy
    kinds = [type(layer).__name__ for layer in case.model()]  # type: ignore[arg-type]
    assert kinds[:5] == ["Conv2d", "BatchNorm2d", "ReLU", "AvgPool2d", "Dropout"] and "LSTM" in kinds
    for kind in ("fused", "plain"):
        optimiser = case.optimiser_of(kind)([torch.zeros(3, requires_grad=True)])
        assert type(optimiser) is torch.optim.Adam, "L2 in the gradient, which AdamW's decay is not"
        (group,) = optimiser.param_groups
        assert (group["lr"], group["weight_decay"], group["fused"]) == (0.01, 0.1, kind == "fused")


def test_rates_of_photos_can_be_chosen_too() -> None:
    case = USE_CASES["SimpleBig"].for_job(job("SimpleBig", learning_rate=0.5, augmentation="none"))
    (group,) = case.optimiser([torch.zeros(3, requires_grad=True)]).param_groups
    assert (group["lr"], group["momentum"], case.augmentation) == (0.5, 0.9, "none")


@pytest.mark.parametrize(
    ("use_case", "fields", "message"),
    [
        (
            "SimpleBig",
            {"network": "cnn"},
            "network='cnn' with use_case='SimpleBig', whose network is given; .*Pneumonia",
        ),
        ("SimpleBig", {"dropout": 0.5}, "dropout=0.5 with use_case='SimpleBig'"),
        ("SimpleBig", {"batch_norm": True}, "batch_norm=True with use_case='SimpleBig'"),
        ("SimpleBig", {"augmentation": "shift"}, "photos are mirrored only; give 'flip'"),
        ("SimpleBig", {"augmentation": "affine"}, "augmentation='affine' .* photos are mirrored only; give 'flip'"),
        ("SimpleBig", {"standardise": True}, "standardise=True with use_case='SimpleBig': only small images can be"),
        ("Pneumonia", {"network": "convlstm", "pooling": "none"}, "1,444 positions of unpooled features"),
    ],
)
def test_what_there_is_no_choice_of(use_case: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        USE_CASES[use_case].for_job(job(use_case, **fields))


def test_a_readers_own_images_are_not_augmented() -> None:
    with pytest.raises(JobError, match="own has images of its own, which augment themselves or not"):
        tiny.case().for_job(job(augmentation="flip"))
    with pytest.raises(JobError, match="standardise=True: own has images of its own; standardise them beforehand"):
        tiny.case().for_job(job(standardise=True))


def test_photos_are_mirrored_unless_a_job_says_otherwise(tmp_path: Path) -> None:
    photo_set(tmp_path / "fire-smoke", 2, 1, "abc")
    case = USE_CASES["SimpleBig"]
    for how, expected in (("default", True), ("none", False), ("flip", True)):
        data = case.for_job(job("SimpleBig", augmentation=how)).open("train", str(tmp_path))
        assert isinstance(data, Photos) and data.augment is expected


def test_open_gives_small_images_and_parts(tmp_path: Path) -> None:
    photo_set(tmp_path / "face-mask", 10, 3)
    case = FOUR["FaceMask"].for_job(job("FaceMask", augmentation="flip"))
    kept, held, test = (
        case.open("train", str(tmp_path), part="kept"),
        case.open("train", str(tmp_path), part="held_out"),
        case.open("test", str(tmp_path)),
    )
    assert [len(data) for data in (kept, held, test)] == [16, 4, 6]
    assert all(isinstance(data, SmallImages) and data.shape == (3, 50, 50) for data in (kept, held, test))
    assert [data.augment for data in (kept, held, test)] == ["flip", "none", "none"]  # type: ignore[attr-defined]
    assert [len(case.open("train", str(tmp_path), 10, part=part)) for part in ("all", "kept", "held_out")] == [10, 8, 2]


def test_a_job_standardises_what_is_trained_and_tested_on(tmp_path: Path) -> None:
    photo_set(tmp_path / "pneumonia", 10, 3)
    case = FOUR["Pneumonia"].for_job(job(augmentation="affine", standardise=True))
    for split, part, how in (("train", "kept", "affine"), ("train", "held_out", "none"), ("test", "all", "none")):
        data = case.open(split, str(tmp_path), part=part)
        assert isinstance(data, SmallImages) and (data.augment, data.standardise) == (how, True)
    usual = FOUR["Pneumonia"].open("train", str(tmp_path))
    assert isinstance(usual, SmallImages) and not usual.standardise, "the paper says nothing of it"
    losses = [train(tmp_path, images=20, standardise=each) for each in (False, True)]
    assert np.isfinite(losses).all() and losses[0] != losses[1]


# --- folders as they come ---


@pytest.mark.parametrize(("classes", "loss"), [("ab", binary_cross_entropy), ("abc", cross_entropy)])
@pytest.mark.parametrize("use_case", ["Pneumonia", "LeafDisease"])
def test_the_network_follows_the_classes_of_the_folder(tmp_path: Path, use_case: str, classes: str, loss: Any) -> None:
    photo_set(tmp_path / FOUR[use_case].dataset, 4, 1, classes)
    data = FOUR[use_case].open("train", str(tmp_path))
    case = FOUR[use_case].fitting(data)
    assert case.network is not None and case.network.classes == len(classes) and case.loss is loss
    assert case.fitting(data) is case
    expected = np.log(len(classes))
    losses = train(tmp_path, use_case, network="convlstm")
    assert abs(losses[0] - expected) < 0.5 and all(np.isfinite(losses))


@pytest.mark.filterwarnings("ignore:.*smaller than 50 x 50")
def test_names_in_any_case_and_kaggles_layout(tmp_path: Path) -> None:
    """Its 16 pictures in `val` are left alone: too few to choose by, and none of the counts holds them."""
    photo_set(tmp_path / "chest_xray", 5, 2, ("NORMAL", "PNEUMONIA"))
    shutil.copytree(tmp_path / "chest_xray" / "test", tmp_path / "chest_xray" / "val")
    picture(1).save(tmp_path / "chest_xray" / "train" / "NORMAL" / "IM-0115.JPEG", "JPEG")
    source = find_images(FOUR["Pneumonia"], str(tmp_path))
    assert (source.kind, source.train_images) == ("real", 11)
    assert FOUR["Pneumonia"].open("test", source.root).classes == ("normal", "pneumonia")


def test_a_folder_without_test_images_sets_a_fifth_aside(tmp_path: Path) -> None:
    photo_set(tmp_path / "made", 20, 1)
    os.rename(tmp_path / "made" / "train", tmp_path / "breast-cancer")
    splits = [FOUR["BreastCancer"].open(split, str(tmp_path)) for split in ("train", "test")]
    assert [len(data) for data in splits] == [32, 8]
    names = [{(data.labels[i], data.name(i)) for i in range(len(data))} for data in splits]  # type: ignore[attr-defined]
    assert not names[0] & names[1]


@pytest.mark.filterwarnings("ignore:.*smaller than 50 x 50")
def test_a_folder_that_lacks_a_set_has_its_stand_in(tmp_path: Path) -> None:
    photo_set(tmp_path / "root" / "pneumonia", 5, 2)
    with pytest.warns(UserWarning, match=r"root' has no 'face-mask': FaceMask trains on the synthetic stand-in"):
        source = find_images(FOUR["FaceMask"], str(tmp_path / "root"), images=20)
    assert (source.kind, source.train_images) == ("synthetic", 16)
    assert find_images(FOUR["Pneumonia"], str(tmp_path / "root")).kind == "real"
    with pytest.raises(DataError, match="data set 'fire-smoke' has no folder"):  # photos: as before
        find_images(USE_CASES["SimpleBig"], str(tmp_path / "root"))
    with pytest.raises(DataError, match="nowhere' does not exist"):
        find_images(FOUR["FaceMask"], str(tmp_path / "nowhere"))


# --- bad input ---


def spoilt(tmp_path: Path, what: str) -> Path:
    folder = photo_set(tmp_path / "root" / "pneumonia", 4, 2)
    if what == "one class":
        for split in ("train", "test"):
            shutil.rmtree(folder / split / "b")
    elif what == "classes that differ":
        (folder / "test" / "b").rename(folder / "test" / "c")
    elif what == "an empty test folder":
        shutil.rmtree(folder / "test")
        (folder / "test").mkdir()
    elif what == "an empty class":
        for path in (folder / "test" / "b").iterdir():
            path.unlink()
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("one class", "train' holds one class only, 'a'; classification needs at least 2 folders"),
        ("classes that differ", r"differ \(only in train: b; only in test: c\); give both splits the same folders"),
        ("an empty test folder", "test' holds no class folder; add the test photos, or remove it: a fifth"),
        ("an empty class", "class 'b' has no photo in '.*test/b'"),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, what: str, message: str) -> None:
    root = spoilt(tmp_path, what)
    with pytest.raises(DataError, match=message):
        find_images(FOUR["Pneumonia"], str(root))


def test_ten_to_one_trains_with_a_caution(tmp_path: Path) -> None:
    folder = photo_set(tmp_path / "pneumonia", 20, 2)
    for number in range(2, 20):
        (folder / "train" / "b" / f"{number:02d}.jpg").unlink()
    with pytest.warns(UserWarning) as found:
        find_images(FOUR["Pneumonia"], str(tmp_path))
    (told,) = [str(each.message) for each in found if "times the training images" in str(each.message)]
    assert "class 'a' has 10.0 times the training images of 'b' (20 and 2)" in told
    assert "class_weights='balanced'" in told
    assert all(np.isfinite(train(tmp_path, class_weights="balanced")))


def test_images_smaller_than_the_network_sees_train_with_a_caution(tmp_path: Path) -> None:
    photo_set(tmp_path / "pneumonia", 4, 2)  # of 40 x 32 pixels
    with pytest.warns(UserWarning, match="8 of 8 training images are smaller than 50 x 50 pixels and were enlarged"):
        find_images(FOUR["Pneumonia"], str(tmp_path))
    assert all(np.isfinite(train(tmp_path)))


def test_good_images_have_no_caution(tmp_path: Path) -> None:
    folder = photo_set(tmp_path / "pneumonia", 3, 2)
    for place, path in enumerate(sorted(folder.rglob("*.jpg"))):
        picture(place, 60, 50).save(path)
    with warnings.catch_warnings(action="error"):
        found = find_images(FOUR["Pneumonia"], str(tmp_path))
    assert (found.kind, found.skipped) == ("real", ()) and found.train_images > 0


# --- the stand-ins ---


@pytest.mark.parametrize("name", FOUR)
def test_stand_ins_have_the_counts_asked_for(name: str) -> None:
    source = find_images(FOUR[name], images=50)
    train, test = (FOUR[name].open(split, source.root) for split in ("train", "test"))
    assert (source.kind, source.train_images, len(train), len(test)) == ("synthetic", 40, 40, 10)
    images = train.load(np.arange(40), 0, 0)
    assert images.shape[1] == FOUR[name].network.channels  # type: ignore[union-attr]
    assert 0.2 < images.mean() < 0.8 and images.std() > 0.05
    assert len({image.tobytes() for image in images}) == 40


def test_a_stand_in_can_be_learnt_but_not_perfectly() -> None:
    """By the strength of stripes in a class's direction: better than chance (0.5), and with labels that are wrong."""
    source = find_images(FOUR["Pneumonia"], images=600)
    data = FOUR["Pneumonia"].open("train", source.root)
    images = data.load(np.arange(len(data)), 0, 0)[:, 0]
    rough = [np.abs(np.fft.rfft(images.mean(axis=axis), axis=1))[:, 3:10].max(axis=1) for axis in (1, 2)]
    right = ((rough[1] > rough[0]) == data.labels).mean()
    assert 0.65 < right < 0.95


# --- real images ---


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "train_counts", "test_counts"),
    [("Pneumonia", [1000, 1000], [231, 387]), ("LeafDisease", [496, 496, 455, 496], [124, 124, 114, 124])],
)
def test_real_images(real_images: Path, name: str, train_counts: list[int], test_counts: list[int]) -> None:
    """A linear classifier on the pixels, fitted by least squares, is far better than chance: they are real."""
    splits = [FOUR[name].open(split, str(real_images)) for split in ("train", "test")]
    assert [np.bincount(data.labels).tolist() for data in splits] == [train_counts, test_counts]
    kept, held = (FOUR[name].open("train", str(real_images), part=part) for part in ("kept", "held_out"))
    assert len(kept) + len(held) == sum(train_counts)
    features = [_coarse(data) for data in (kept, held)]
    wanted = np.eye(len(kept.classes))[kept.labels]
    penalty = np.eye(features[0].shape[1])
    weights = np.linalg.solve(features[0].T @ features[0] + penalty, features[0].T @ wanted)
    right = ((features[1] @ weights).argmax(axis=1) == held.labels).mean()
    assert 1.5 / len(kept.classes) < right < 1


def _coarse(data: Any) -> np.ndarray:
    images = data.load(np.arange(len(data)), 0, 0)
    small_ones = images.reshape(*images.shape[:2], 10, 5, 10, 5).mean(axis=(3, 5)).reshape(len(images), -1)
    return np.concatenate([small_ones, np.ones((len(images), 1))], axis=1)

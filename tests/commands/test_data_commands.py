"""`lockstep data make` and `lockstep data check`, as a reader meets them: what is said, and the exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lockstep.commands.data as data_commands
from lockstep.commands.application import app
from lockstep.engine.data.folders import open_photos
from photo_sets import photo_set, picture, truncate


def call(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return photo_set(tmp_path / "root" / "set")


# --- check ---


def test_a_sound_set(photos: Path) -> None:
    output = call("check", photos)
    for line in ("a 20 20 40", "b 20 20 40", "all 40 40 80", "short side 32 / 32 / 32 pixels", "colours RGB 80"):
        assert line in " ".join(output.split()), output
    assert "Usable: 40 photos to train, 40 to test. Nothing to mend." in output
    assert max(map(len, output.replace(str(photos), "").splitlines())) <= 80


def test_remarks_do_not_end_it_with_an_error(photos: Path) -> None:
    truncate(photos / "train/a/00.jpg")
    shutil.copy(photos / "train/a/01.jpg", photos / "test/b/seen.jpg")
    output = call("check", photos)
    assert "train/a/00.jpg: image file is truncated" in output
    assert " - unreadable photos: 1" in output and " - test photos that stand in train too: 1" in output
    assert "copies across 1 of test, in train too" in " ".join(output.split())
    assert "two classes 1 picture in more than one" in " ".join(output.split())
    assert "Usable: 39 photos to train, 41 to test; read the remarks above first." in output
    assert max(map(len, output.replace(str(photos), "").splitlines())) <= 80
    assert "strict allows none" in call("check", photos, "--strict", code=1)


def test_what_training_would_refuse_ends_with_1(photos: Path) -> None:
    (photos / "test/b").rename(photos / "test/c")
    output = call("check", photos, code=1)
    assert "\n ! " in output and "only in train: b; only in test: c" in " ".join(output.split())
    assert "Training would refuse it: mend this and check again." in output
    assert "c 0 20 20" in " ".join(output.split()), "what is there is shown all the same"


def test_a_root_shows_each_set_and_fails_if_one_does(photos: Path) -> None:
    photo_set(photos.parent / "other", 2, 2)
    (photos.parent / "notes").mkdir()
    output = call("check", photos.parent)
    assert output.count("Usable") == 2 and output.index("other") < output.index("set")
    assert output.endswith("left alone, no class folders in them: notes\n")
    picture(1).save(photos.parent / "notes" / "x.jpg")
    assert call("check", photos.parent) == output, "not even with a picture in it"
    shutil.rmtree(photos.parent / "other/test/b")
    output = call("check", photos.parent, code=1)
    assert output.count("Usable") == 1 and output.count("Training would refuse it") == 1


def test_wrong_usage_ends_with_2_and_a_folder_without_photos_with_1(tmp_path: Path) -> None:
    call("check", code=2)
    call("check", tmp_path / "nowhere", code=2)
    (tmp_path / "file.jpg").touch()
    call("check", tmp_path / "file.jpg", code=2)
    (tmp_path / "empty").mkdir()
    told = call("check", tmp_path / "empty", code=1)
    assert "holds no data set; lay one out as <root>/<dataset>/{train,test}" in told


def test_only_the_first_unreadable_are_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_commands, "SHOWN", 2)
    for number in range(3):
        truncate(photos / f"train/a/{number:02d}.jpg")
    output = call("check", photos, code=1)
    assert "   train/a/01.jpg: " in output and "   train/a/02.jpg: " not in output and "   and 1 more" in output


def test_files_that_are_no_photos_by_their_names_are_counted(photos: Path) -> None:
    assert "other files" not in call("check", photos)
    for name in ("train/a/late.webp", "train/b/late.WEBP", "test/a/half.jpg_", "test/a/notes"):
        (photos / name).write_text("")
    (photos / "train/a/.hidden").write_text("")
    (photos / "README").write_text("")
    told = " ".join(call("check", photos).split())
    assert "other files 2 .webp, 1 .jpg_, 1 without ending: no photos by their names" in told


def test_names_can_not_command_the_terminal(photos: Path) -> None:
    (photos / "train/a" / "\x1b[2Jred[bold]\n.jpg").write_text("no photo")
    (photos / "train/a" / os.fsdecode(b"\xff.jpg")).write_text("no photo")
    output = call("check", photos)
    assert "\x1b[2J" not in output
    assert r"train/a/\x1b[2Jred[bold]\n.jpg: not an image" in output
    assert r"train/a/\udcff.jpg: not an image" in output


@pytest.mark.slow
def test_the_program_itself_when_piped(photos: Path) -> None:
    """From the repository's root with a relative path, no terminal, and nothing but ASCII to write in."""
    program = "import sys; from lockstep.commands.cli import main; sys.argv[0] = 'lockstep'; main()"
    (photos / "train" / "a").rename(photos / "train" / "été")
    (photos / "test" / "a").rename(photos / "test" / "été")
    for encoding in ("utf-8", "ascii:backslashreplace"):
        ended = subprocess.run(
            [sys.executable, "-c", program, "data", "check", "root/set"],
            cwd=photos.parents[1], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "set  root/set" in ended.stdout and "Usable" in ended.stdout


@pytest.mark.realdata
def test_the_command_of_the_readme(real_images: Path) -> None:
    if not (real_images / "pneumonia").is_dir():
        pytest.skip("LOCKSTEP_DATA holds no pneumonia")
    told = " ".join(call("check", real_images / "pneumonia").split())
    assert "normal 1000 231 1231" in told and "Nothing to mend" in told


# --- make ---


def test_the_stand_in_is_written_where_asked(tmp_path: Path) -> None:
    output = call("make", "--images", 9, "--out", tmp_path / "made")
    assert "9 synthetic photos (6 to train, 3 to test)" in output
    assert str(tmp_path / "made" / "fire-smoke") in output.replace("\n", "")
    assert "kB" in output
    assert len(open_photos(tmp_path / "made", "fire-smoke", "train")) == 6
    assert "Usable" in call("check", tmp_path / "made")
    (tmp_path / "made" / "fire-smoke" / "train" / "fire" / "fire-00000.jpg").unlink()
    told = " ".join(call("check", tmp_path / "made", code=1).split())
    assert "was changed since it was written: train has 1 of fire instead of 2;" in told


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "fire-smoke").mkdir()
    assert "exists already, and nothing is overwritten" in call("make", "--out", tmp_path, code=2)
    assert os.listdir(tmp_path / "fire-smoke") == []


def test_without_a_place_it_goes_where_runs_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_STAND_IN", str(tmp_path / "stand-in"))
    first, again = call("make", "--images", 6), call("make", "--images", 6)
    assert first.startswith("written: ") and again.startswith("stands there already: ")
    assert first.splitlines()[1:] == again.splitlines()[1:]


def test_an_impossible_stand_in(tmp_path: Path) -> None:
    assert "images=5 is too few for 3 classes" in call("make", "--images", 5, "--out", tmp_path, code=2)
    (tmp_path / "file").touch()
    assert "can't be written" in call("make", "--images", 6, "--out", tmp_path / "file", code=1)
    call("make", "--images", "many", code=2)
    assert "--dataset cats has no stand-in; there is one for: fire-smoke, pneumonia" in call(
        "make", "--dataset", "cats", "--out", tmp_path, code=2
    )


def test_a_stand_in_of_small_images(tmp_path: Path) -> None:
    output = call("make", "--dataset", "leaf-disease", "--images", 20, "--out", tmp_path)
    assert "20 synthetic photos (16 to train, 4 to test)" in output
    assert open_photos(tmp_path, "leaf-disease", "test").classes == (
        "blight",
        "common_rust",
        "gray_leaf_spot",
        "healthy",
    )

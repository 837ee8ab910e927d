"""The stand-in: real files, the counts asked for, the same everywhere, and never half of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import lockstep.engine.data.synthetic as synthetic
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_photos
from lockstep.engine.data.pictures import CLASSES, draw_picture
from lockstep.engine.data.synthetic import counts_for, default_root, ensure_stand_in, write_stand_in

COUNTS = {"train": {"fire": 3, "none": 2, "smoke": 2}, "test": {"fire": 1, "none": 1, "smoke": 1}}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_opens_like_a_real_set_and_says_what_it_is(tmp_path: Path) -> None:
    root = write_stand_in(tmp_path / "made", "fire-smoke", COUNTS)
    assert root == tmp_path / "made"
    train, test = (open_photos(root, "fire-smoke", split) for split in ("train", "test"))
    assert train.source == test.source == "synthetic"
    assert train.classes == ("fire", "none", "smoke")
    assert np.bincount(train.labels).tolist() == [3, 2, 2]
    assert len(test) == 3
    assert os.listdir(root) == ["fire-smoke"], "nothing else is left behind"
    with Image.open(train.path(0)) as image:
        assert (image.format, image.mode, min(image.size)) == ("JPEG", "RGB", 256)
    assert np.isfinite(train.load(np.arange(7), 0, 0)).all()


def test_the_same_seed_gives_the_same_files_and_counts_do_not_matter(tmp_path: Path) -> None:
    first = contents(write_stand_in(tmp_path / "a", "fire-smoke", COUNTS) / "fire-smoke" / "train")
    more = {"train": {"smoke": 3, "fire": 3, "none": 3}}
    second = contents(write_stand_in(tmp_path / "b", "fire-smoke", more) / "fire-smoke" / "train")
    other = contents(write_stand_in(tmp_path / "c", "fire-smoke", COUNTS, seed=1) / "fire-smoke" / "train")
    assert first.items() <= second.items()
    assert len(set(second.values())) == 9, "no picture twice"
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first)


def test_pictures_are_as_large_as_photos_to_a_decoder(tmp_path: Path) -> None:
    root = write_stand_in(tmp_path, "fire-smoke", {"train": dict.fromkeys(CLASSES, 20)})
    sizes = [len(data) for data in contents(root / "fire-smoke" / "train").values()]
    assert 18_000 < np.mean(sizes) < 26_000, "the real set's files have 21.7 kB on average"


def test_classes_can_be_told_apart_but_not_perfectly() -> None:
    """Nearest class mean of a few colour statistics: between chance (0.33) and certainty."""

    def features(label: int, number: int) -> np.ndarray:
        pixels = np.asarray(draw_picture(0, 0, label, number).resize((32, 32))).astype(float)
        warm = pixels[..., 0] - pixels[..., 2]
        spread = pixels.max(axis=2) - pixels.min(axis=2)
        return np.array([(warm > 90).mean(), (spread < 20).mean()])

    table = np.array([[features(label, number) for number in range(60)] for label in range(3)])
    means = table[:, :30].mean(axis=1)
    distances = ((table[:, 30:, None, :] - means) ** 2).sum(axis=-1)
    accuracy = (distances.argmin(axis=-1) == np.arange(3)[:, None]).mean()
    assert 0.45 < accuracy < 0.9


@pytest.mark.parametrize("images", [6003, 791, 6, 25])
def test_counts_add_up_to_four_fifths_and_one(images: int) -> None:
    counts = counts_for(images)
    assert sum(sum(of_split.values()) for of_split in counts.values()) == images
    assert abs(sum(counts["test"].values()) - images / 5) <= 2
    assert min(min(of_split.values()) for of_split in counts.values()) >= 1
    totals = [counts["train"][name] + counts["test"][name] for name in CLASSES]
    assert max(totals) - min(totals) <= 1


def test_it_is_written_once(tmp_path: Path) -> None:
    root = ensure_stand_in("fire-smoke", 7, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert ensure_stand_in("fire-smoke", 7, tmp_path) == root
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    other = ensure_stand_in("fire-smoke", 8, tmp_path)
    assert other != root
    assert [len(open_photos(folder, "fire-smoke", "test")) for folder in (root, other)] == [3, 3]
    assert json.loads((root / "fire-smoke" / "STAND_IN.json").read_text())["counts"] == counts_for(7)


def add(folder: Path) -> None:
    (folder / "test/smoke/mine.jpg").write_bytes((folder / "test/smoke/smoke-00000.jpg").read_bytes())


def remove(folder: Path) -> None:
    (folder / "train/fire/fire-00001.jpg").unlink()


def add_a_class(folder: Path) -> None:
    for split in ("train", "test"):
        (folder / split / "fog").mkdir()
        (folder / split / "fog" / "1.jpg").touch()


def damage(folder: Path) -> None:
    (folder / "STAND_IN.json").write_text("{")


def hollow(folder: Path) -> None:
    (folder / "STAND_IN.json").write_text("[1]")


@pytest.mark.parametrize(
    ("change", "split", "message"),
    [
        (add, "test", "test has 2 of smoke instead of 1; keep no photos of your own there, and remove .*made anew"),
        (remove, "train", "train has 2 of fire instead of 3; keep no photos"),
        (add_a_class, "train", "train has 1 of fog instead of 0;"),
        (damage, "train", r"STAND_IN\.json' is damaged; .*remove .*fire-smoke: it is made anew"),
        (hollow, "test", r"STAND_IN\.json' is damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_was_changed_since_is_refused(
    tmp_path: Path, change: Callable[[Path], None], split: str, message: str
) -> None:
    write_stand_in(tmp_path, "fire-smoke", COUNTS)
    change(tmp_path / "fire-smoke")
    with pytest.raises(DataError, match=message):
        open_photos(tmp_path, "fire-smoke", split)


def test_one_without_a_test_half_opens(tmp_path: Path) -> None:
    write_stand_in(tmp_path, "fire-smoke", {"train": dict.fromkeys(CLASSES, 5)})
    assert [len(open_photos(tmp_path, "fire-smoke", split)) for split in ("train", "test")] == [12, 3]


def test_two_at_once_write_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, real = [], synthetic.write_stand_in
    together = threading.Barrier(3)

    def counted(*arguments: object) -> Path:
        written.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    def ask() -> None:
        together.wait()
        roots.append(ensure_stand_in("fire-smoke", 12, tmp_path))

    monkeypatch.setattr(synthetic, "write_stand_in", counted)
    roots: list[Path] = []
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(roots)) == 1
    assert len(roots) == 3
    assert len(written) == 1


@pytest.mark.linux
def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    # The process kills itself in the middle of writing, as kill -9 would.
    program = (
        "import os, signal, sys; import lockstep.engine.data.synthetic as s; real = s._write_one\n"
        "def once(task):\n"
        "    real(task)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "s._write_one = once; s.ensure_stand_in('fire-smoke', 6, sys.argv[1])"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    assert ended.returncode == -9
    assert list(tmp_path.rglob("*.tmp")), "the test must have interrupted the writing"
    root = ensure_stand_in("fire-smoke", 6, tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    assert sum(len(open_photos(root, "fire-smoke", split)) for split in ("train", "test")) == 6


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(synthetic, "_write_one", full)
    with pytest.raises(DataError, match=r"can't be written to '.*' \(No space left on device\); free some space"):
        write_stand_in(tmp_path, "fire-smoke", COUNTS)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file' can't be written to .*LOCKSTEP_STAND_IN.*--data-dir"):
        ensure_stand_in("fire-smoke", 6, tmp_path / "file")


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"val": {"fire": 1}}, r"counts name 'val'/'fire'; a stand-in has train, test"),
        ({"train": {"water": 1}}, r"counts name 'train'/'water'.*of fire, none, smoke"),
        ({"train": {"fire": -1}}, r"counts\['train'\]\['fire'\]=-1 is not possible; give a whole number from 0"),
        ({"train": {"fire": 0}}, r"counts hold no photo at all"),
    ],
)
def test_impossible_counts(tmp_path: Path, counts: dict[str, dict[str, int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        write_stand_in(tmp_path, "fire-smoke", counts)


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"images=5 is too few for 3 classes; give a whole number from 6"):
        ensure_stand_in("fire-smoke", 5, tmp_path)
    with pytest.raises(DataError, match=r"data set 'cats' has no stand-in; there is one for: fire-smoke"):
        ensure_stand_in("cats", 50, tmp_path)
    (tmp_path / "fire-smoke").mkdir()
    with pytest.raises(DataError, match=r"fire-smoke' exists already; remove it or give another"):
        write_stand_in(tmp_path, "fire-smoke", COUNTS)


def test_where_it_goes_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    (repository / "notebooks" / "deep").mkdir(parents=True)
    (repository / "pyproject.toml").write_text('[project]\nname = "lockstep"\n')
    (repository / "notebooks" / "pyproject.toml").write_text('[project]\nname = "other"\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.delenv("LOCKSTEP_STAND_IN", raising=False)
    monkeypatch.delenv("LOCKSTEP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(repository / "notebooks" / "deep")
    assert default_root() == repository / "data" / "stand-in"
    monkeypatch.chdir(elsewhere)
    assert default_root() == tmp_path / "cache" / "lockstep" / "stand-in"
    monkeypatch.setenv("LOCKSTEP_STAND_IN", str(tmp_path / "named"))
    assert default_root() == tmp_path / "named"
    assert ensure_stand_in("fire-smoke", 6).parent == tmp_path / "named"

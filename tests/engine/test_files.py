"""A file is written whole or not at all, and who can't write says where and what to do."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from lockstep.engine.files import WriteError, write_atomically


def test_text_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "naïve …\n")
    assert path.read_text(encoding="utf-8") == "naïve …\n"
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_others_may_read_it(tmp_path: Path) -> None:
    """Temporary files are the owner's alone."""
    write_atomically(tmp_path / "a.txt", "x")
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


@pytest.mark.parametrize("place", ["missing/a.txt", "a-file/a.txt"])
def test_a_folder_that_is_not_there(tmp_path: Path, place: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(WriteError, match=r"results can't be written to .*a\.txt: ") as caught:
        write_atomically(tmp_path / place, "x")
    assert str(tmp_path / place) in str(caught.value)


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(WriteError, match="irectory"):
        write_atomically(tmp_path / "a.txt", "x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="the disk is full: free some space"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]

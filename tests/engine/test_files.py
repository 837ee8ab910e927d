"""A file is written whole or not at all, and who can't write says where and what to do."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lockstep.engine.files import ScratchFolder, WriteError, remove_unfinished, write_atomically


def test_text_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "naïve …\n")
    assert path.read_text(encoding="utf-8") == "naïve …\n"
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    write_atomically(path, (b"one", np.arange(2, dtype=np.uint8), b""))
    assert path.read_bytes() == b"one\x00\x01"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


MODES = {0o022: 0o644, 0o077: 0o600, 0o002: 0o664}


@pytest.mark.parametrize("mask", MODES)
def test_others_may_read_it_as_far_as_the_umask_lets_them(tmp_path: Path, mask: int) -> None:
    """Temporary files are the owner's alone. Seen: 0644 whatever the umask."""
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a.txt", "x")
        write_atomically(tmp_path / "b.txt", "x", private=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == MODES[mask]
    assert stat.S_IMODE((tmp_path / "b.txt").stat().st_mode) == 0o600


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


# --- what killed processes leave ---

ENDLESS = """
import sys, time
from pathlib import Path
from lockstep.engine.files import ScratchFolder, write_atomically

def pieces():
    yield b"x" * 100_000
    print("writing", flush=True)
    time.sleep(60)

with ScratchFolder("lockstep-test-"):
    write_atomically(Path(sys.argv[1]), pieces())
"""


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A process in the midst of writing `a.pt`, with a scratch folder of its own; both stand in `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENDLESS, str(tmp_path / "a.pt")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def left(folder: Path) -> list[str]:
    """The names there, without what is random in them."""
    return sorted(path.name[:14] for path in folder.iterdir())


def test_what_a_killed_writer_leaves_goes_at_the_next_start(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    """Seen: a temporary file of up to 168 MB after each kill during a write, and an empty folder."""
    (tmp_path / ".a.pt.backup12").write_text("a reader's own")
    (tmp_path / ".b.pt.01234567.unfinished").write_text("of another file")
    own = [".a.pt.backup12", ".b.pt.01234567"]
    remove_unfinished(tmp_path / "a.pt")
    with ScratchFolder("lockstep-test-") as scratch:
        assert scratch.is_dir() and stat.S_IMODE(scratch.stat().st_mode) == 0o700
    living = left(tmp_path)
    assert len(living) == 4 and "lockstep-test-" in living, "those of a living process stay"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert left(tmp_path) == living
    remove_unfinished(tmp_path / "a.pt")
    assert left(tmp_path) == [*own, "lockstep-test-"]
    with ScratchFolder("lockstep-test-"):
        assert len(left(tmp_path)) == 3
    assert left(tmp_path) == own


def test_the_next_write_is_a_start_too(tmp_path: Path, writer: subprocess.Popen[str]) -> None:
    writer.kill()
    writer.wait()
    write_atomically(tmp_path / "a.pt", "whole")
    assert left(tmp_path) == ["a.pt", "lockstep-test-"]
    remove_unfinished(tmp_path / "no-such-folder" / "a.pt")

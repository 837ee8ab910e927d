"""Atomic writing of files, whole or not at all; what killed processes leave; and the repository that holds them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

_UNFINISHED = ".unfinished"


class WriteError(ValueError):
    """A file or folder that can't be written; the message names the place and the fix."""


def write_atomically(path: Path, content: str | bytes | Iterable[Any], *, private: bool = False) -> None:
    """Write a file whole or not at all: text, bytes, or pieces that are like bytes.

    Others may read it as far as the umask lets them, or not at all (`private`). Raises WriteError with the fix if it
    can't be written.
    """
    pieces: Iterable[Any] = [content] if isinstance(content, bytes) else content
    if isinstance(content, str):
        pieces = [content.encode()]
    with clear_errors(path):
        remove_unfinished(path)
        handle, temporary = _claim(path, 0o600 if private else 0o666)
        try:
            with os.fdopen(handle, "wb") as stream:
                for piece in pieces:
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(temporary, path)  # while it is still locked
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _claim(path: Path, mode: int) -> tuple[int, Path]:
    """A new file beside `path`, locked for as long as it is open: so others can tell that its writer lives."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_UNFINISHED}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        if _locked(handle, temporary):
            return handle, temporary
        os.close(handle)


def _locked(handle: int, place: Path) -> bool:
    """Lock an open file or folder until it is closed. False if another process removes it, as a dead one's."""
    import fcntl  # not on Windows, where reading existing photos should still work

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nobody can lock and remove it either
        return True
    return _is_at(handle, place)


def remove_unfinished(path: Path) -> None:
    """Remove what writers of `path` that were killed have left beside it; a living writer's file stays."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(_UNFINISHED)}")
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path.parent)):
            if name.fullmatch(entry.name):
                _remove_if_dead(Path(entry.path))


class ScratchFolder:
    """A temporary folder, `path`, until it is closed. Those of killed processes, by their prefix, go first."""

    def __init__(self, prefix: str, base: str = "") -> None:
        with contextlib.suppress(OSError):
            for left in Path(base or tempfile.gettempdir()).glob(f"{prefix}*"):
                _remove_if_dead(left)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base or None))
            with contextlib.suppress(FileNotFoundError):  # another process has taken it for a dead one's
                self._handle = os.open(self.path, os.O_RDONLY)
                if _locked(self._handle, self.path):
                    break
                os.close(self._handle)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def take_turn(folder: Path) -> IO[str]:
    """Waits until no other process, nor thread, has its turn in `folder`, which is made if it is not there.

    Closing the file that is returned ends the turn, and so does the system if this process is killed. Raises OSError.
    """
    import fcntl  # not on Windows, where reading existing photos should still work

    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / ".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _remove_if_dead(place: Path) -> None:
    """Remove a file or folder of this user that no process holds locked."""
    import fcntl

    with contextlib.suppress(OSError):
        if place.is_symlink() or place.stat().st_uid != os.getuid():
            return
        handle = os.open(place, os.O_RDONLY if place.is_dir() else os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, place):
                shutil.rmtree(place) if place.is_dir() else place.unlink()
        finally:
            os.close(handle)


def _is_at(handle: int, place: Path) -> bool:
    """Whether the open file or folder is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(place))
    except FileNotFoundError:
        return False


def repository_above(folder: Path) -> Path | None:
    """The clone of Lockstep that holds `folder`, told by the project's name in its pyproject.toml; None outside."""
    for place in (folder, *folder.parents):
        try:
            project = tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8")).get("project")
        except (OSError, ValueError):
            continue
        if isinstance(project, dict) and project.get("name") == "lockstep":
            return place
    return None


@contextlib.contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = {
            errno.ENOSPC: "the disk is full: free some space",
            errno.EACCES: "it is not writable: change its permissions or give another folder with --out",
            errno.EROFS: "its file system is read-only: give another folder with --out",
            errno.EEXIST: "a file is in the way: remove it or give another folder with --out",
            errno.ENOTDIR: "a file is in the way: remove it or give another folder with --out",
        }.get(error.errno or 0, error.strerror or str(error))
        raise WriteError(f"results can't be written to {path}: {fix}") from error

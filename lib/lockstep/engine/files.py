"""Atomic writing of files, whole or not at all; and the repository that they belong to."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path


class WriteError(ValueError):
    """A file or folder that can't be written; the message names the place and the fix."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all. Raises WriteError with the fix if it can't be written."""
    data = content.encode() if isinstance(content, str) else content
    with clear_errors(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


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

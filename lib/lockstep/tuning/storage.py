"""Where a study is kept: a file of SQLite on this machine's own disk, or a server's data base that a URL names.

Every worker opens the storage itself. A trial that is trained records a heartbeat; that of a host which has gone stops,
and after the grace period another host takes its trial over. Of SQLite's two ways to keep a journal the plain one is
used: it leaves no second file beside that of a study that nobody has open.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.tuning.needed import StudyError, the_optuna

HEARTBEAT_SECONDS, GRACE_SECONDS = 10, 60
LOCKED_SECONDS = 60.0
"""How long to wait for another process that writes."""
_FILE = "sqlite:///"
_MOUNTS = "/proc/mounts"
_NETWORK: tuple[str, ...] = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "lustre", "gpfs", "beegfs", "ceph", "afs")
_NETWORK += ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse")
_FIXES = (
    ("readonly database", "it is read-only: change its permissions, or name another file"),
    ("unable to open database file", "it can't be opened: make its folder, or name another file"),
    ("disk is full", "the disk is full: free some space; the same command then goes on"),
    ("database is locked", "another program keeps it locked: end that program; the same command then goes on"),
    ("is not a database", "it is no SQLite file, or its beginning is damaged: restore it, or name another file"),
    ("malformed", "it is damaged or was cut off: restore it from a copy, or name another file"),
    ("disk I/O error", "its disk can't be read or written: look at the disk, or name another file"),
)


def storage_url(place: str | os.PathLike[str]) -> str:
    """`place` as a URL: that of a file of SQLite, unless it is one already. Raises StudyError for SQLite in memory,
    which the workers could not open."""
    text = os.fspath(place)
    if text in ("", ":memory:") or text.rstrip("/").endswith(("sqlite:", "sqlite:///:memory:")):
        raise StudyError(f"storage={text!r}: workers can't open what is in this process's memory; name a file")
    return _FILE + str(Path(text).expanduser().absolute()) if "://" not in text else text


def sqlite_file(url: str) -> Path | None:
    """The file that the URL of a storage names; None for a server."""
    return Path(url.removeprefix(_FILE)).absolute() if url.startswith(_FILE) else None


def open_storage(url: str) -> Any:
    """Optuna's storage at `url`, with heartbeats and its callback that tries a trial again. Raises StudyError."""
    optuna = the_optuna()
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
    options = {} if sqlite_file(url) is None else {"connect_args": {"timeout": LOCKED_SECONDS}}
    with storage_errors(url), warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        return optuna.storages.RDBStorage(
            url,
            engine_kwargs=options,
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=retry,
        )


def check_file(path: Path, mounts: str | None = None) -> None:
    """Raises StudyError for a file that SQLite can't keep a study in, or that is damaged. `mounts`: what the system
    says of its file systems, in the form of /proc/mounts."""
    if not path.parent.is_dir():
        raise StudyError(f"storage {path}: its folder does not exist; make it first")
    if path.is_dir():
        raise StudyError(f"storage {path} is a folder; name a file in it")
    kind = file_system_of(path.parent, mounts)
    if kind in _NETWORK:
        raise StudyError(
            f"storage {path} is on a network file system ({kind}), whose locks do not keep two writers apart, so that "
            "SQLite's file gets damaged; name a file on a disk of this machine, or the URL of a PostgreSQL or MySQL "
            "server"
        )
    for place in (path.parent, path) if path.exists() else (path.parent,):
        if not os.access(place, os.R_OK | os.W_OK):
            raise StudyError(f"storage {path}: {place} is not writable; change its permissions, or name another file")
    if path.exists() and path.stat().st_size:
        with storage_errors(f"{_FILE}{path}"), contextlib.closing(sqlite3.connect(path, LOCKED_SECONDS)) as found:
            (answer,) = found.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                raise sqlite3.DatabaseError(f"malformed: {answer}")


def file_system_of(folder: Path, mounts: str | None = None) -> str:
    """The kind of file system that `folder` is on, such as ext4 or nfs4; empty where the system does not say."""
    if mounts is None:
        try:
            mounts = Path(_MOUNTS).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    place, found = folder.resolve(), ("", "")
    for line in mounts.splitlines():
        _, _, rest = line.partition(" ")
        at, _, rest = rest.partition(" ")
        at = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), at)
        # The longest one counts, and of two at one place the later one, which hides the other.
        if len(at) >= len(found[0]) and place.is_relative_to(at):
            found = at, rest.partition(" ")[0]
    return found[1]


@contextlib.contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Turns what SQLite, SQLAlchemy and Optuna raise about a storage into StudyError, which names it and the fix."""
    optuna = the_optuna()
    errors: tuple[type[Exception], ...] = (*kinds_of_errors(), ImportError)
    try:
        yield
    except errors as error:
        raise StudyError(f"storage {shown(url)}: {_fix(error)}") from error
    except RuntimeError as error:
        if "no longer compatible with the table schema" not in str(error):
            raise
        age, fix = "a newer", "pip install -U optuna, or name another file"
        if "storage upgrade" in str(error):
            age, fix = "an older", f"optuna storage upgrade --storage {shown(url)}"
        what = f"was written by {age} Optuna than {optuna.__version__}"
        raise StudyError(f"storage {shown(url)} {what}: {fix}") from error


def kinds_of_errors() -> tuple[type[Exception], ...]:
    """What a storage that can't be read or written any more raises."""
    import sqlalchemy

    return the_optuna().exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, sqlite3.Error


def shown(url: str) -> str:
    """The storage as messages name it: a file's path, or a URL without its password."""
    path = sqlite_file(url)
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url) if path is None else str(path)


def _fix(error: BaseException) -> str:
    """What is wrong and what helps, as the first cause says."""
    cause = error
    while (below := getattr(cause, "orig", None) or cause.__cause__) is not None:
        cause = below
    if isinstance(error, ImportError):
        return f"its driver is not installed ({cause}); pip install psycopg2-binary for PostgreSQL, PyMySQL for MySQL"
    text = " ".join(str(cause).split())
    return next((fix for sign, fix in _FIXES if sign in text), f"{type(cause).__name__}: {text}")

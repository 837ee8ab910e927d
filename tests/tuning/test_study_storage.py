"""Where a study is kept, and what is said of a place where it can't be."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import studies
from lockstep.tuning import opening, storage
from lockstep.tuning.needed import StudyError
from lockstep.tuning.opening import alone_on_host, close_study, folder_of, open_study
from lockstep.tuning.storage import check_file, file_system_of, open_storage, shown, sqlite_file, storage_url
from studies import plan_of, site_of

MOUNTS = """/dev/vda / ext4 rw 0 0
server:/all /exports/me nfs4 rw 0 0
me@host: /mnt/with\\040space fuse.sshfs rw 0 0
/dev/vdb /exports/me/disk ext4 rw 0 0
"""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a study without trials."""
    file = tmp_path_factory.mktemp("begun") / "study.db"
    close_study(open_study(plan_of(), file, site_of()))
    return file


@pytest.fixture
def path(tmp_path: Path, begun: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(begun, tmp_path / "study.db"))


def test_a_place_as_a_url(tmp_path: Path) -> None:
    url = storage_url(tmp_path / "study.db")
    assert url == f"sqlite:///{tmp_path}/study.db" == storage_url(url)
    assert sqlite_file(url) == tmp_path / "study.db"
    assert sqlite_file("postgresql://me:secret@host/studies") is None
    assert shown("postgresql://me:secret@host/studies") == "postgresql://me:***@host/studies"


@pytest.mark.parametrize("place", [":memory:", "", "sqlite://", "sqlite:///:memory:"])
def test_memory_is_refused(place: str) -> None:
    with pytest.raises(StudyError, match="in this process's memory; name a file"):
        storage_url(place)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/exports/me/x", "nfs4"), ("/mnt/with space", "fuse.sshfs"), ("/exports/me/disk/a", "ext4"),
        ("/exports", "ext4"),
    ],
)
def test_the_file_system_of_a_folder(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_a_network_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"network file system \(nfs4\).*name a file on a disk of this machine"):
        check_file(tmp_path / "study.db", f"server:/ {tmp_path} nfs4 rw 0 0\n")
    check_file(tmp_path / "study.db", f"/dev/sda {tmp_path} ext4 rw 0 0\n")


def test_places_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="folder does not exist; make it first"):
        check_file(tmp_path / "none" / "study.db")
    with pytest.raises(StudyError, match="is a folder; name a file in it"):
        check_file(tmp_path)


def test_a_place_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.os, "access", lambda place, how: False)
    with pytest.raises(StudyError, match="is not writable; change its permissions"):
        check_file(tmp_path / "study.db")


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("no data base" * 100)
    with pytest.raises(StudyError, match=r"study\.db: it is no SQLite file, or its beginning is damaged: restore it"):
        open_study(plan_of(), tmp_path / "study.db", site_of())


def test_a_truncated_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StudyError, match=r"study\.db: it is damaged or was cut off: restore it from a copy"):
        open_study(plan_of(), path, site_of())


def test_a_file_that_somebody_else_keeps_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LOCKED_SECONDS", 0.05)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StudyError, match=r"study\.db: another program keeps it locked: end that program"):
            open_study(plan_of(), path, site_of())


def test_a_file_of_a_newer_optuna(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as found, found:
        found.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    with pytest.raises(StudyError, match=r"was written by a newer Optuna than .*pip install -U optuna"):
        open_study(plan_of(), path, site_of())


@contextlib.contextmanager
def limited(pragma: str) -> Iterator[None]:
    """A context in which every new connection to SQLite has this pragma."""
    import sqlalchemy

    def connected(connection: sqlite3.Connection, record: object) -> None:
        connection.execute(f"PRAGMA {pragma}")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", connected)
    try:
        yield
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "connect", connected)


@pytest.mark.parametrize(
    ("pragma", "said"), [("max_page_count = 1", "the disk is full: free some"), ("query_only = 1", "it is read-only: ")]
)
def test_a_disk_that_takes_no_more(path: Path, tmp_path: Path, pragma: str, said: str) -> None:
    """A full disk, for a new file; one that has become read-only, for a study that goes on."""
    with limited(pragma), pytest.raises(StudyError, match=said):
        open_study(plan_of(name="more"), path if "query" in pragma else tmp_path / "new.db", site_of())


def test_a_full_disk_in_the_middle_stops_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's words reach the reader, and the trial waits for the next call."""
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage

    from lockstep.tuning.study import run_study

    studies.work_here(monkeypatch)
    stores = RDBStorage.set_trial_intermediate_value

    def full(self: RDBStorage, trial_id: int, step: int, value: float) -> None:
        if step == 2:
            raise StorageInternalError from sqlite3.OperationalError("database or disk is full")
        stores(self, trial_id, step, value)

    plan = plan_of(trials=1, epochs=2)
    with monkeypatch.context() as patched:
        patched.setattr(RDBStorage, "set_trial_intermediate_value", full)
        with pytest.raises(StudyError, match=r"study\.db: the disk is full: free some space; the same command then"):
            run_study(plan, tmp_path / "study.db", site_of())
    assert run_study(plan, tmp_path / "study.db", site_of()).trials["state"].tolist() == ["complete"]


def test_a_url_without_its_driver() -> None:
    with pytest.raises(StudyError, match=r"its driver is not installed .*pip install psycopg2-binary"):
        open_storage("postgresql://me@nowhere/studies")


def test_a_url_of_nothing() -> None:
    with pytest.raises(StudyError, match="storage nonsense://x"):
        open_storage("nonsense://x")


def test_a_folder_that_is_removed_while_mkdir_looks_at_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: of two calls on one study one ended with FileExistsError, for the other had just removed the folder."""
    url, mkdir, raced = storage_url(tmp_path / "study.db"), Path.mkdir, []

    def as_the_other_removes_it(self: Path, *args: Any, **kwargs: Any) -> None:
        if not raced:
            raced.append(self)
            raise FileExistsError(self)
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", as_the_other_removes_it)
    with alone_on_host(url):
        assert raced == [folder_of(url, "").parent]
        assert raced[0].is_dir()
    assert not raced[0].exists()


@pytest.mark.parametrize("how", ["file", "pipe", "link to nothing"])
def test_a_file_where_checkpoints_are_to_be_is_named(tmp_path: Path, how: str) -> None:
    place = tmp_path / "study.db.trials"
    if how == "file":
        place.write_text("mine")
    elif how == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "nothing")
    told = r"study\.db\.trials is to hold checkpoints, but .+study\.db\.trials is no folder; move it away"
    with pytest.raises(StudyError, match=told):
        open_study(plan_of(), tmp_path / "study.db", site_of())


def test_a_cache_that_leads_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen by a reader: a server's checkpoints lie in the user's cache, and it was tried again for ever."""
    cache = tmp_path / "cache"
    cache.symlink_to(tmp_path / "unmounted")
    monkeypatch.setattr(opening, "cache_folder", lambda: cache)
    told = r"is to hold checkpoints, but .+/cache is no folder"
    with pytest.raises(StudyError, match=told), alone_on_host("postgresql://host/studies"):
        pass


def test_threads_are_in_a_storage_one_at_a_time(tmp_path: Path) -> None:
    """Each makes the folder anew and removes it, so that the others often meet it half gone."""
    url = storage_url(tmp_path / "study.db")
    inside: list[int] = []
    most: list[int] = []

    def go_in_and_out() -> None:
        for _ in range(200):
            with alone_on_host(url):
                inside.append(1)
                time.sleep(1e-4)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(4) as threads:
        for call in [threads.submit(go_in_and_out) for _ in range(4)]:
            call.result()
    assert most == [1] * 800

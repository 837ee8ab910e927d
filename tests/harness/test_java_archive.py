"""The archive of Spark's classes: made once, mapped by whoever comes after, and done without where it can't be made."""

from __future__ import annotations

import fcntl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness import java_archive

OPTION = "-XX:ArchiveClassesAtExit="


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run(command: list[str], more: dict[str, str]) -> None:
        ran.append(command)
        if OPTION in more.get("OPTIONS_OF_JAVA", ""):
            Path(more["OPTIONS_OF_JAVA"].partition(OPTION)[2]).write_bytes(b"classes")

    monkeypatch.setenv("OPTIONS_OF_JAVA", "-XX:TieredStopAtLevel=1")
    monkeypatch.setattr(java_archive, "_run", run)
    folder = tmp_path / "java"
    option = java_archive.java_archive(folder, "OPTIONS_OF_JAVA")
    assert option == f"-XX:SharedArchiveFile={folder / 'spark.jsa'}" and len(ran) == 2
    assert java_archive.java_archive(folder, "OPTIONS_OF_JAVA") == option and len(ran) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["spark.jsa", "tried"]


def test_of_two_one_makes_it_and_the_other_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: who had opened the mark before it was written made another archive under the first one's JVMs."""
    ran, both = [], threading.Barrier(2)

    def run(command: list[str], more: dict[str, str]) -> None:
        ran.append(command)
        time.sleep(0.2)

    lock = fcntl.flock

    def wait_and_lock(file: Any, how: int) -> None:
        both.wait(10)
        lock(file, how)

    monkeypatch.setenv("OPTIONS_OF_JAVA", "")
    monkeypatch.setattr(java_archive, "_run", run)
    monkeypatch.setattr(fcntl, "flock", wait_and_lock)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(java_archive.java_archive, tmp_path / "java", "OPTIONS_OF_JAVA") for _ in range(2)]
        assert [each.result(30) for each in made] == ["", ""]
    assert len(ran) == 2, "Java's own classes and Spark's"


def test_a_java_that_makes_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setenv("OPTIONS_OF_JAVA", "")
    monkeypatch.setattr(java_archive, "_run", lambda command, more: ran.append(command))
    assert [java_archive.java_archive(tmp_path / "java", "OPTIONS_OF_JAVA") for _ in range(2)] == ["", ""]
    assert len(ran) == 2, "Java's own classes and Spark's"

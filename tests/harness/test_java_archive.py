"""The archive of Spark's classes: made once, mapped by whoever comes after, and done without where it can't be made."""

from __future__ import annotations

from pathlib import Path

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


def test_a_java_that_makes_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setenv("OPTIONS_OF_JAVA", "")
    monkeypatch.setattr(java_archive, "_run", lambda command, more: ran.append(command))
    assert [java_archive.java_archive(tmp_path / "java", "OPTIONS_OF_JAVA") for _ in range(2)] == ["", ""]
    assert len(ran) == 2, "Java's own classes and Spark's"

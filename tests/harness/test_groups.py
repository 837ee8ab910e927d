"""Which tests a parallel run keeps apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.groups import add_groups, group_of


def item(path: str, marked: bool = False, **values: Any) -> Any:
    marks = [pytest.mark.serial] if marked else []
    return SimpleNamespace(
        path=Path(path),
        callspec=SimpleNamespace(params=values),
        get_closest_marker=lambda name: next((mark for mark in marks if mark.name == name), None),
        marks=marks,
        add_marker=marks.append,
    )


@pytest.mark.parametrize(
    ("this", "expected"),
    [
        (item("tests/faults/test_a.py"), "serial"),
        (item("tests/spark/test_a.py"), "spark"),
        (item("tests/conformance/test_a.py", launcher="mpiexec"), "serial"),
        (item("tests/conformance/test_a.py", launcher="spark"), "spark"),
        (item("tests/conformance/test_a.py", launcher="processes"), None),
        (item("tests/engine/test_a.py"), None),
        (item("tests/engine/test_a.py", marked=True), "serial"),
    ],
)
def test_mpi_with_failures_and_spark_are_a_group_each(this: Any, expected: str | None) -> None:
    assert group_of(this) == expected
    add_groups([this])
    assert [mark.args for mark in this.marks if mark.name == "xdist_group"] == ([(expected,)] if expected else [])
    assert any(mark.name == "serial" for mark in this.marks) == bool(expected)


@pytest.mark.parametrize(
    ("this", "expected"),
    [
        (item("tests/experiments/e02_threads_vs_processes/test_a.py"), "e02"),
        (item("tests/experiments/test_a.py", own=SimpleNamespace(name="11_straggler_mitigation")), "e11"),
        (item("tests/experiments/test_a.py", number="07", name="speed"), "e07"),
        (item("tests/experiments/test_a.py", share=10), None),
        (item("tests/experiments/test_report.py"), "claims"),
        (item("tests/conformance/test_tensorflow.py", workers=2), "tensorflow"),
        (item("tests/conformance/test_tensorflow.py", launcher="mpiexec"), "serial"),
        (item("tests/engine/test_a.py", number="07"), None),
    ],
)
def test_what_makes_the_same_dear_thing_is_a_group(this: Any, expected: str | None) -> None:
    add_groups([this])
    assert [mark.args for mark in this.marks if mark.name == "xdist_group"] == ([(expected,)] if expected else [])
    assert any(mark.name == "serial" for mark in this.marks) == (expected == "serial")


@pytest.mark.slow  # it starts a pytest of its own
def test_a_group_stays_in_one_process(tmp_path: Path) -> None:
    """With pytest 9.2, pytest-xdist 3.8 takes no notice of groups, and two tests of Spark ran at the same time."""
    (tmp_path / "test_group.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.xdist_group('serial')\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_one(number):\n"
        "    with open('processes', 'a') as file:\n"
        "        print(os.environ['PYTEST_XDIST_WORKER'], file=file)\n"
    )
    words = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "--dist", "loadgroup"]
    words += ["-p", "no:cacheprovider", "-c", "none.toml"]
    (tmp_path / "none.toml").touch()
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to load
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=150, capture_output=True)
    processes = (tmp_path / "processes").read_text().split()
    assert len(processes) == 6 and len(set(processes)) == 1

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
from harness.scheduling import GIVES_WAY, NICENESS, Scheduling


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
def test_a_group_stays_in_one_process_and_those_that_are_timed_in_one_that_does_not_give_way(
    tmp_path: Path, root: Path
) -> None:
    """With pytest 9.2, pytest-xdist 3.8 takes no notice of groups, and two tests of Spark ran at the same time."""
    (tmp_path / "conftest.py").write_text(
        "import os, time\n"
        "import pytest\n"
        "from harness.scheduling import give_way, scheduling\n"
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    return scheduling(config, log)\n"
        "def pytest_configure(config):\n"
        "    give_way(config)\n"
        "@pytest.fixture(autouse=True)\n"
        "def where(request):\n"
        "    group = request.node.get_closest_marker('xdist_group')\n"
        "    with open('places', 'a') as file:\n"
        "        print(group.args[0] if group else 'none', os.environ['PYTEST_XDIST_WORKER'], os.nice(0), file=file)\n"
        "    time.sleep(0.1)\n"
    )
    (tmp_path / "test_group.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(8))\n"
        "def test_alone(number): pass\n"
        + "".join(
            f"@pytest.mark.xdist_group('{group}')\n"
            f"@pytest.mark.parametrize('number', range({count}))\n"
            f"def test_{group}(number): pass\n"
            for group, count in [("e02", 9), ("serial", 6), ("spark", 4)]
        )
    )
    (tmp_path / "none.toml").touch()
    words = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "3", "--dist", "loadgroup", "-c", "none.toml"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    own |= {"PYTHONPATH": str(root / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([*words, "-p", "no:cacheprovider"], cwd=tmp_path, env=own, timeout=150, capture_output=True)
    assert done.returncode == 0, done.stdout
    places = [line.split() for line in (tmp_path / "places").read_text().splitlines()]
    assert len(places) == 27
    took = {group: {process for own, process, _ in places if own == group} for group, _, _ in places}
    assert sorted([*took["serial"], *took["spark"]]) == ["gw0", "gw1"] and took["e02"] == {GIVES_WAY}
    niceness = {process: int(nice) - os.nice(0) for _, process, nice in places}
    assert niceness == {"gw0": 0, "gw1": 0, GIVES_WAY: NICENESS}


class Node:
    """A process to which tests are handed out."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)

    def send_runtest_some(self, tests: list[int]) -> None:
        pass


def sent(processes: int, *asking: str) -> list[str]:
    """The group that each of these nodes gets, one after the other."""
    scheduler: Any = Scheduling(SimpleNamespace(getvalue=lambda name: [f"{processes}*popen"]))  # type: ignore[arg-type]
    for group in ("serial", "e02", "spark", "alone"):
        scheduler.workqueue[group] = {group: False}
    tests, found = list(scheduler.workqueue), []
    for node in map(Node, asking):
        scheduler.registered_collections[node] = tests
        scheduler._assign_work_unit(node)
        found += list(scheduler.assigned_work[node])
    return found


@pytest.mark.parametrize(
    ("processes", "asking", "expected"),
    [
        (3, ["gw2", "gw0", "gw1", "gw2"], ["e02", "serial", "spark", "alone"]),
        (3, ["gw0", "gw0", "gw0", "gw2"], ["serial", "spark", "e02", "alone"]),
        (3, ["gw2", "gw2", "gw2", "gw2"], ["e02", "alone", "serial", "spark"]),
        (2, ["gw2", "gw1", "gw2", "gw1"], ["serial", "spark", "e02", "alone"]),
    ],
)
def test_what_is_timed_goes_first_and_not_to_the_process_that_gives_way(
    processes: int, asking: list[str], expected: list[str]
) -> None:
    assert sent(processes, *asking) == expected

"""CPU seconds by folder: all that a test starts counts, and a run above its budget fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cpu_table, yardstick
from harness.cpu_table import Meter, added, budgets, exceeded, lines

BURN = "import time\nwhile time.process_time() < {}: pass"
CONFTEST = """\
from harness import cpu_table

def pytest_addoption(parser):
    cpu_table.add_options(parser)

def pytest_configure(config):
    cpu_table.register(config)
"""
TEST = """\
import subprocess, sys, time

def test_children():
    subprocess.run([sys.executable, "-c", {burn!r}], check=True)

def test_own():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
"""


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, which knows nothing of this one, and loads no plugin that it isn't told to: nbval's and
    hypothesis' take 5 s."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def spent(meter: Meter, folder: str) -> float:
    meter.read()
    return meter.table[folder][2]


def test_children_count_while_they_run_and_after() -> None:
    meter = Meter()
    meter.enter("one")
    child = subprocess.Popen([sys.executable, "-c", BURN.format(0.5) + "\ninput()"], stdin=subprocess.PIPE)
    while (running := spent(meter, "one")) < 0.5:
        pass
    child.communicate(b"\n")
    assert spent(meter, "one") >= running
    meter.enter("two")
    assert spent(meter, "two") < 0.5, "what has been spent is spent once"


def test_a_slower_core_makes_no_run_more_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI refused a run whose tests had all passed: 4 662 CPU seconds on a slow core, where 3 200 were allowed."""
    rows = {}
    for slower in (1.0, 4.0):
        monkeypatch.setattr(cpu_table, "slowness", lambda slower=slower: slower)
        monkeypatch.setattr(cpu_table, "cpu_seconds", lambda slower=slower: 10 * slower)
        meter = Meter()
        meter.enter("one")
        monkeypatch.setattr(cpu_table, "cpu_seconds", lambda slower=slower: 110 * slower)
        meter.read()
        rows[slower] = meter.table["one"]
    assert rows[1.0][2:] == [100.0, 100.0] and rows[4.0][2:] == [400.0, 100.0]


def test_the_yardstick_is_of_the_order_that_it_says() -> None:
    assert 0.2 < yardstick.slowness(5) < 20


@pytest.mark.slow  # it starts a pytest of its own
@pytest.mark.parametrize("parallel", [(), ("-p", "xdist", "-n", "2", "--dist", "loadgroup")], ids=["alone", "parallel"])
@pytest.mark.parametrize(("budget", "code"), [(0.5, 1), (500, 0)])
def test_a_run_above_its_budget_fails(
    tmp_path: Path, root: Path, parallel: tuple[str, ...], budget: float, code: int
) -> None:
    folder = tmp_path / "tests" / "burning"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = tests\npythonpath = {root / 'tests'}\ncpu_budgets =\n    all {budget}\n"
    )
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (folder / "test_burning.py").write_text(TEST.format(burn=BURN.format(0.4)))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--cpu-budget", "all", *parallel]
    done = run(command, tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("tests/burning "))
    assert row[1] == "2" and float(row[3]) >= 1, "0.4 of a child and 0.3 of its own"
    assert ("MORE THAN the budget" in done.stdout) == (code == 1)
    assert "2 passed" in done.stdout


@pytest.mark.slow  # it starts a pytest of its own
def test_a_budget_that_nobody_has_set_is_refused(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--cpu-budget", "none", "--collect-only", "tests/harness"]
    done = run(command, root)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--cpu-budget none does not exist; there are: check, test" in done.stderr


def test_tables_add_up() -> None:
    whole = added([{"a": [1, 2.0, 9.0, 3.0]}, {"a": [1, 1.0, 3.0, 1.0], "b": [5, 9.0, 12.0, 8.0]}])
    assert whole == {"a": [2, 3.0, 12.0, 4.0], "b": [5, 9.0, 12.0, 8.0]}
    assert exceeded(whole, 11.9) and not exceeded(whole, 12.0)
    shown = lines(whole, 12.0)
    assert [line.split()[0] for line in shown[:4]] == ["folder", "b", "a", "all"], "the most expensive first"
    assert shown[-2] == "24 CPU seconds here are 12 standard ones, for a core was 2.00 times as slow as the standard"
    assert shown[-1] == "12 standard CPU seconds are within the budget of 12"


def test_budgets_are_read_by_name() -> None:
    assert budgets(["check 300", "test 1800"]) == {"check": 300.0, "test": 1800.0}
    with pytest.raises(ValueError, match="unpack"):
        budgets(["check"])

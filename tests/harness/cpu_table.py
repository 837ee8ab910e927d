"""The table that `make check` and `make test` end with: seconds and CPU seconds of every folder, and a budget for them.

CPU seconds are those of the tests' own processes and of all that they start: workers, kernels, JVMs. They still
depend on the machine and on what else its host does, so the budget is for standard ones (harness/yardstick.py): a run
that needs more of them than its budget allows fails. The budgets stand in pyproject.toml under `cpu_budgets`, and are
asked for by name: `pytest --cpu-budget test`.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field

import psutil
import pytest

from harness.yardstick import slowness

Table = dict[str, list[float]]  # folder -> tests, seconds, CPU seconds, standard CPU seconds
SECONDS_BETWEEN_READINGS = 10.0  # in one folder; the core is timed anew for each reading, which takes some 10 ms
_BEFORE = "(imports and collection)"
_OF_WORKER = "cpu_table"


def budgets(lines: list[str]) -> dict[str, float]:
    """Standard CPU seconds by name, from lines such as "check 300". Raises ValueError for any other line."""
    found = {}
    for line in lines:
        name, seconds = line.split()
        found[name] = float(seconds)
    return found


def cpu_seconds() -> float:
    """Of this process and all below it, those included that have ended and were waited for."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@dataclass
class Meter:
    """Seconds by folder. Processes are counted where the folder changes or has lasted: looking at them takes time."""

    table: Table = field(default_factory=dict)
    folder: str = _BEFORE
    _began: float = field(default_factory=time.monotonic)
    _cpu: float = 0.0

    def enter(self, folder: str) -> None:
        """What follows belongs to `folder`."""
        if folder != self.folder or time.monotonic() - self._began > SECONDS_BETWEEN_READINGS:
            self.read()
        self.folder = folder

    def count_test(self) -> None:
        self._row()[0] += 1

    def read(self) -> None:
        """Book what was spent since the last reading."""
        now, cpu = time.monotonic(), cpu_seconds()
        self._row()[1] += now - self._began
        spent = max(0.0, cpu - self._cpu)  # the times of a process that nobody waited for are lost
        self._row()[2] += spent
        self._row()[3] += spent / slowness()
        self._began, self._cpu = now, cpu

    def _row(self) -> list[float]:
        return self.table.setdefault(self.folder, [0.0] * 4)


def added(tables: list[Table]) -> Table:
    """One table for all processes of a parallel run."""
    whole: Table = {}
    for table in tables:
        for folder, values in table.items():
            row = whole.setdefault(folder, [0.0] * 4)
            row[:] = [one + other for one, other in zip(row, values, strict=True)]
    return whole


def lines(table: Table, budget: float) -> list[str]:
    """The table as text, the most expensive folder first, and how the sum compares with the budget."""
    shown = [f"{'folder':<28}{'tests':>7}{'seconds':>10}{'CPU seconds':>13}{'standard':>10}"]
    total = [sum(row[column] for row in table.values()) for column in range(4)]
    for folder, row in [*sorted(table.items(), key=lambda row: -row[1][3]), ("all", total)]:
        shown.append(f"{folder:<28}{row[0]:>7.0f}{row[1]:>10.0f}{row[2]:>13.0f}{row[3]:>10.0f}")
    verdict = "MORE THAN" if exceeded(table, budget) else "within"
    slower = f", for a core was {total[2] / total[3]:.2f} times as slow as the standard" if total[3] else ""
    return [
        *shown,
        f"{total[2]:.0f} CPU seconds here are {total[3]:.0f} standard ones{slower}",
        f"{total[3]:.0f} standard CPU seconds are {verdict} the budget of {budget:.0f}",
    ]


def exceeded(table: Table, budget: float) -> bool:
    return sum(row[3] for row in table.values()) > budget


class CpuTable:
    """The plugin: in a parallel run each process has one, and the first of them collects what the others report."""

    def __init__(self, config: pytest.Config, budget: float) -> None:
        self.budget, self.meter = budget, Meter()
        self.tables: list[Table] = []
        self.root = config.rootpath
        self.reports_to = getattr(config, "workeroutput", None)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None):  # type: ignore[no-untyped-def]
        self.meter.enter("/".join(item.path.relative_to(self.root).parts[:2]))
        self.meter.count_test()
        yield
        if nextitem is None:
            self.meter.read()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        self.tables.append(getattr(node, "workeroutput", {}).get(_OF_WORKER, {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.meter.read()
        if self.reports_to is not None:
            self.reports_to[_OF_WORKER] = self.meter.table
            return
        own = Meter(table=dict(self.meter.table))
        if self.tables:  # this process has only handed out tests; those below it have reported for themselves
            times = os.times()
            spent = times.user + times.system
            own.table = {"(handing out tests)": [0.0, 0.0, spent, spent / slowness(10)]}
        self.whole = added([*self.tables, own.table])
        if exceeded(self.whole, self.budget) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("CPU seconds")
        for line in lines(self.whole, self.budget):
            terminalreporter.write_line(line)


def add_options(parser: pytest.Parser) -> None:
    parser.addini("cpu_budgets", "standard CPU seconds that a run may take, by name", type="linelist")
    parser.addoption("--cpu-budget", default="", metavar="NAME", help="end with a table of CPU seconds; fail above it")


def register(config: pytest.Config) -> None:
    """Raises pytest.UsageError for a budget that nobody has set."""
    name = config.getoption("cpu_budget")
    if not name:
        return
    known = budgets(config.getini("cpu_budgets"))
    if name not in known:
        raise pytest.UsageError(f"--cpu-budget {name} does not exist; there are: {', '.join(known)}")
    config.pluginmanager.register(CpuTable(config, known[name]), "cpu-table")

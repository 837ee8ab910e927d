"""Which tests may run at the same time, when pytest-xdist runs the suite in two processes.

Two groups run in one of them each, from beginning to end, one after the other:

    serial   what starts MPI or emulated hosts, and tests of failures, which must end within some seconds: two of them
             at once would share ports and /dev/shm
    spark    what starts Spark: two clusters at once would share two cores and the memory

Others share something dear that a process makes once, so that the second process need not make it as well:

    e01 ... e13   what looks at one experiment's stored records: they are read, and what is common to its figures and
                  findings is computed, once
    claims        what judges the claims of all notebooks together
    tensorflow    what imports TensorFlow

All other tests go to whichever process is free. The first two groups together last about as long as all the rest, so
that with one group alone the other process would be idle at the end.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

SERIAL, SPARK = "serial", "spark"
_CLAIMS = ("test_report", "test_minutes", "test_overview", "test_readme")
_EXPERIMENT = re.compile(r"e?(\d\d)(?:_[a-z_0-9]+)?")  # e02_threads_vs_processes, or the notebook's name or number
_FOLDERS = {"faults": SERIAL, "spark": SPARK}
_LAUNCHERS = {"mpiexec": SERIAL, "engines": SERIAL, "emulated": SERIAL, "spark": SPARK, "spark_driver": SPARK}


def add_groups(items: list[pytest.Item]) -> None:
    """Give every test of a group the mark that pytest-xdist reads with `--dist loadgroup`."""
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.serial)
        if group := group or shares_with(item):
            item.add_marker(pytest.mark.xdist_group(group))


def group_of(item: pytest.Item) -> str | None:
    """The group to which the folder of this test, its launcher or its mark says that it belongs."""
    values: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    named = [_LAUNCHERS[value] for value in values.values() if isinstance(value, str) and value in _LAUNCHERS]
    if folder := _FOLDERS.get(item.path.parent.name):
        return folder
    if named:
        return SPARK if SPARK in named else SERIAL
    return SERIAL if item.get_closest_marker("serial") else None


def shares_with(item: pytest.Item) -> str | None:
    """The group of tests that make the same dear thing as this one, if there is one."""
    if item.path.stem in _CLAIMS:
        return "claims"
    if "tensorflow" in item.path.stem:
        return "tensorflow"
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = [getattr(value, "name", value) for value in values]  # an experiment has its notebook's name
    if item.path.parent.name == "experiments":
        named = [value for value in named if isinstance(value, str)]
    else:
        named = [item.path.parent.name]
    return next((f"e{found[1]}" for each in named if (found := _EXPERIMENT.fullmatch(each))), None)

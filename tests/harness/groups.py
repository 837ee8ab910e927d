"""Which tests may run at the same time, when pytest-xdist runs the suite in two processes.

Two groups run in one of them each, from beginning to end, one after the other:

    serial   what starts MPI or emulated hosts, and tests of failures, which must end within some seconds: two of them
             at once would share ports and /dev/shm
    spark    what starts Spark: two clusters at once would share two cores and the memory

All other tests go to whichever process is free. Both groups together last about as long as all the rest, so that with
one group alone the other process would be idle at the end.
"""

from __future__ import annotations

from typing import Any

import pytest

SERIAL, SPARK = "serial", "spark"
_FOLDERS = {"faults": SERIAL, "spark": SPARK}
_LAUNCHERS = {"mpiexec": SERIAL, "engines": SERIAL, "emulated": SERIAL, "spark": SPARK, "spark_driver": SPARK}


def add_groups(items: list[pytest.Item]) -> None:
    """Give every test of a group the mark that pytest-xdist reads with `--dist loadgroup`."""
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.serial)
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

"""Which tests may run at the same time, when pytest-xdist runs the suite in two processes.

The serial group runs in one of them, from beginning to end: tests that start MPI, Spark or emulated hosts, and tests of
failures, which must end within some seconds. Two of them at once would share ports, /dev/shm and two cores. All other
tests go to whichever process is free.
"""

from __future__ import annotations

from typing import Any

import pytest

SERIAL = "serial"
_FOLDERS = ("faults", "spark")
_LAUNCHERS = ("mpiexec", "engines", "emulated", "spark", "spark_driver")


def add_groups(items: list[pytest.Item]) -> None:
    """Give every test of the serial group the mark that pytest-xdist reads with `--dist loadgroup`."""
    for item in items:
        if is_serial(item):
            item.add_marker(pytest.mark.serial)
            item.add_marker(pytest.mark.xdist_group(SERIAL))


def is_serial(item: pytest.Item) -> bool:
    """Does the folder of this test, its mark or its launcher say that it belongs to the serial group?"""
    if item.get_closest_marker("serial") or item.path.parent.name in _FOLDERS:
        return True
    values: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return any(isinstance(value, str) and value in _LAUNCHERS for value in values.values())

"""What this machine and this environment lack for a run, each with its exact fix."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.commands.doctor.findings import GOOD, LACKING, NOTE, Finding, show
from lockstep.commands.doctor.images import check_data
from lockstep.commands.doctor.machine import (
    check_bfloat16,
    check_cores,
    check_disk,
    check_gpu,
    check_huge_pages,
    check_load,
    check_memory,
    check_results,
    check_sharing,
)
from lockstep.commands.doctor.software import (
    check_compiler,
    check_git,
    check_kernel,
    check_lock,
    check_mpi,
    check_python,
    check_spark,
    check_tensorflow,
    check_torch,
)

__all__ = ["CHECKS", "GOOD", "LACKING", "NOTE", "Finding", "check_all", "show"]

CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_lock,
    check_torch,
    check_tensorflow,
    check_mpi,
    check_spark,
    check_kernel,
    check_git,
    check_compiler,
    check_cores,
    check_load,
    check_memory,
    check_sharing,
    check_huge_pages,
    check_bfloat16,
    check_gpu,
    check_disk,
    check_results,
    check_data,
)
"""In the order in which their fixes make sense."""


def check_all() -> list[Finding]:
    """All checks."""
    return [check() for check in CHECKS]

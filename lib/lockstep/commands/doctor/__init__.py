"""What this machine and this environment lack for a run, each with its exact fix."""

from __future__ import annotations

from lockstep.commands.doctor import images, machine, software
from lockstep.commands.doctor.findings import GOOD, LACKING, NOTE, Finding, show

__all__ = ["CHECKS", "GOOD", "LACKING", "NOTE", "Finding", "check_all", "show"]

CHECKS = (*software.CHECKS, *machine.CHECKS, images.check_data)
"""In the order in which their fixes make sense."""


def check_all() -> list[Finding]:
    """All checks."""
    return [check() for check in CHECKS]

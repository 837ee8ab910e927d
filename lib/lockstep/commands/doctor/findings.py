"""A line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lockstep.records.places import PlaceError, repository_root

GOOD, LACKING, NOTE = "ok", "lacking", "note"
LOCKSTEP = ".venv/bin/lockstep"  # in a fix, for the shell
_MARKS = {GOOD: "ok     ", NOTE: "note   ", LACKING: "LACKING"}


@dataclass(frozen=True)
class Finding:
    """One line: `lacking` is what keeps a run from working, `note` is worth knowing. `fix` is a command to copy, and
    after `#` what it does, or where no command helps."""

    name: str
    state: str
    detail: str
    fix: str = ""


def show(findings: list[Finding], console: Console | None = None) -> bool:
    """Print the findings; True if nothing that is needed is missing."""
    console = console or Console()
    for finding in findings:
        lines = [f"{_MARKS[finding.state]}  {finding.name:<10} {finding.detail}"]
        lines += [f"{'':<20}fix: {finding.fix}"] if finding.fix else []
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return all(finding.state != LACKING for finding in findings)


def here() -> Path:
    """The root of the clone, or the working folder outside of one."""
    try:
        return repository_root()
    except PlaceError:
        return Path.cwd()

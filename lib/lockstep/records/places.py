"""Where the repository is, and where what is measured goes."""

from __future__ import annotations

from pathlib import Path

from lockstep.engine.files import repository_above

RUN_MARK = "LOCKSTEP_RUN"
"""Environment variable that marks every process of `lockstep run`."""
REFERENCE = "results/reference"
"""The run folder that is committed, which every notebook shows unless it is told otherwise."""
FROM_NOTEBOOKS = "results/runs/notebook"
"""Where an opened notebook measures into, so that nobody changes the committed records by opening one."""


class PlaceError(ValueError):
    """There is no repository here; the message names the folder and the fix."""


def repository_root(start: str | Path | None = None) -> Path:
    """The clone at or above `start`; without it the one that holds the working folder, else the one that holds this
    file. Raises PlaceError if there is none."""
    starts = [Path(start)] if start else [Path.cwd(), Path(__file__)]
    for begin in starts:
        if (found := repository_above(begin.resolve())) is not None:
            return found
    raise PlaceError(
        f"no Lockstep repository at or above {starts[0]}: no pyproject.toml there names the project lockstep; "
        "change into the folder of your clone"
    )

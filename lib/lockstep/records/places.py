"""Where the repository is."""

from __future__ import annotations

from pathlib import Path


class PlaceError(ValueError):
    """There is no repository here; the message names the folder and the fix."""


def repository_root(start: str | Path | None = None) -> Path:
    """The folder with `pyproject.toml` and `data/published/` at or above `start` (default: this file, then the
    current folder). Raises PlaceError if there is none."""
    starts = [Path(start)] if start else [Path(__file__), Path.cwd()]
    for begin in starts:
        for folder in (begin.resolve(), *begin.resolve().parents):
            if (folder / "pyproject.toml").is_file() and (folder / "data" / "published").is_dir():
                return folder
    raise PlaceError(
        f"no repository at or above {starts[-1]}: no folder there holds pyproject.toml and data/published; "
        "run from inside a clone of Lockstep"
    )

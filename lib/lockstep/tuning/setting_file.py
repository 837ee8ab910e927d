"""A setting as a file that somebody has chosen and others train: names and values of a space, in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lockstep.engine.files import write_atomically
from lockstep.engine.job import Job
from lockstep.tuning.space import NAMES
from lockstep.tuning.space_entries import SpaceError, nearest

IN_FILE: tuple[str, ...] = (*NAMES, "epochs")


def write_setting(path: Path, setting: Mapping[str, Any], told: str) -> None:
    """Write a setting, and `told` as a comment above it. Raises WriteError."""
    write_atomically(path, f"# {told}\n{yaml.safe_dump(dict(setting), sort_keys=False)}")


def read_setting(path: Path) -> dict[str, Any]:
    """The options of a job that `write_setting`, or a reader, wrote. Raises SpaceError: with file, entry, and fix."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpaceError(f"{path} can't be read ({error.strerror}); give the file of a setting") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpaceError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not found:
        raise SpaceError(f"{path}: {found!r} is no setting; write a mapping of names to values")
    for name, value in found.items():
        if name not in IN_FILE:
            there_are = f"{nearest(name, IN_FILE)}; there are: {', '.join(IN_FILE)}"
            raise SpaceError(f"{path}: {name!r} is no setting's{there_are}")
        Job.options()[name].check(value)
    return found

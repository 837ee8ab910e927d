"""Which data sets LOCKSTEP_DATA holds, for each use case."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.commands.doctor.findings import GOOD, LACKING, LOCKSTEP, NOTE, Finding
from lockstep.engine.data import DataError, open_photos
from lockstep.engine.data.folders import dataset_folder, find_dataset

if TYPE_CHECKING:
    from lockstep.engine.usecases import UseCase

STAND_IN = "unset LOCKSTEP_DATA  # the synthetic stand-in needs nothing"


def check_data() -> Finding:
    named = os.environ.get("LOCKSTEP_DATA")
    if not named:
        detail = "LOCKSTEP_DATA is not set: the synthetic stand-in is used"
        return Finding(
            "data", NOTE, detail, "export LOCKSTEP_DATA=path/to/root  # data/README.md: where to get the images"
        )
    root = Path(named).expanduser().absolute()
    if not root.is_dir():
        detail = f"LOCKSTEP_DATA={root} is not a folder"
        return Finding("data", LACKING, detail, f"{STAND_IN}; or export the folder that holds fire-smoke/")
    held: list[str] = []
    wrong: dict[str, str] = {}  # what, and its fix
    invented: list[str] = []
    for dataset, cases in _datasets().items():
        if all(case.network is not None for case in cases) and find_dataset(root, dataset) is None:
            invented += [case.name for case in cases]
            continue
        what, fix = _look(root, dataset, cases)
        if fix:
            wrong[what] = fix
        else:
            held.append(what)
    rest = f". The synthetic stand-in is used for {', '.join(invented)}" if invented else ""
    if not wrong:
        return Finding("data", GOOD, f"LOCKSTEP_DATA={root} holds {'; '.join(held)}{rest}")
    detail = f"LOCKSTEP_DATA={root} holds {'; '.join(held) or 'no usable set'}. {'; '.join(wrong)}{rest}"
    return Finding("data", NOTE if held else LACKING, detail, next(iter(wrong.values())))


def _look(root: Path, dataset: str, cases: Sequence[UseCase]) -> tuple[str, str]:
    """What there is of a data set, in words, and the fix; no fix is needed if its use cases can train on it."""
    users = ", ".join(case.name for case in cases)
    try:
        folder = dataset_folder(root, dataset)
    except DataError as error:
        return f"Missing: {dataset} for {users}: {error}", f"{STAND_IN}; or lay {dataset} out as data/README.md says"
    try:
        train, test = (open_photos(root, dataset, split) for split in ("train", "test"))
    except DataError as error:
        check = f"{LOCKSTEP} data check {shlex.quote(str(folder))}"
        return f"Faulty: {dataset} for {users}: {error}", f"{check}  # or, for the stand-in: unset LOCKSTEP_DATA"
    try:
        for case in cases:
            case.check_classes(train, str(root))
    except DataError as error:
        return f"Faulty: {dataset} for {users}: {error}", f"{STAND_IN}; or mend the class folders"
    return f"{dataset} ({len(train)} to train, {len(test)} to test; {users})", ""


def _datasets() -> dict[str, list[UseCase]]:
    """Data set -> the use cases that train on it."""
    try:
        from lockstep.engine.usecases import USE_CASES
    except (ImportError, OSError):  # without torch; its own line says so
        return {}
    found: dict[str, list[UseCase]] = {}
    for case in USE_CASES.values():
        found.setdefault(case.dataset, []).append(case)
    return found

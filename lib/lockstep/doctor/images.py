"""Which data sets LOCKSTEP_DATA holds, for each use case."""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.data import DataError, open_photos
from lockstep.doctor.findings import GOOD, LACKING, NOTE, Finding

LOCKSTEP = ".venv/bin/lockstep"


def check_data() -> Finding:
    named = os.environ.get("LOCKSTEP_DATA")
    if not named:
        detail = "LOCKSTEP_DATA is not set: the synthetic stand-in is used"
        return Finding(
            "data", NOTE, detail, "export LOCKSTEP_DATA=path/to/root  # data/README.md: where to get the images"
        )
    root = Path(named).expanduser()
    if not root.is_dir():
        detail = f"LOCKSTEP_DATA={named} is not a folder"
        return Finding("data", LACKING, detail, "unset LOCKSTEP_DATA  # or export the folder that holds fire-smoke/")
    held, missing = [], {}
    for dataset, names in _datasets().items():
        try:
            counts = [f"{len(open_photos(root, dataset, split))} to {split}" for split in ("train", "test")]
            held.append(f"{dataset} ({', '.join(counts)}; {', '.join(names)})")
        except DataError as error:
            missing[dataset] = f"{dataset} for {', '.join(names)}: {error}"
    if not missing:
        return Finding("data", GOOD, f"LOCKSTEP_DATA holds {'; '.join(held)}")
    detail = f"LOCKSTEP_DATA={named} holds {'; '.join(held) or 'no usable set'}. Missing: {'; '.join(missing.values())}"
    fix = f"{LOCKSTEP} data check {root / next(iter(missing))}  # or, for the synthetic stand-in: unset LOCKSTEP_DATA"
    return Finding("data", NOTE if held else LACKING, detail, fix)


def _datasets() -> dict[str, list[str]]:
    """Data set -> the use cases that train on it."""
    try:
        from lockstep.usecases import USE_CASES
    except (ImportError, OSError):  # without torch; its own line says so
        return {}
    found: dict[str, list[str]] = {}
    for case in USE_CASES.values():
        found.setdefault(case.dataset, []).append(case.name)
    return found

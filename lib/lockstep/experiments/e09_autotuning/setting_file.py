"""The setting that tuning chose, as a file that another notebook takes: `lockstep run 07 -p tuned=<file>`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lockstep.analysis.stored import Stored
from lockstep.engine.files import write_atomically
from lockstep.experiments.e09_autotuning.grid import CHOSEN
from lockstep.experiments.e09_autotuning.stored_pool import NAMES, pool_in, typed

SETTING = "setting.yaml"


def write_setting(stored: Stored, folder: Path) -> None:
    """Writes `<folder>/setting.yaml` from the last cell of the chosen network; nothing without one. Raises
    WriteError."""
    rows = stored.of(CHOSEN)
    pool = pool_in(stored)
    if rows.empty or pool is None:
        return
    row = rows.iloc[-1]
    found = {name: typed(name, row[name]) for name in (*NAMES, "epochs") if not _is_default(name, row[name])}
    told = f"# The best of {len(pool.trials)} settings, then of the finalists among them, by held-out images alone.\n"
    write_atomically(folder / SETTING, told + yaml.safe_dump(found, sort_keys=False))


def _is_default(name: str, value: Any) -> bool:
    """Sizes that are 0 are the network's own."""
    return name in ("lstm_units", "dense_units", "convolutions") and not value


def read_setting(path: Path) -> Mapping[str, Any]:
    """What `write_setting` wrote."""
    found: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found

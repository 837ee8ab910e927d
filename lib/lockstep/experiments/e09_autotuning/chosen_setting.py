"""The setting that tuning chose, as a file that another notebook takes: `lockstep run 07 -p tuned=<file>`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lockstep.analysis.stored import Stored
from lockstep.experiments.e09_autotuning.grid import CHOSEN
from lockstep.experiments.e09_autotuning.stored_pool import typed
from lockstep.tuning.setting_file import IN_FILE, write_setting

SETTING = "setting.yaml"
SIZES = ("lstm_units", "dense_units", "convolutions")
"""Of which 0 is the network's own."""


def write_chosen(stored: Stored, folder: Path) -> None:
    """Writes `<folder>/setting.yaml` from the chosen network's last cell; nothing without one. Raises WriteError."""
    rows = stored.of(CHOSEN)
    if rows.empty:
        return
    row = rows.iloc[-1]
    setting: dict[str, Any] = {name: typed(name, row[name]) for name in IN_FILE if row[name] or name not in SIZES}
    told = "Chosen by held-out images alone: first among settings drawn at random, then among finalists trained anew."
    write_setting(folder / SETTING, setting, told)

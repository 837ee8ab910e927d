"""What a reader sees on the terminal while a grid is being measured."""

from __future__ import annotations

import sys

from lockstep.measure.summary import ACCURACIES
from lockstep.records import Row


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def one_line(row: Row) -> str:
    """The most telling measurements of a row, in a few words."""
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}"
    if row["updates_done"]:
        scored = [f"{row[name]:.1%} {name.split('_')[0]}" for name in ACCURACIES if row[name] is not None]
        return ", ".join([f"{row['updates_done']} updates in {row['training_seconds']:.1f} s", *scored])
    if row["images_per_second"]:
        return f"{row['images_per_second']:.1f} images/s, {row['step_seconds']:.3f} s a step"
    rates = [f"{row['flops_per_second'] / 1e9:.0f} GFLOP/s"] if row["flops_per_second"] else []
    rates += [f"{row['bandwidth_bytes_per_second'] / 1e9:.1f} GB/s"] if row["bandwidth_bytes_per_second"] else []
    if not rates and row["step_seconds"] is None:
        return "measured, in a table of its own"
    return ", ".join(rates) or f"{row['step_seconds']:.4f} s"

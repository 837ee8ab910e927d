"""What a run of notebook 05 writes beside its records: the steps of each cell of `timeline` as a Chrome trace."""

from __future__ import annotations

from pathlib import Path

from lockstep.analysis.stored import Stored
from lockstep.analysis.timeline import write_traces


def write_step_traces(stored: Stored, folder: Path) -> None:
    """Writes `<folder>/traces/`, a file per cell; nothing if no steps were kept. Raises WriteError."""
    steps = stored.table("timeline")
    if len(steps):
        write_traces(steps, folder / "traces")

"""What a run of notebook 03 writes beside its records: the step of each pipeline as a Chrome trace."""

from __future__ import annotations

from pathlib import Path

from lockstep.analysis.stored import Stored
from lockstep.analysis.timeline import write_action_traces


def write_pipeline_traces(stored: Stored, folder: Path) -> None:
    """Writes `<folder>/traces/`, a file per pipeline; nothing if no pipeline ran. Raises WriteError."""
    actions = stored.table("actions")
    if len(actions):
        write_action_traces(actions, folder / "traces")

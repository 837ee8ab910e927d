"""The traced table `steps`: every measured step of every rank, as `lockstep.analysis.timeline` reads it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lockstep.engine.training.loop import STEP_COLUMNS, Trace


def step_table(traces: Sequence[Trace]) -> pd.DataFrame:
    """rank, step (0 is the first measured one), start_seconds (since this rank's first began), then STEP_COLUMNS.

    A server that updates less often than workers step has a row per update, numbered in its own sequence.
    """
    parts = []
    for trace in traces:
        rows = pd.DataFrame(trace.steps, columns=list(STEP_COLUMNS))
        rows.insert(0, "rank", trace.rank)
        rows.insert(1, "step", range(len(rows)))
        rows.insert(2, "start_seconds", rows["step_seconds"].cumsum() - rows["step_seconds"])
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)

"""What a run did, task by task: the table `tasks.csv`, written by the server of real ranks and by the simulator alike.

| column | |
| --- | --- |
| worker, task | who, and its how manyth task |
| version | updates that the parameters had seen |
| samples | computed and sent, or given out where the task was recalled or not finished; of coded work, of its parts |
| began_seconds, ended_seconds | on the run's clock: it has the parameters; it is done, or stopped |
| compute_seconds, delay_seconds | of these: at work, and held up |
| forecast_seconds | what the policy expected of a micro-batch, where it told the worker |
| fate | applied, late (applied to a later version than the next), dropped, recalled, unfinished (when the run ended) |
| update | the update that it went into; -1: none |
| staleness | updates between its parameters and the update; -1: none |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = (
    "worker",
    "task",
    "version",
    "samples",
    "began_seconds",
    "ended_seconds",
    "compute_seconds",
    "delay_seconds",
    "forecast_seconds",
    "fate",
    "update",
    "staleness",
)
FATES = ("applied", "late", "dropped", "recalled", "unfinished")


@dataclass
class SimulatedRun:
    """`updates` has a row per update: ended_seconds, samples, contributions, loss. `tasks` is None where nobody asked
    for it. Sums count all tasks, also where no table was kept. `facts` are the policy's own (`Policy.facts`).
    `lost`: the workers whose last message will never come through."""

    policy: str
    workers: int
    updates: pd.DataFrame
    tasks: pd.DataFrame | None = None
    sums: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    lost: tuple[int, ...] = ()

    @property
    def total_seconds(self) -> float:
        """Until the last update ended."""
        return float(self.updates["ended_seconds"].iloc[-1]) if len(self.updates) else 0.0

    @property
    def step_seconds(self) -> float:
        """The mean of all updates."""
        return self.total_seconds / len(self.updates) if len(self.updates) else float("nan")

    @property
    def samples(self) -> int:
        """Samples of all updates."""
        return int(self.updates["samples"].sum())


class TaskLog:
    """Collects rows of `tasks.csv`; a row is a tuple in the order of COLUMNS, times in nanoseconds."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def table(self) -> pd.DataFrame:
        """Sorted by the time at which tasks began, then by worker."""
        table = pd.DataFrame(self.rows, columns=list(COLUMNS))
        for name in COLUMNS:
            if name.endswith("_seconds") and name != "forecast_seconds":
                table[name] = table[name].to_numpy(dtype=np.float64) / 1e9
        return table.sort_values(["began_seconds", "worker"], kind="stable", ignore_index=True)


def task_trace(tasks: pd.DataFrame) -> dict[str, Any]:
    """The tasks of one run as a Chrome trace (chrome://tracing, Perfetto): a thread per worker, an event per task,
    named after its fate. Raises ValueError for rows of several runs."""
    if tasks.duplicated(["worker", "task"]).any():
        raise ValueError("a worker has several rows for one task: give the rows of one run")
    named = {"name": "thread_name", "ph": "M", "pid": 0}
    events: list[dict[str, Any]] = [
        named | {"tid": int(worker), "args": {"name": f"worker {worker}"}}
        for worker in sorted(tasks["worker"].unique())
    ]
    told = ("task", "version", "samples", "update", "staleness")
    for row in tasks.sort_values(["worker", "began_seconds"]).to_dict("records"):
        seconds = row["ended_seconds"] - row["began_seconds"]
        what = {"name": row["fate"], "ph": "X", "pid": 0, "tid": int(row["worker"])}
        when = {"ts": row["began_seconds"] * 1e6, "dur": seconds * 1e6}
        arguments = {name: int(row[name]) for name in told} | {"delay_seconds": float(row["delay_seconds"])}
        events.append(what | when | {"args": arguments})
    return {"traceEvents": events, "displayTimeUnit": "ms"}

"""The one table of strategies: a notebook's row name, and the launcher and sync behind it.

A new strategy is a new file (a sync, a launcher or a peer) and one line here; it then stands in every grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Strategy:
    """A row of the table."""

    fields: dict[str, Any]  # fields of Job
    label: str  # in figures
    distributed: bool = True  # several workers
    intra_op: bool = False  # one worker, whose operators use the whole budget of cores


def _of(launcher: str, sync: str, label: str, **others: Any) -> Strategy:
    return Strategy({"launcher": launcher, "sync": sync}, label, **others)


STRATEGIES: dict[str, Strategy] = {
    "sequential": _of("threads", "local", "sequential (1 thread, 1 core)", distributed=False),
    "intra_op": _of("threads", "local", "threads inside operators", distributed=False, intra_op=True),
    "threads": _of("threads", "shared_memory", "replica per thread"),
    "processes": _of("processes", "shared_memory", "process per core, shared memory"),
    "processes_allreduce": _of("processes", "allreduce", "process per core, all-reduce (gloo)"),
    "ddp": _of("processes", "ddp", "process per core, DDP (gloo)"),
}

YARDSTICKS: dict[str, str] = {
    "copy_bound": "copy bandwidth",
    "roof_1_core": "matrix products and copies on one core",
    "roof": "matrix products and copies on all cores",
    "decode": "decoding alone",
}
"""Rows that are measured to be compared with, and train nothing."""

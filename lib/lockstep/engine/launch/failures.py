"""What a launcher reports when a worker fails: `WorkerFailed`, and the facts that explain it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import IO

_TAIL_BYTES = 8_000


class WorkerFailed(RuntimeError):
    """A worker failed: `rank`, `where` (step and phase), `reason`, and its own `traceback` as far as there is one.

    `rank` is -1 where the team as a whole failed. `follows`: the rank failed only because another rank had failed.
    """

    def __init__(self, rank: int, where: str, reason: str, traceback: str, *, follows: bool = False) -> None:
        self.rank, self.where, self.reason, self.traceback, self.follows = rank, where, reason, traceback, follows
        name = f"rank {rank}" if rank >= 0 else "the team"
        detail = f"\n\n--- {name} ---\n{traceback.rstrip()}" if traceback.strip() else ""
        super().__init__(f"{name} {reason} ({where}){detail}")


def out_of_memory_kills() -> int:
    """How many processes of this machine its kernel has killed for lack of memory since boot (0 without Linux)."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def explained_by_memory(failure: WorkerFailed, kills: int) -> WorkerFailed:
    """`failure`, whose reason names full memory if a process was killed while the kernel killed `kills` of them."""
    if kills <= 0 or "SIGKILL" not in failure.reason:
        return failure
    reason = f"{failure.reason}: the kernel ended a process meanwhile, for the machine's memory was full"
    return type(failure)(failure.rank, failure.where, reason, failure.traceback, follows=failure.follows)


def output_tail(output: IO[bytes]) -> str:
    """The end of what a process has written to `output`."""
    size = output.seek(0, 2)
    output.seek(max(0, size - _TAIL_BYTES))
    return output.read().decode(errors="replace")

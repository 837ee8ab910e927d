"""Files that MPI libraries leave behind."""

from __future__ import annotations

import os

import psutil

from lockstep.engine.launch import supervisor


def library_files() -> set[str]:
    """Names in /dev/shm and /tmp of files that no process uses."""
    memory = {name for name in os.listdir("/dev/shm") if name.startswith(("mpich_", "ucx_", "sm_segment", "vader"))}
    if any((process.info["name"] or "").startswith("hydra_") for process in psutil.process_iter(["name"])):
        return memory - supervisor._names_in_use()  # of its files in /tmp nobody can say whose they are
    return (memory - supervisor._names_in_use()) | {name for name in os.listdir("/tmp") if name.startswith("hydra_")}

"""Files that MPI libraries make, and leave behind."""

from __future__ import annotations

import os

import psutil

from lockstep.engine.launch import supervisor

_MEMORY, _PROXIES = ("mpich_", "ucx_", "sm_segment", "vader"), "hydra_"


def library_files() -> set[str]:
    """Their names in /dev/shm and /tmp, whoever uses them."""
    memory = {name for name in os.listdir("/dev/shm") if name.startswith(_MEMORY)}
    return memory | {name for name in os.listdir("/tmp") if name.startswith(_PROXIES)}


def left_since(before: set[str]) -> set[str]:
    """What `library_files` did not name then, and no process uses now."""
    new = library_files() - before
    if any((process.info["name"] or "").startswith(_PROXIES) for process in psutil.process_iter(["name"])):
        new = {name for name in new if not name.startswith(_PROXIES)}  # of these nobody can say whose they are
    return new - supervisor._names_in_use() if new else new

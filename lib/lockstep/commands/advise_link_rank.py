"""One rank of the ping-pong of `lockstep advise --hosts a,b`, one on each host: `main`, whose argument is JSON.

    {"hosts": ["a", "b"], "seconds": 5.0, "mark": "found: "}

Rank 0 prints the mark and {"links": [[[8, 4e-5], ...]]}, a list for each host but the first, or {"same": ["a", "b"]}.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from lockstep.engine.groups import allgather_object
from lockstep.engine.groups.library import MPI, start_mpi
from lockstep.engine.groups.mpi import MpiGroup
from lockstep.engine.groups.ping_pong import links_of_first
from lockstep.engine.launch.environment import interface_problem
from lockstep.engine.launch.mpi.commands import wrong_size

_CANT_START = 3  # exit code


def main() -> None:
    """Send messages there and back between the first host and each other one."""
    settings = json.loads(sys.argv[1])
    names: list[str] = settings["hosts"]
    problem = interface_problem(os.environ.get("GLOO_SOCKET_IFNAME", ""))
    if not problem:
        start_mpi()
        problem = wrong_size(len(names), MPI.COMM_WORLD.size)
    if problem:
        print(f"lockstep: {problem}", file=sys.stderr, flush=True)
        os._exit(_CANT_START)  # before another rank waits for it in MPI
    group = MpiGroup.world()
    machines = allgather_object(group, _machine())  # MPICH takes two names of one machine for two hosts
    same = [name for name, machine in zip(names, machines, strict=True) if machines.count(machine) > 1]
    found: dict[str, Any] = {"same": same} if same else {"links": links_of_first(group, settings["seconds"])}
    if group.rank == 0:
        print(settings["mark"] + json.dumps(found), flush=True)
    group.barrier()
    MPI.Finalize()


def _machine() -> str:
    """What no other machine has: the number of its kernel's start, or its name where there is none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    return socket.gethostname()

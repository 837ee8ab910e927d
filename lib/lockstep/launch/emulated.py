"""MPI jobs on a cluster that is emulated on this machine: hosts are network namespaces, links have a rate.

    launcher --- guard --- unshare --- network (see there) = mpiexec --- proxy in host0 --- ranks 0, 1
                                                                 |------ proxy in host1 --- ranks 2, 3

Ranks of one host are processes, or threads of one. Between hosts MPI and gloo speak TCP over the shaped link; ranks of
one host share memory. Hosts share this machine's
cores: what is real is the network's time, so compare exchange, not computation at more ranks than cores.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lockstep.groups import links
from lockstep.launch import network
from lockstep.launch.mpi_commands import MpiError, Places, command, find_mpiexec
from lockstep.launch.mpi_team import MpiTeam
from lockstep.launch.rendezvous import Meeting

_TRY_SECONDS = 30.0  # for a network of one host, which takes well under one


class EmulatedTeam(MpiTeam):
    """`Team` on `hosts` emulated hosts with equal blocks of processes and links of `bits_per_second`."""

    def __init__(
        self,
        cores: list[list[int]],
        threads_per_worker: int,
        environment: str,
        hosts: int,
        bits_per_second: float,
        seats: list[list[int]] | None = None,
    ) -> None:
        super().__init__(cores, threads_per_worker, environment, seats=seats)
        count = len(self.seats)
        self.counts = [sum(number * hosts // count == host for number in range(count)) for host in range(hosts)]
        self.bits_per_second = bits_per_second

    def _commands(self, meeting: Meeting) -> dict[str, list[str]]:
        places = Places(tuple((f"host{host}", count) for host, count in enumerate(self.counts)))
        words = command(self._mpi, len(self.seats), self._rank_program(meeting), places)
        enter = ["-launcher", "ssh", "-launcher-exec", os.path.join(meeting.folder, "enter")]
        told = {
            "hosts": len(self.counts),
            "bits_per_second": self.bits_per_second,
            "folder": meeting.folder,
            "command": [words[0], *enter, *words[1:]],
        }
        inside = [sys.executable, "-I", "-S", str(Path(network.__file__)), json.dumps(told)]
        return {"mpiexec": ["unshare", "--net", "--mount", "--uts", *inside]}

    def _environment(self, meeting: Meeting) -> dict[str, str]:
        return super()._environment(meeting) | {
            "UCX_TLS": "tcp,self",
            "UCX_NET_DEVICES": network.INTERFACE,
            # Of 8 KiB by default, which cost CPU time: 16 MiB at 10 Gbit/s took 57 ms, and 38 ms so.
            "UCX_TCP_TX_SEG_SIZE": "256k",
            "UCX_TCP_RX_SEG_SIZE": "256k",
            "GLOO_SOCKET_IFNAME": network.INTERFACE,
            links.VARIABLE: network.INTERFACE,
        }


@functools.lru_cache
def why_not() -> str:
    """Why no cluster can be emulated here, for the `reason` of a skipped row; empty if one can."""
    if not sys.platform.startswith("linux"):
        return "an emulated cluster needs Linux's network namespaces"
    missing = [name for name in ("unshare", "ip", "tc", "hostname") if shutil.which(name) is None]
    if missing:
        return f"an emulated cluster needs {', '.join(missing)} (packages util-linux, iproute2, hostname)"
    try:
        kind = find_mpiexec().kind
    except MpiError:  # what it says may hold a path, which a record must not
        kind = ""
    if kind != "mpich":
        return f"an emulated cluster needs MPICH's mpiexec, and here is {kind or 'none'}; pip install mpich"
    lines = [*network.commands(1, 1e9), ["mount", "--make-rprivate", "/"]]
    tried = " && ".join(["mount --make-rprivate /", "mkdir -p /run/netns", "mount -t tmpfs none /run/netns"])
    tried += " && " + " && ".join(" ".join(words) for words in lines)
    words = ["unshare", "--net", "--mount", "--uts", "sh", "-c", tried]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TRY_SECONDS)
    except subprocess.TimeoutExpired:
        return f"an emulated cluster needs network namespaces, and making one took over {_TRY_SECONDS:.0f} s"
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"an emulated cluster needs root, network namespaces and tc: {said}"
    return ""

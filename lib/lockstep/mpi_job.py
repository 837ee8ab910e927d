"""Training under plain mpiexec or srun, on this machine or a cluster; or the command that would do it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep.job import Job
from lockstep.launch.environment import PROFILES, interface_problem, worker_environment
from lockstep.launch.guarded import Guard, seated
from lockstep.launch.mpi_commands import KINDS, Mpi, MpiError, Places, command, find_mpiexec
from lockstep.peers import PEERS
from lockstep.strategies import STRATEGIES
from lockstep.sync import SYNCS
from lockstep.usecases import USE_CASES

_PROGRAM = "from lockstep.cluster import main; main()"
_NEWEST = {"mpich": (5,), "openmpi": (5,), "slurm": (23,)}
_FORWARDED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")


@dataclass(frozen=True)
class Wanted:
    """The options of `lockstep mpi`; see there."""

    workers: int
    use_case: str = "SimpleBig"
    network: str = "default"
    sync: str = "allreduce"
    steps: int = 20
    per_worker_batch_size: int = 32
    threads_per_worker: int = 1
    precision: str = "float32"
    data_dir: str = ""
    images: int = 0
    checkpoint: str = ""
    resume: bool = False
    hosts: str = ""
    hostfile: str = ""
    iface: str = ""
    launcher_kind: str = ""
    stall_seconds: float = 600
    batch: bool = False
    dry_run: bool = False


def job_of(wanted: Wanted, places: Places) -> Job:
    """Raises JobError, MpiError."""
    if wanted.use_case not in USE_CASES:
        raise MpiError(f"--use-case {wanted.use_case} does not exist; there are: {', '.join(USE_CASES)}")
    if wanted.sync in STRATEGIES and STRATEGIES[wanted.sync].fields.get("host_workers") == "threads":
        raise MpiError(
            f"--sync {wanted.sync} has one process per host with threads in it, and lockstep mpi starts a process per "
            "rank; give --sync shared_memory, or measure that strategy in a notebook's grid"
        )
    known = [*SYNCS, *PEERS]
    if wanted.sync not in known or (wanted.sync == "local" and wanted.workers > 1):
        raise MpiError(
            f"--sync {wanted.sync} can't train {wanted.workers} workers together; there are: {', '.join(known)}"
        )
    job = Job(
        strategy="own",
        launcher="mpiexec",
        use_case=wanted.use_case,
        network=wanted.network,
        sync=wanted.sync,
        policy="wait_for_all" if wanted.sync == "parameter_server" else "none",
        hosts=len(places.hosts) or 1,
        workers=wanted.workers,
        threads_per_worker=wanted.threads_per_worker,
        cores_per_worker=wanted.threads_per_worker,
        per_worker_batch_size=wanted.per_worker_batch_size,
        global_batch_size=wanted.per_worker_batch_size * max(wanted.workers, 1),
        precision=wanted.precision,
        steps=wanted.steps,
    )
    USE_CASES[wanted.use_case].for_job(job)  # refuses a network that it has not
    return job


def act(wanted: Wanted) -> int:
    """Print the command, or run it; its exit code. Raises JobError, MpiError."""
    places = Places.of(wanted.hosts, wanted.hostfile, wanted.iface)
    job = job_of(wanted, places)
    if wanted.resume and not wanted.checkpoint:
        raise MpiError("--resume needs --checkpoint, the file of the run that shall go on")
    told: dict[str, Any] = {
        "job": asdict(job),
        "data_dir": wanted.data_dir or os.environ.get("LOCKSTEP_DATA", ""),
        "images": wanted.images,
        "stall_seconds": wanted.stall_seconds,
        "checkpoint": str(Path(wanted.checkpoint).absolute()) if wanted.checkpoint else "",
        "resume": wanted.resume,
    }
    shown = wanted.dry_run or wanted.batch
    found = find("slurm" if wanted.batch else wanted.launcher_kind, places, will_run=not shown)
    environment = worker_environment(job.environment, job.threads_per_worker)
    here = found.kind != "slurm" and not places.hosts and not places.hostfile
    if not here:
        environment.pop("GLOO_SOCKET_IFNAME", None)  # that of this machine's own loopback
    program = [*seated("-"), sys.executable, "-c", _PROGRAM, json.dumps(told)]
    words = command(found, job.ranks, program, places, _settings(job, environment))
    if shown:
        print(batch_script(words) if wanted.batch else shlex.join(words))
        return 0
    check(wanted, found, told["data_dir"] if here else "")
    return run(words, environment)


def check(wanted: Wanted, found: Mpi, data_dir: str) -> None:
    """What can be seen from here before any rank starts. `data_dir`: if they run here too. Raises MpiError."""
    if found.kind == "mpich" and (problem := interface_problem(wanted.iface)):  # Hydra itself uses it here
        raise MpiError(f"--iface {wanted.iface}: {problem}")
    if data_dir and not Path(data_dir).is_dir():
        raise MpiError(f"--data-dir {data_dir} (or LOCKSTEP_DATA) is not a folder; without one the stand-in is used")
    if wanted.checkpoint and not Path(wanted.checkpoint).absolute().parent.is_dir():
        raise MpiError(f"--checkpoint {wanted.checkpoint}: its folder does not exist; make it first")
    if wanted.resume and not Path(wanted.checkpoint).is_file():
        raise MpiError(f"--resume: {wanted.checkpoint} does not exist; train without --resume first")


def find(kind: str, places: Places, will_run: bool) -> Mpi:
    """What starts the job: as asked, else srun within a Slurm job, else this environment's mpiexec. Raises MpiError."""
    if kind and kind not in KINDS:
        raise MpiError(f"--launcher-kind {kind} does not exist; there are: {', '.join(KINDS)}")
    in_slurm = "SLURM_JOB_ID" in os.environ and not places.hosts and not places.hostfile
    if kind == "slurm" or (not kind and in_slurm):
        if will_run and shutil.which("srun") is None:
            raise MpiError("srun is not on PATH; run this inside Slurm, or give --launcher-kind mpich")
        return Mpi("slurm", _NEWEST["slurm"], "srun")
    with contextlib.suppress(MpiError):
        found = find_mpiexec()
        if not kind or found.kind == kind:
            return found
    if will_run or not kind:
        here = find_mpiexec()  # raises where there is none
        raise MpiError(f"--launcher-kind {kind}, but {here.program} is of {here.kind}; install {kind} or leave it away")
    return Mpi(kind, _NEWEST[kind], "mpiexec")


def _settings(job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """What every host's ranks must have in their environment, the profile above all."""
    names = [*PROFILES[job.environment], *_FORWARDED]
    settings = {name: environment[name] for name in names}
    return settings | ({"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {})


def batch_script(words: list[str]) -> str:
    """For `sbatch`: Slurm's own options stand in comments, the rest is the command."""
    asked = [word for word in words if word.startswith(("--ntasks", "--nodelist"))]
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {word}" for word in asked), shlex.join(words)])


def run(words: list[str], environment: Mapping[str, str]) -> int:
    """Run the command under a guard, so that nothing stays however this ends; its exit code."""
    guard = Guard({"mpiexec": words}, environment, [], inherit=True)
    try:
        return guard.process.wait()
    finally:
        guard.stop()

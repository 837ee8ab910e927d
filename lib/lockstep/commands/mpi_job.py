"""Runs a training job under plain mpiexec or srun, on this machine or a cluster, or prints the command for it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lockstep.commands.mpi_options import MpiOptions
from lockstep.engine import registry
from lockstep.engine.job import Job
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.engine.launch.environment import PROFILES, interface_problem, worker_environment
from lockstep.engine.launch.mpi.commands import KINDS, Mpi, MpiError, Placement, command, find_mpiexec, private_network
from lockstep.engine.launch.rank_parent import NO_LAUNCHER, rank_parent_command
from lockstep.engine.launch.supervisor import Supervisor

_PROGRAM = "from lockstep.commands.mpi_rank import main; main()"
_NEWEST = {"mpich": (5,), "openmpi": (5,), "slurm": (23,)}
_FORWARDED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")


OF_PHOTOS = ("ComplexSmall", "SimpleBig")
OF_SMALL_IMAGES = ("Pneumonia", "FaceMask", "LeafDisease", "BreastCancer")
"""The names in `lockstep.engine.usecases`, which imports torch; only of small images there is a choice of network."""


@dataclass(frozen=True)
class Prepared:
    """A job that was checked: what starts it, in which environment, or what to print instead."""

    words: list[str]
    environment: Mapping[str, str]
    printed: str = ""  # nothing is started then


def job_of(options: MpiOptions, placement: Placement) -> Job:
    """The job that the options describe. Raises JobError, MpiError."""
    if options.use_case not in (*OF_PHOTOS, *OF_SMALL_IMAGES):
        there = ", ".join((*OF_PHOTOS, *OF_SMALL_IMAGES))
        raise MpiError(f"--use-case {options.use_case} does not exist; there are: {there}")
    if options.network != "default" and options.use_case in OF_PHOTOS:
        raise MpiError(
            f"--network {options.network} with --use-case {options.use_case}, whose network is given; there is a "
            f"choice for {', '.join(OF_SMALL_IMAGES)}"
        )
    if options.sync in STRATEGIES and STRATEGIES[options.sync].fields.get("host_workers") == "threads":
        raise MpiError(
            f"--sync {options.sync} has one process per host with threads in it, and lockstep mpi starts a process per "
            "rank; give --sync shared_memory, or measure that strategy in a notebook's grid"
        )
    return Job(
        strategy="own",
        launcher="mpiexec",
        use_case=options.use_case,
        network=options.network,
        sync=options.sync,
        hosts=len(placement.hosts) or 1,
        workers=options.workers,
        threads_per_worker=options.threads_per_worker,
        cores_per_worker=options.threads_per_worker,
        per_worker_batch_size=options.per_worker_batch_size,
        global_batch_size=options.per_worker_batch_size * max(options.workers, 1),
        precision=options.precision,
        steps=options.steps,
        **_usual_options(options.sync, options.workers),
    )


def _usual_options(sync: str, workers: int) -> Mapping[str, Any]:
    """What a sync usually takes. Raises MpiError for one that can't train so many workers under mpiexec."""
    launcher = registry.launchers()["mpiexec"]
    known = {
        name: found
        for name, found in registry.syncs_and_peers().items()
        if found.runs_on("mpiexec", launcher) and not (found.alone and workers > 1)
    }
    if sync not in known:
        raise MpiError(f"--sync {sync} can't train {workers} workers together under MPI; there are: {', '.join(known)}")
    return known[sync].usual


def prepared(options: MpiOptions) -> Prepared:
    """Checks everything that can be told before a rank starts, and composes the command. Raises JobError, MpiError."""
    placement = Placement.of(options.hosts, options.hostfile, options.iface)
    job = job_of(options, placement)
    if options.resume and not options.checkpoint:
        raise MpiError("--resume needs --checkpoint, the file of the run that shall go on")
    rank_options: dict[str, Any] = {
        "job": {field.name: value for field in fields(job) if (value := getattr(job, field.name)) != field.default},
        "data_dir": options.data_dir or os.environ.get("LOCKSTEP_DATA", ""),
        "images": options.images,
        "stall_seconds": options.stall_seconds,
        "checkpoint": str(Path(options.checkpoint).absolute()) if options.checkpoint else "",
        "resume": options.resume,
    }
    print_only = options.dry_run or options.batch
    found = find_mpi("slurm" if options.batch else options.launcher_kind, placement, will_run=not print_only)
    environment = worker_environment(job.environment, job.threads_per_worker)
    runs_here = found.kind != "slurm" and not placement.hosts and not placement.hostfile
    if not runs_here:
        environment.pop("GLOO_SOCKET_IFNAME", None)  # It names the loopback of this machine.
    program = [*rank_parent_command(NO_LAUNCHER), sys.executable, "-c", _PROGRAM, json.dumps(rank_options)]
    words = command(found, job.ranks, program, placement, settings_of_ranks(job.environment, environment))
    if print_only:
        text = batch_script(words, job.cores_per_worker) if options.batch else shlex.join(words)
        return Prepared(words, environment, text)
    check_this_machine(options, found, rank_options["data_dir"] if runs_here else "")
    if options.resume:
        _check_checkpoint(rank_options["checkpoint"], job)
    words = [*private_network(found), *words] if runs_here and not options.iface else words
    return Prepared(words, environment)


def start_or_print(ready: Prepared) -> int:
    """Prints the command or runs it; returns its exit code."""
    if ready.printed:
        print(ready.printed)
        return 0
    return supervise(ready.words, ready.environment)


def check_this_machine(options: MpiOptions, found: Mpi, data_dir: str) -> None:
    """Checks what it can before any rank starts. `data_dir`: empty unless the ranks run here. Raises MpiError."""
    if found.kind == "mpich" and (problem := interface_problem(options.iface)):  # Hydra itself uses it here
        raise MpiError(f"--iface {options.iface}: {problem}")
    if data_dir and not Path(data_dir).is_dir():
        raise MpiError(f"--data-dir {data_dir} (or LOCKSTEP_DATA) is not a folder; without one the stand-in is used")
    if options.checkpoint and not Path(options.checkpoint).absolute().parent.is_dir():
        raise MpiError(f"--checkpoint {options.checkpoint}: its folder does not exist; make it first")
    if options.resume and not Path(options.checkpoint).is_file():
        raise MpiError(f"--resume: {options.checkpoint} does not exist; train without --resume first")


def _check_checkpoint(path: str, job: Job) -> None:
    """Raises MpiError for a file that the job can't go on from, as far as that can be told without its images."""
    from lockstep.engine.training.checkpoint import CheckpointError, check_resumable  # torch, for this alone

    try:
        check_resumable(path, job)
    except CheckpointError as error:
        raise MpiError(str(error)) from error


def find_mpi(kind: str, placement: Placement, will_run: bool) -> Mpi:
    """What starts the job: `kind`, else srun within a Slurm job, else this environment's mpiexec. Raises MpiError."""
    if kind and kind not in KINDS:
        raise MpiError(f"--launcher-kind {kind} does not exist; there are: {', '.join(KINDS)}")
    in_slurm = "SLURM_JOB_ID" in os.environ and not placement.hosts and not placement.hostfile
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


def settings_of_ranks(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that the ranks of every host need, above all those of its profile."""
    names = [*PROFILES[profile], *_FORWARDED]
    settings = {name: environment[name] for name in names}
    return settings | ({"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {})


def batch_script(words: list[str], cores: int) -> str:
    """A script for `sbatch`: Slurm's own options are in comments, the rest is the command. `cores`: of each rank.

    How long it may take and in which partition only the reader knows: `sbatch --time 1:00:00 --partition …`.
    """
    own_options = [word for word in words if word.startswith(("--ntasks", "--nodelist"))]
    asked = [f"#SBATCH {word}" for word in (*own_options, f"--cpus-per-task={cores}")]
    return "\n".join(["#!/bin/bash", *asked, shlex.join(words)])


def supervise(words: list[str], environment: Mapping[str, str]) -> int:
    """Run the command under a supervisor, so that no process stays however this ends; returns its exit code."""
    supervisor = Supervisor({"mpiexec": words}, environment, [], inherit_output=True)
    try:
        return supervisor.process.wait()
    finally:
        supervisor.stop()

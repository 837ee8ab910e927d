"""Whom a fault can hit: each process of a run, told by its command."""

from __future__ import annotations

import contextlib

import psutil

from processes import command

MARK = "LOCKSTEP_SOAK"
"""The environment variable that marks all processes of a trial, also those that have lost their parents."""

_BY_COMMAND = (
    ("lockstep.commands.cli run", "runner"),
    ("ipykernel_launcher", "kernel"),
    ("engine/launch/supervisor.py", "supervisor"),
    ("ipyparallel.controller", "ipcontroller"),
    ("emulated_network.py", "network"),
    ("hydra_pmi_proxy", "proxy"),
    ("mpiexec", "mpiexec"),
    ("rank_parent.py", "rank's parent"),
    ("engine_process", "engine"),
    ("mpi.rank_process", "MPI rank"),
    ("spark.rank_process", "Spark rank"),
    ("launch.spark.driver", "Spark's driver program"),
    ("deploy.master.Master", "JVM: master"),
    ("deploy.worker.Worker", "JVM: worker"),
    ("CoarseGrainedExecutorBackend", "JVM: executor"),
    ("deploy.SparkSubmit", "JVM: driver"),
    ("pyspark", "Python worker"),
    ("lockstep.engine.launch.worker", "worker"),
    ("resource_tracker", "resource tracker"),
)
ENDS_THE_RUN = ("runner", "kernel")


def role_of(words: str, program: str = "") -> str:
    """What a process is in a run. The first entry that fits: what starts a program has its name among its words, too.

    A program that is none of Lockstep's, such as a shell on its way to one, goes by its own name.
    """
    if program in ("mpiexec", "hydra_pmi_proxy"):
        return {"mpiexec": "mpiexec", "hydra_pmi_proxy": "proxy"}[program]
    return next((role for part, role in _BY_COMMAND if part in words), program or "another")


def of_run(token: str) -> dict[int, psutil.Process]:
    """All living processes of the trial that `token` marks, by process id."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == token and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return found


def by_role(processes: dict[int, psutil.Process]) -> dict[str, list[psutil.Process]]:
    """The same, role by role, in the order of their names and process ids."""
    found: dict[str, list[psutil.Process]] = {}
    for pid in sorted(processes):
        words = command(processes[pid])
        if words:
            with contextlib.suppress(psutil.Error):
                found.setdefault(role_of(words, processes[pid].name()), []).append(processes[pid])
    return dict(sorted(found.items()))

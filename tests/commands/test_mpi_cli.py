"""`lockstep mpi`: the exact command for MPICH, Open MPI and Slurm, and what it refuses."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import tiny
from lockstep.commands import mpi_job
from lockstep.commands import mpi_rank as cluster
from lockstep.commands.application import app
from lockstep.engine.job import Job
from lockstep.engine.launch.mpi.commands import Mpi, MpiError
from lockstep.engine.training.loop import Site, run_job
from steps import on_ranks

HOSTS = ("--workers", "8", "--hosts", "a:4,b:4", "--iface", "eth1", "--sync", "allreduce", "--dry-run")


@pytest.fixture(autouse=True)
def mpich(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with MPICH, outside Slurm."""
    monkeypatch.setattr(mpi_job, "find_mpiexec", lambda: Mpi("mpich", (5, 0, 2), "mpiexec"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def said(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, ["mpi", *arguments])
    assert done.exit_code == 0, done.output
    return shlex.split(done.stdout)


def options(words: list[str]) -> str:
    """Without the environment that travels along, and without the program."""
    kept, index = [], 0
    while words[index] != sys.executable:
        skipped = {"-genv": 3, "-x": 2}.get(words[index], 0)
        kept += [words[index]] if not skipped else []
        index += skipped or 1
    return " ".join(kept)


def test_two_hosts_with_each_launcher() -> None:
    assert options(said(*HOSTS)) == "mpiexec -n 8 -bind-to none -hosts a:4,b:4 -iface eth1"
    openmpi = options(said(*HOSTS, "--launcher-kind", "openmpi")).replace(" --allow-run-as-root", "")
    assert openmpi == (
        "mpiexec -n 8 --bind-to none --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --host a:4,b:4 "
        "--mca btl_tcp_if_include eth1 --prtemca prte_if_include eth1"
    )
    slurm = options(said(*HOSTS, "--launcher-kind", "slurm")).partition(" --export")[0]
    assert slurm == (
        "srun --ntasks=8 --mpi=pmi2 --cpu-bind=none --kill-on-bad-exit=1 --nodelist=a,b --ntasks-per-node=4"
    )


def test_the_program_is_told_the_job() -> None:
    words = said(*HOSTS)
    told = json.loads(words[-1])
    assert words[-4:-2] == [sys.executable, "-c"]
    assert (told["job"]["workers"], told["job"]["hosts"], told["job"]["global_batch_size"]) == (8, 2, 256)
    assert (told["job"]["sync"], told["job"]["steps"]) == ("allreduce", 20)


def test_every_host_gets_the_environment_but_not_this_machines_loopback() -> None:
    words = said(*HOSTS)
    variables = {words[i + 1]: words[i + 2] for i, word in enumerate(words) if word == "-genv"}
    assert variables["OMP_NUM_THREADS"] == "1"
    assert variables["MALLOC_MMAP_MAX_"] == "0"
    assert variables["GLOO_SOCKET_IFNAME"] == "eth1"
    assert "GLOO_SOCKET_IFNAME" not in " ".join(said("--workers", "8", "--hosts", "a:4,b:4", "--dry-run"))


def test_slurm_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert said("--workers", "4", "--dry-run")[0] == "srun"
    assert said(*HOSTS)[0] == "mpiexec", "hosts that are named are not Slurm's"


def test_a_script_for_sbatch() -> None:
    done = CliRunner().invoke(app, ["mpi", "--workers", "4", "--threads-per-worker", "2", "--batch"])
    *first, command = done.stdout.splitlines()
    assert first == ["#!/bin/bash", "#SBATCH --ntasks=4", "#SBATCH --cpus-per-task=2"]
    assert shlex.split(command)[:2] == ["srun", "--ntasks=4"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2", "--sync", "telepathy"], "--sync telepathy"),
        (["--workers", "2", "--sync", "local"], "can't train 2 workers together"),
        (["--workers", "0"], "workers=0 is not possible"),
        (["--workers", "2", "--use-case", "Huge"], "--use-case Huge does not exist"),
        (["--workers", "3", "--hosts", "a:4"], "--hosts has 4 ranks, --workers 3"),
        (["--workers", "2", "--launcher-kind", "pvm"], "--launcher-kind pvm does not exist"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["mpi", *arguments, "--dry-run"])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--iface", "eth77"], "network interface 'eth77' does not exist on"),
        (["--data-dir", "nowhere"], "--data-dir nowhere (or LOCKSTEP_DATA) is not a folder"),
        (["--checkpoint", "nowhere/file"], "--checkpoint nowhere/file: its folder does not exist"),
        (["--resume"], "--resume needs --checkpoint"),
        (["--checkpoint", "nothing-there", "--resume"], "nothing-there does not exist; train without --resume first"),
    ],
)
def test_what_is_refused_before_a_rank_starts(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_job, "supervise", lambda words, environment: pytest.fail(f"started {words}"))
    done = CliRunner().invoke(app, ["mpi", "--workers", "2", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_file_that_is_no_checkpoint_is_refused_before_a_rank_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of another run, as far as that can be told without the images."""
    monkeypatch.setattr(mpi_job, "supervise", lambda words, environment: pytest.fail(f"started {words}"))
    path = tmp_path / "c.pt"
    given = ["mpi", "--workers", "3", "--sync", "shared_memory", "--checkpoint", str(path), "--resume"]
    path.write_bytes(b"lockstep checkpoint, format 2\nof which the rest is missing")
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2 and "its content does not match its checksum" in " ".join(done.output.split())
    small = Job(
        use_case="SimpleBig", sync="shared_memory", workers=2, global_batch_size=96, images=37, steps=1, warmup_steps=0
    )
    site = Site(use_case=tiny.case(), checkpoint=str(path))
    on_ranks(2, lambda group: run_job(small, group, site))
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2 and "resume it with workers=2 per node, not 3" in " ".join(done.output.split())


def test_hosts_and_what_they_have_are_not_looked_for_here() -> None:
    """Only what runs here can be told from here: the folder may be on the hosts alone."""
    told = json.loads(said(*HOSTS, "--data-dir", "/on/the/hosts", "--checkpoint", "/shared/file", "--resume")[-1])
    assert (told["data_dir"], told["checkpoint"], told["resume"]) == ("/on/the/hosts", "/shared/file", True)


def test_a_rank_refuses_an_interface_that_its_host_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: UCX and gloo quietly take another one."""

    def left(code: int) -> None:
        raise SystemExit(code)

    words = said(*HOSTS)
    monkeypatch.setattr(sys, "argv", ["-c", words[-1]])
    monkeypatch.setattr(os, "_exit", left)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth77")
    with pytest.raises(SystemExit, match="3"):
        cluster.main()
    assert "network interface 'eth77' does not exist on" in capsys.readouterr().err


def test_a_launcher_that_is_not_here_is_refused_before_anything_runs() -> None:
    done = CliRunner().invoke(app, ["mpi", "--workers", "2", "--launcher-kind", "openmpi"])
    assert done.exit_code == 2
    assert "mpiexec is of mpich" in done.output


def test_no_mpiexec_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Mpi:
        raise MpiError("no mpiexec in this environment")

    monkeypatch.setattr(mpi_job, "find_mpiexec", none)
    done = CliRunner().invoke(app, ["mpi", "--workers", "2", "--dry-run"])
    assert done.exit_code == 2
    assert "no mpiexec in this environment" in done.output


def test_what_a_rank_says_is_handed_on_before_the_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """mpiexec dropped the line that named a stopped rank, as its proxies were ended before they had handed it on."""
    called: list[str] = []
    monkeypatch.setattr(cluster.time, "sleep", lambda seconds: called.append(f"wait {seconds}"))
    world = SimpleNamespace(Abort=lambda code: called.append("end"))
    monkeypatch.setattr(cluster, "MPI", SimpleNamespace(COMM_WORLD=world))
    cluster._end_job()
    assert called == [f"wait {cluster._FORWARD_SECONDS}", "end"]

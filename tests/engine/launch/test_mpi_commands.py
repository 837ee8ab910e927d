"""The exact commands that start MPI jobs: MPICH, Open MPI 4 and 5, Slurm; root and not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lockstep.engine.launch.mpi.commands import (
    Mpi,
    MpiError,
    Placement,
    command,
    find_mpiexec,
    local_environment,
    private_network,
    recognise,
)

MPICH = Mpi("mpich", (5, 0, 2), "mpiexec")
OPEN_4 = Mpi("openmpi", (4, 1, 4), "mpiexec")
OPEN_5 = Mpi("openmpi", (5, 0, 11), "mpiexec")
SLURM = Mpi("slurm", (23, 11, 4), "srun")
PLACES = Placement.of("a:4,b:4", iface="eth1")


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)


def words(*arguments: object, **options: object) -> str:
    return " ".join(command(*arguments, **options))  # type: ignore[arg-type]


def test_on_this_machine() -> None:
    assert words(MPICH, 2, ["rank"]) == "mpiexec -n 2 -bind-to none rank"
    yields = "--mca mpi_yield_when_idle 1"
    assert words(OPEN_4, 2, ["rank"]) == f"mpiexec -n 2 --bind-to none --oversubscribe {yields} rank"
    assert words(OPEN_5, 2, ["rank"]) == f"mpiexec -n 2 --bind-to none --map-by :OVERSUBSCRIBE {yields} rank"
    slurm = "--mpi=pmi2 --cpu-bind=none --kill-on-bad-exit=1"
    assert words(SLURM, 2, ["rank"]) == f"srun --ntasks=2 {slurm} --export=ALL rank"


def test_on_two_hosts_over_one_interface() -> None:
    assert words(MPICH, 8, ["rank"], PLACES, {"OMP_NUM_THREADS": "1"}) == (
        "mpiexec -n 8 -bind-to none -hosts a:4,b:4 -iface eth1 -genv OMP_NUM_THREADS 1 "
        "-genv GLOO_SOCKET_IFNAME eth1 -genv UCX_NET_DEVICES eth1 rank"
    )
    assert words(OPEN_4, 8, ["rank"], PLACES, {"OMP_NUM_THREADS": "1"}) == (
        "mpiexec -n 8 --bind-to none --oversubscribe --mca mpi_yield_when_idle 1 --host a:4,b:4 "
        "--mca btl_tcp_if_include eth1 --mca oob_tcp_if_include eth1 "
        "-x OMP_NUM_THREADS=1 -x GLOO_SOCKET_IFNAME=eth1 rank"
    )
    assert words(OPEN_5, 8, ["rank"], PLACES) == (
        "mpiexec -n 8 --bind-to none --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --host a:4,b:4 "
        "--mca btl_tcp_if_include eth1 --prtemca prte_if_include eth1 -x GLOO_SOCKET_IFNAME=eth1 rank"
    )
    assert words(SLURM, 8, ["rank"], PLACES, {"OMP_NUM_THREADS": "1"}) == (
        "srun --ntasks=8 --mpi=pmi2 --cpu-bind=none --kill-on-bad-exit=1 --nodelist=a,b --ntasks-per-node=4 "
        "--export=ALL,OMP_NUM_THREADS=1,GLOO_SOCKET_IFNAME=eth1,UCX_NET_DEVICES=eth1 rank"
    )


def test_a_hostfile() -> None:
    there = Placement.of(hostfile="hosts.txt")
    assert "-f hosts.txt" in words(MPICH, 8, ["rank"], there)
    assert "--hostfile hosts.txt" in words(OPEN_5, 8, ["rank"], there)
    with pytest.raises(MpiError, match="srun takes its hosts from Slurm"):
        command(SLURM, 8, ["rank"], there)


def test_root_is_allowed_where_open_mpi_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "root" not in words(OPEN_5, 2, ["rank"])
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert "--allow-run-as-root" in words(OPEN_4, 2, ["rank"])
    assert "--allow-run-as-root" in words(OPEN_5, 2, ["rank"])
    assert "root" not in words(MPICH, 2, ["rank"]) + words(SLURM, 2, ["rank"])


@pytest.mark.parametrize("hosts", ["a:4,b", "a:4"])
def test_hosts_must_have_as_many_ranks_as_there_are_workers(hosts: str) -> None:
    with pytest.raises(MpiError, match="ranks, --workers 8"):
        command(MPICH, 8, ["rank"], Placement.of(hosts))


@pytest.mark.parametrize("hosts", ["a:0", "a:four", ":4", "a;rm:4"])
def test_hosts_that_cannot_be_read(hosts: str) -> None:
    with pytest.raises(MpiError, match="is not NAME:RANKS"):
        Placement.of(hosts)


def test_places_said_twice_or_unequally() -> None:
    with pytest.raises(MpiError, match="the same thing twice"):
        Placement.of("a:4", "hosts.txt")
    with pytest.raises(MpiError, match="equally many ranks"):
        command(SLURM, 6, ["rank"], Placement.of("a:4,b:2"))


@pytest.mark.parametrize(
    ("said", "kind", "version"),
    [
        ("HYDRA build details:\n    Version:                                 5.0.2\n", "mpich", (5, 0, 2)),
        ("mpiexec (Open MPI) 5.0.11\n\nReport bugs to", "openmpi", (5, 0, 11)),
        ("mpirun (Open MPI) 4.1.4\n", "openmpi", (4, 1, 4)),
        ("slurm 23.11.4\n", "slurm", (23, 11, 4)),
        ("slurm-wlm 22.05.8\n", "slurm", (22, 5, 8)),
    ],
)
def test_every_mpiexec_is_recognised_by_what_it_says(said: str, kind: str, version: tuple[int, ...]) -> None:
    assert recognise("x", said) == Mpi(kind, version, "x")


def test_the_environments_own_mpiexec_is_taken() -> None:
    found = find_mpiexec()
    assert found.kind in ("mpich", "openmpi")
    assert os.access(found.program, os.X_OK)


def test_open_mpi_keeps_its_files_in_our_folder() -> None:
    assert set(local_environment(OPEN_5, "there").values()) >= {"there"}
    assert local_environment(MPICH, "there") == {"UCX_NET_DEVICES": "lo"}


def test_a_network_that_could_not_be_made_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen in a full run: one start that failed, and Hydra listened on all interfaces as long as the process lived."""
    tried: list[str] = []

    def run(words: list[str], *, check: bool, **_: object) -> None:
        tried.append(program := words[-4])
        if check and (program.endswith("never") or tried.count(program) == 1):
            raise subprocess.CalledProcessError(1, words)

    monkeypatch.setattr(subprocess, "run", run)
    busy, never = (Mpi("mpich", (5, 0, 2), str(tmp_path / name)) for name in ("busy", "never"))  # of this test alone
    assert private_network(busy)[0] == "unshare" and len(tried) == 2
    assert private_network(never) == () and len(tried) == 4
    assert private_network(busy) and not private_network(never) and len(tried) == 4, "both answers are remembered"

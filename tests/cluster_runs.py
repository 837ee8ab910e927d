"""`lockstep mpi` on a network so small that its ranks spend their time on what is being tested."""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

import tiny
from lockstep.commands.mpi_options import MpiOptions
from lockstep.engine import usecases

PROGRAM = "from cluster_runs import main; main()"
START_SECONDS, END_SECONDS = 120.0, 60.0


def small(dropout: nn.Module) -> nn.Module:
    """507 parameters on photos of any size; dropout, so that the order of samples matters."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(8), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), dropout, nn.Linear(144, 3)
    )


def small_case(dropout: nn.Module | None = None) -> usecases.UseCase:
    """SimpleBig with that network."""
    optimiser = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, fused=True)
    model = functools.partial(small, dropout or nn.Dropout(0.3))
    return usecases.UseCase("SimpleBig", model, optimiser, dataset="fire-smoke", images=60, classes=3)


def main() -> None:
    """A rank. `TEST_TWO_HOSTS`: ranks with an odd number believe that they are on another host. `TEST_DRAWS`: dropout
    that can't be keyed by sample."""
    if os.environ.get("TEST_TWO_HOSTS"):
        os.environ["LOCKSTEP_HOST"] = f"host{int(os.environ['PMI_RANK']) % 2}"
    dropout = tiny.Dropping() if os.environ.get("TEST_DRAWS") else nn.Dropout(0.3)
    usecases.USE_CASES["SimpleBig"] = small_case(dropout)
    from lockstep.commands import mpi_rank as cluster

    cluster.main()


class Run:
    """A `lockstep mpi` in a process of its own, forked from one that has loaded torch already."""

    def __init__(self, workers: int = 2, **options: Any) -> None:
        self.folder = tempfile.mkdtemp(prefix="cluster-run-")
        values: dict[str, Any] = {"steps": 100_000, "images": 60, "per_worker_batch_size": 1}
        context = multiprocessing.get_context("forkserver")
        # Not this module: Python 3.11's server does not look where pytest does, and skips what it does not find.
        context.set_forkserver_preload(["torch", "lockstep.engine.training.loop", "lockstep.commands.mpi_job"])
        wanted = MpiOptions(workers=workers, **(values | options))
        told = {name: os.environ.get(name, "") for name in ("TEST_TWO_HOSTS", "TEST_DRAWS")}
        self.process = context.Process(target=_act, args=(wanted, self.folder, told))
        self.process.start()

    def said(self, stream: str = "stderr") -> str:
        path = Path(self.folder, stream)
        return path.read_text() if path.exists() else ""

    def ranks(self, count: int = 2) -> list[psutil.Process]:
        """Their processes, by rank, as soon as there are `count`."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.is_alive():
            found = [each for each in self.below() if _is_rank(each)]
            if len(found) == count:
                return sorted(found, key=lambda each: int(each.environ()["PMI_RANK"]))
            time.sleep(0.02)
        raise AssertionError(f"no ranks came: {self.said()}")

    def training(self, count: int = 2) -> list[psutil.Process]:
        """The ranks, once they train: rank 0 has told where they are."""
        found = self.ranks(count)
        end = time.monotonic() + START_SECONDS
        while "rank 0: node" not in self.said("stdout"):
            assert time.monotonic() < end and self.process.is_alive(), self.said()
            time.sleep(0.02)
        time.sleep(0.5)
        return found

    def below(self) -> list[psutil.Process]:
        assert self.process.pid is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, seconds: float = END_SECONDS) -> tuple[int | None, str]:
        """Exit code and stderr."""
        self.process.join(seconds)
        return self.process.exitcode, self.said()


def _act(wanted: MpiOptions, folder: str, told: dict[str, str]) -> None:
    """In the forked process: as the command does, with the small network."""
    from lockstep.commands import mpi_job

    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    own = os.path.dirname(__file__)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))
    os.environ.update(told)
    os.environ.pop("LOCKSTEP_DATA", None)  # these tests are about made images, wherever they run
    mpi_job._PROGRAM = PROGRAM
    code = 1
    try:
        code = mpi_job.start_or_print(mpi_job.prepared(wanted))
    except ValueError as error:
        os.write(2, f"{error}\n".encode())
    except KeyboardInterrupt:
        code = 130
    os._exit(code)


def _is_rank(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[1:3] == ["-c", PROGRAM]
    except psutil.Error:
        return False

"""`lockstep mpi`, where no launcher watches: a rank that is stopped, killed or fails ends the job; nothing stays."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster_runs import END_SECONDS, START_SECONDS, Run

pytestmark = pytest.mark.linux


@pytest.fixture
def start() -> Iterator[Callable[..., Run]]:
    """`start(workers, **options)`; afterwards nothing of it may be there."""
    runs: list[Run] = []

    def started(*arguments: Any, **options: Any) -> Run:
        runs.append(Run(*arguments, **options))
        return runs[-1]

    yield started
    for run in runs:
        left = run.below() if run.process.is_alive() else []
        run.process.kill()
        run.process.join()
        shutil.rmtree(run.folder)
        assert psutil.wait_procs(left, END_SECONDS)[1] == []


def test_a_stopped_rank_is_named_by_another(start: Callable[..., Run]) -> None:
    run = start()
    ranks = run.training()
    os.kill(ranks[1].pid, signal.SIGSTOP)
    code, said = run.end()
    assert code not in (0, None)
    assert "rank 1 was stopped (SIGSTOP)" in said and "phase" in said
    assert psutil.wait_procs(ranks, END_SECONDS)[1] == []


def test_a_rank_that_is_stopped_while_it_starts_is_ended_by_its_parent(start: Callable[..., Run]) -> None:
    """Until its failure detector ran, or alone on its host, nobody looked after a rank, and the job hung for ever."""
    run = start(1)
    ranks = run.ranks(1)
    os.kill(ranks[0].pid, signal.SIGSTOP)
    code, said = run.end(2 * END_SECONDS)
    assert code not in (0, None)
    assert "rank 0 was stopped (SIGSTOP)" in said
    assert psutil.wait_procs(ranks, END_SECONDS)[1] == []


def test_a_killed_rank_ends_the_job(start: Callable[..., Run]) -> None:
    run = start()
    ranks = run.training()
    ranks[1].kill()
    code, said = run.end()
    assert code not in (0, None)
    assert "lockstep: rank 1 was killed by SIGKILL" in said
    assert psutil.wait_procs(ranks, END_SECONDS)[1] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_of_a_command_that_is_stopped(start: Callable[..., Run], number: signal.Signals) -> None:
    run = start()
    ranks = run.training()
    below = run.below()
    assert set(ranks) < set(below)
    assert run.process.pid is not None
    os.kill(run.process.pid, number)
    code, _ = run.end()
    assert code not in (0, None)
    assert psutil.wait_procs(below, END_SECONDS)[1] == []


def test_what_a_rank_raises_is_shown_with_rank_and_phase(start: Callable[..., Run], tmp_path: Path) -> None:
    run = start(data_dir=str(tmp_path))  # an empty folder
    code, said = run.end(START_SECONDS)
    assert code == 1
    assert "rank 0 raised DataError" in said and "phase start" in said
    assert str(tmp_path) in said and "Traceback" in said

"""A worker or a server that fails in the middle of any sync: all end in time, and the first cause is told."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest

import tiny
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed
from lockstep.engine.training.loop import Site

pytestmark = pytest.mark.usefixtures("no_leftovers")
END_SECONDS = 10.0
SERVED: dict[str, Any] = {"sync": "parameter_server", "policy": "wait_for_all"}
REASONS = {
    "raise": "raised RuntimeError: a tyre burst",
    "kill": "was killed by SIGKILL",
    "stop": "was stopped (SIGSTOP)",
}

CASES = [
    ("allreduce, overlapped", {"sync": "allreduce", "bucket": "layer", "overlap": True, "workers": 2}),
    ("topk", {"sync": "allreduce", "compression": "topk", "density": 0.1, "workers": 2}),
    ("local_sgd", {"sync": "local_sgd", "exchange_every": 2, "workers": 2}),
    ("gossip", {"sync": "gossip", "workers": 2}),
    ("shards", SERVED | {"shards": 2, "workers": 2}),
    ("worker of a server", SERVED | {"servers": 1, "workers": 2}),
    ("algorithm 1", SERVED | {"servers": 1, "opt_weight": "mean", "exchange_every": 2, "workers": 2}),
]


def failure(launcher: str, phase: str, how: str, **fields: Any) -> WorkerFailed:
    """What a run with a fault in rank 1 ends with, which must come in time."""
    values = {"global_batch_size": 8, "steps": 6, "warmup_steps": 0} | fields
    job = Job(use_case="own", strategy="own", launcher=launcher, **values)
    with warnings.catch_warnings(action="ignore"):  # more ranks than cores
        ready = LAUNCHERS[launcher](job.ranks)
    with ready as team:
        team.start()
        began = time.monotonic()
        with pytest.raises(WorkerFailed) as caught:
            team.run(job, Site(use_case=tiny.faulty_in(phase, how)))
        assert time.monotonic() - began < END_SECONDS
        assert team.pids == []
    assert REASONS[how] in str(caught.value)
    assert caught.value.rank == 1
    return caught.value


@pytest.mark.parametrize("fields", [fields for _, fields in CASES], ids=[name for name, _ in CASES])
def test_a_worker_that_is_killed(fields: dict[str, Any]) -> None:
    assert "phase compute" in failure("processes", "compute", "kill", **fields).where


@pytest.mark.parametrize("name", ["allreduce, overlapped", "worker of a server"])
def test_a_worker_that_is_stopped(name: str) -> None:
    assert "phase compute" in failure("processes", "compute", "stop", **dict(CASES)[name]).where


@pytest.mark.parametrize("fields", [fields for _, fields in CASES], ids=[name for name, _ in CASES])
def test_a_worker_that_is_a_thread(fields: dict[str, Any]) -> None:
    assert "misbehave" in failure("threads", "compute", "raise", **fields).traceback


@pytest.mark.parametrize("how", ["raise", "kill", "stop"])
def test_a_server_that_fails_in_its_update(how: str) -> None:
    """One worker, so that the server is rank 1; the worker waits for parameters meanwhile."""
    assert "phase update" in failure("processes", "update", how, workers=1, servers=1, **SERVED).where


def test_a_worker_that_fails_while_it_updates_its_shard() -> None:
    assert "phase update" in failure("processes", "update", "kill", workers=2, shards=2, **SERVED).where

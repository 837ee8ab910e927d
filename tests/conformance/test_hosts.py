"""Syncs on several nodes, emulated on one machine: the same parameters, and few bytes between hosts."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from hosts import run_on_hosts
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, run_job
from steps import on_ranks

# Sums of up to 5 addends in another order; a dropped or doubled sample gives 1e-3.
TOLERANCE = 3e-7
PARAMETERS = sum(parameter.numel() for parameter in tiny.net().parameters())
SIZES = [(2, 2), (1, 1), (3, 1), (2, 2, 1)]  # ranks of each host: with unequal hosts some ranks hold no slice


def job(workers: int = 1, **changes: Any) -> Job:
    values = {"global_batch_size": 8, "steps": 12, "warmup_steps": 0, "strategy": "own", "sync": "shared_memory"}
    return Job(use_case="own", workers=workers, **(values | changes))


def train(this: Job, sizes: tuple[int, ...], path: Path, **site: Any) -> tuple[Tensor, float]:
    """Parameters, and bytes between hosts."""
    where = Site(use_case=tiny.case(), checkpoint=str(path), **site)
    traces = on_ranks(this.workers, lambda group: run_on_hosts(this, group, where, sizes))
    return checkpoint.read(str(path))["parameters"], sum(trace.scores["between_bytes"] for trace in traces)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Tensor:
    path = str(tmp_path_factory.mktemp("alone") / "c")
    run_job(job(sync="local"), ThreadGroup.of(1)[0], Site(use_case=tiny.case(), checkpoint=path))
    return checkpoint.read(path)["parameters"]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_shared_memory_on_several_nodes_is_exact(sizes: tuple[int, ...], expected: Tensor, tmp_path: Path) -> None:
    got, _ = train(job(sum(sizes)), sizes, tmp_path / "c")
    assert (got - expected).abs().max() < TOLERANCE


def test_shared_memory_on_several_nodes_of_processes(expected: Tensor, tmp_path: Path) -> None:
    where = Site(use_case=tiny.case(), checkpoint=str(tmp_path / "c"))
    with warnings.catch_warnings(action="ignore"):  # more workers than cores
        ready = LAUNCHERS["processes"](4)
    with ready as team:
        team.run(job(4), where, functools.partial(run_on_hosts, sizes=(2, 2)))
    assert (checkpoint.read(str(tmp_path / "c"))["parameters"] - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1)], ids=str)
def test_resume_on_several_nodes(sizes: tuple[int, ...], tmp_path: Path) -> None:
    unbroken, _ = train(job(4), sizes, tmp_path / "unbroken")
    train(job(4, steps=7), sizes, tmp_path / "broken")
    resumed, _ = train(job(4), sizes, tmp_path / "broken", resume=True)
    assert torch.equal(resumed, unbroken)


def test_the_optimisers_state_stands_once_per_node(tmp_path: Path) -> None:
    train(job(4), (2, 2), tmp_path / "c")
    states = checkpoint.read(str(tmp_path / "c"))["sync"]["optimiser"]
    assert len(states) == 2
    assert sum(state["state"][0]["momentum_buffer"].numel() for state in states) == PARAMETERS


def test_another_number_of_slices_is_refused(tmp_path: Path) -> None:
    train(job(4), (2, 2), tmp_path / "c")
    with pytest.raises(
        checkpoint.CheckpointError, match="in 2 slices, one per worker per node; resume it with workers=2 per node"
    ):
        train(job(4), (1, 1, 1, 1), tmp_path / "c", resume=True)


def bytes_of_a_step(this: Job, sizes: tuple[int, ...], folder: Path) -> float:
    """Between hosts: what two more steps add."""
    few, many = (train(this.with_(steps=steps), sizes, folder / str(steps))[1] for steps in (3, 5))
    return (many - few) / 2


def test_node_aware_sends_at_most_055_of_an_all_reduce_that_knows_no_hosts(tmp_path: Path) -> None:
    """2 hosts x 2 ranks. A gradient each way is the least that two hosts need for a common sum.

    The other side is `Group`'s own all-reduce, by messages to rank 0 and back. This says nothing about MPI's, which may
    pair the ranks of a host first: those bytes are counted on links, in notebook 05's records.
    """
    (tmp_path / "aware").mkdir()
    (tmp_path / "flat").mkdir()
    aware = bytes_of_a_step(job(4), (2, 2), tmp_path / "aware")
    flat = bytes_of_a_step(job(4, sync="allreduce"), (2, 2), tmp_path / "flat")
    assert aware == 2 * 4 * PARAMETERS
    assert aware / flat <= 0.55

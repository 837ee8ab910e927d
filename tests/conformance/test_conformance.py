"""The suite that every sync x launcher x replica must pass: the same parameters as one worker, whatever the shape."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from declared_variants import different, equal_to_one_worker, plain
from lockstep.engine import registry
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.peers import PEERS
from lockstep.engine.replica import TorchReplica
from lockstep.engine.training import checkpoint
from together import TOLERANCE, Teams, alone, held_bytes, small_job

LOCAL = ("threads", "processes")
SYNCS_AND_PEERS = registry.syncs_and_peers()
LAUNCHED = tuple(name for name in LAUNCHERS if not LAUNCHERS[name].owns_loop)  # their peers have tests/spark
VARIANTS = equal_to_one_worker()
OTHERS = different()
# The plain variant of each sync runs with every launcher.
DEFAULTS = {name: name for name in plain()}


def combinations(
    variants: dict[str, dict[str, Any]], whole: Collection[str], launchers: Collection[str] = LAUNCHED
) -> list[tuple[str, str]]:
    """Each of `launchers` with each sync's defaults, those of `whole` with all variants.

    `local` does not agree, so only one worker can use it; torch.distributed needs a process per rank; one-sided
    exchange is MPI's, so there its variants stand for the whole.
    """
    return [
        (launcher, name)
        for launcher in launchers
        for name, fields in variants.items()
        if (launcher in whole or name in DEFAULTS.values() or _one_sided(fields))
        and not (launcher == "threads" and SYNCS_AND_PEERS[fields["sync"]].needs_processes)
        and not (launcher in (*LOCAL, "spark") and _one_sided(fields))
    ]


def _one_sided(fields: dict[str, Any]) -> bool:
    return fields.get("transport") == "rma"


TWO = ("launcher", "variant")
# An engine is a rank like mpiexec's, only called another way: two of them, where that could matter, are enough.
OWN_RANKS = ("threads", "processes", "mpiexec")
EVERY = pytest.mark.parametrize(TWO, combinations(VARIANTS, ["threads"], OWN_RANKS))
WORKERS = {2: LAUNCHED, 3: OWN_RANKS}
EVERY_SIZE = pytest.mark.parametrize(
    ("workers", *TWO), [(count, *two) for count in WORKERS for two in combinations(VARIANTS, LOCAL, WORKERS[count])]
)
# What a checkpoint holds is gathered through the group, and so depends on the launcher as every exchange does: all
# variants are resumed on threads and processes, and on each other launcher one whose state stands on several ranks.
ALSO_RESUMED = {"mpiexec": "parameter_server-shards", "engines": "shared_memory", "spark": "shared_memory"}
RESUMED = pytest.mark.parametrize(TWO, [*combinations(VARIANTS | OTHERS, LOCAL, LOCAL), *ALSO_RESUMED.items()])
CLEANED = pytest.mark.parametrize(
    TWO,
    [
        *combinations(VARIANTS, [], OWN_RANKS),
        *((name, "parameter_server-1-server") for name in LOCAL),
        *[("threads", "terngrad"), ("engines", "shared_memory"), ("processes", "allreduce-sockets")],
    ],
)


def job(launcher: str, variant: str, workers: int, **changes: object) -> Job:
    return small_job(**({"launcher": launcher, "workers": workers} | (VARIANTS | OTHERS)[variant] | changes))


@pytest.mark.slow
@EVERY_SIZE
def test_the_parameters_are_those_of_one_worker(
    teams: Teams, launcher: str, variant: str, workers: int, tmp_path: Path
) -> None:
    """Three epochs of 37 samples in batches of 8: every epoch ends with an uneven batch of 5, dropout is on."""
    case = tiny.case()
    expected = alone(case, tmp_path / "alone")
    got = teams.together(job(launcher, variant, workers), case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE
    start = tiny.net()
    assert expected.numel() == sum(p.numel() for p in start.parameters())


@EVERY
def test_a_last_batch_smaller_than_the_team(teams: Teams, launcher: str, variant: str, tmp_path: Path) -> None:
    """37 samples in batches of 9 leave 1 for three workers: two of them have an empty share."""
    case = tiny.case()
    this = job(launcher, variant, 3, global_batch_size=9, steps=6)
    if variant in PEERS:
        with pytest.raises(Exception, match="empty share"):
            teams.run(this, case)
        return
    expected = alone(case, tmp_path / "alone", global_batch_size=9, steps=6)
    assert (teams.together(this, case, tmp_path / "c") - expected).abs().max() < TOLERANCE


@EVERY
def test_layers_that_are_not_used_or_used_twice(teams: Teams, launcher: str, variant: str, tmp_path: Path) -> None:
    if variant in PEERS:
        pytest.skip("DDP refuses unused parameters unless told to look for them in every step")
    case = tiny.case(model=tiny.Spare)
    expected = alone(case, tmp_path / "alone")
    got = teams.together(job(launcher, variant, 2), case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE


@pytest.mark.slow
@RESUMED
def test_resume_reaches_the_unbroken_runs_parameters_exactly(
    teams: Teams, launcher: str, variant: str, tmp_path: Path
) -> None:
    """Broken after 7 of 12 steps, in the middle of an epoch and between two exchanges; momentum is state."""
    case = tiny.case()
    unbroken = teams.together(job(launcher, variant, 2), case, tmp_path / "unbroken")
    first = teams.together(job(launcher, variant, 2, steps=7), case, tmp_path / "broken")
    assert not torch.equal(first, unbroken)
    resumed = teams.together(job(launcher, variant, 2), case, tmp_path / "broken", resume=True)
    assert torch.equal(resumed, unbroken)


@pytest.mark.slow
@EVERY
def test_running_statistics_are_the_mean_over_workers(
    teams: Teams, launcher: str, variant: str, tmp_path: Path
) -> None:
    """What is written must not be one rank's own statistics; ranks saw different samples, so theirs differ."""
    case = tiny.case(model=tiny.normalised_net, test=tiny.arrays(13))  # 7 and 6: unequally many batches of 6
    path = tmp_path / "c"
    this = job(launcher, variant, 2).with_(per_worker_batch_size=6)
    traces = teams.run(this, case, path, evaluate=True)
    assert 0 <= traces[0].scores["test_accuracy"] <= 1
    assert traces[0].scores == traces[1].scores
    content = checkpoint.read(str(path))
    counted = content["others"]
    assert list(counted) == ["1.num_batches_tracked"] and int(counted["1.num_batches_tracked"]) >= this.steps
    largest = 1.02 * held_bytes(content) + 2**16
    assert path.stat().st_size <= largest, "seen: 4.2 MB for 453 parameters, the whole memory that workers share"
    assert teams.of(launcher, 2).call(_averaged) == [[1.0, 1.0], [1.0, 1.0]]


def test_large_running_statistics_beside_a_server(teams: Teams, tmp_path: Path) -> None:
    """Seen: workers made a torch group to sum them, which all ranks must join, and the server was serving."""
    model = functools.partial(_wide, 20_000)
    this = job("processes", "parameter_server-1-server", 2, steps=2)
    teams.run(this, tiny.case(model=model), tmp_path / "c")
    assert checkpoint.read(str(tmp_path / "c"))["buffers"].numel() == 40_000


def _wide(features: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(126, features), nn.BatchNorm1d(features), nn.Linear(features, 3))


def _averaged(group: Group) -> list[float]:
    replica = TorchReplica(nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.BatchNorm1d(1, affine=False)))
    replica.buffers.fill_(2.0 * group.rank)
    checkpoint.average_buffers(replica, group)
    return replica.buffers.tolist()


@EVERY
def test_every_rank_is_measured_in_every_step(teams: Teams, launcher: str, variant: str, tmp_path: Path) -> None:
    traces = teams.run(job(launcher, variant, 2, steps=3, warmup_steps=2), tiny.case())
    assert [trace.rank for trace in traces] == list(range(len(traces)))
    for trace in traces:
        assert len(trace.steps) == 3
        for times in trace.steps:
            parts = [times[f"{name}_seconds"] for name in ("input", "compute", "wait", "exchange", "update")]
            assert all(part >= 0 for part in parts)
            assert sum(parts) <= times["step_seconds"]


def test_an_epoch_wise_server_of_weights_is_local_sgd_with_a_server(teams: Teams, tmp_path: Path) -> None:
    """Algorithm 1 once per epoch: the mean that the server makes is the one that workers make among themselves."""
    case = tiny.case()
    served = teams.together(job("processes", "mean-weights-1-server-epoch", 2), case, tmp_path / "served")
    among = teams.together(
        job("processes", "local_sgd-epoch", 2, state_averaged=False), case, tmp_path / "among themselves"
    )
    every = teams.together(job("processes", "local_sgd", 2), case, tmp_path / "every step")
    assert (served - among).abs().max() < TOLERANCE
    assert (served - every).abs().max() > 10 * TOLERANCE, "else nothing would show how often they exchange"


def test_every_strategy_of_the_table_is_covered() -> None:
    """A new line in STRATEGIES can't slip past this suite."""
    for name, strategy in STRATEGIES.items():
        if "model_parallel" in strategy.fields:
            continue  # test_pipeline and test_split_head have these
        if strategy.fields["launcher"] == "spark_driver":
            continue  # tests/spark has these
        covered = (strategy.fields["launcher"], DEFAULTS.get(strategy.fields["sync"])) in combinations(VARIANTS, [])
        assert covered or not strategy.distributed, name


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_parameters_stand_once_per_node(teams: Teams, launcher: str) -> None:
    """Ranks of one node write to each other's parameters: the very same memory."""
    assert teams.of(launcher, 2).call(_write_and_read_shared) == [[10.0, 11.0], [10.0, 11.0]]


def _write_and_read_shared(group: object) -> list[float]:
    buffers = group.share(1000)  # type: ignore[attr-defined]
    assert all(float(b.abs().sum()) == 0.0 for b in buffers)
    group.barrier()  # type: ignore[attr-defined]
    buffers[group.rank][999] = 10 + group.rank  # type: ignore[attr-defined]
    group.barrier()  # type: ignore[attr-defined]
    return [float(b[999]) for b in buffers]


@pytest.mark.parametrize("variant", ["shared_memory", "parameter_server-1-server", "parameter_server-shards"])
@pytest.mark.parametrize("launcher", LOCAL)
def test_adam_too(teams: Teams, launcher: str, variant: str, tmp_path: Path) -> None:
    """Any optimiser that works element by element can be given a slice."""
    case = tiny.case(optimiser=functools.partial(torch.optim.Adam, lr=0.01))
    expected = alone(case, tmp_path / "alone")
    got = teams.together(job(launcher, variant, 2), case, tmp_path / "c")
    # Adam divides by the root of tiny squares: rounding of a gradient is amplified up to the step itself.
    assert (got - expected).abs().max() < 2e-5


@CLEANED
def test_a_run_gives_its_memory_back(teams: Teams, launcher: str, variant: str) -> None:
    """Seen: hooks kept every replica alive, and ten jobs later the machine was out of memory."""
    this = job(launcher, variant, 2, steps=2)
    for _ in range(2):
        teams.run(this, tiny.case())
    assert teams.of(launcher, this.ranks).call(_left_over) == [(0, 0, 0)] * this.ranks


def _left_over(group: object) -> tuple[int, int, int]:
    """Replicas of an earlier call in this process, its shared memory (the board is the one that stays), its threads."""
    del group
    gc.collect()
    replicas = sum(isinstance(thing, TorchReplica) for thing in gc.get_objects())
    maps = Path("/proc/self/maps").read_text().splitlines() if Path("/proc/self/maps").exists() else [":lockstep"]
    exchanging = sum(thread.name == "lockstep-exchange" for thread in threading.enumerate())
    return replicas, sum(":lockstep" in line for line in maps) - 1, exchanging

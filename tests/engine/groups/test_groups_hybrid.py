"""What ranks promise each other that are threads of one process per host, with MPI between the hosts."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from lockstep.engine.groups import ANY, Group, GroupAborted, GroupTimeout, allgather_object
from lockstep.engine.launch import LAUNCHERS, Team
from lockstep.engine.launch.mpi.mpiexec import Mpiexec

pytestmark = [pytest.mark.linux, pytest.mark.serial]
SOON = 20.0
ABORT_SECONDS = 2.0  # until the last of four ranks has heard; they share cores


@pytest.fixture(scope="module")
def four() -> Iterator[Team]:
    """Two processes of two threads each."""
    with warnings.catch_warnings(action="ignore"):  # more ranks than cores
        launcher = Mpiexec(4, hosts=2, host_workers="threads")
    with launcher as team:
        yield team


@pytest.fixture(scope="module")
def one_host() -> Iterator[Team]:
    with Mpiexec(2, host_workers="threads") as team:
        yield team


@pytest.fixture(scope="module")
def two_processes() -> Iterator[Team]:
    """Of one rank each; tests make threads and groups of their own in them, since an aborted group stays aborted."""
    with Mpiexec(2, hosts=2) as team:
        yield team


def places(group: Group) -> dict[str, Any]:
    buffers = group.node.share(1000)
    untouched = float(sum(buffer.abs().sum() for buffer in buffers))
    group.barrier()
    buffers[group.node.rank][999] = float(group.rank)
    group.barrier()
    column = group.split(group.rank % 2)
    total = torch.tensor([float(group.rank)])
    column.allreduce(total)
    row = group.split(group.rank // 2)
    parts = row.allgather(torch.tensor(group.rank))
    diagonal = group.split(group.rank in (0, 3))
    sum_of_diagonal = torch.tensor([float(group.rank)])
    diagonal.allreduce(sum_of_diagonal)
    return {
        "node": (group.node.rank, group.node.size),
        "leaders": (group.leaders.rank, group.leaders.size) if group.leaders else None,
        "seen": (untouched, [float(buffer[999]) for buffer in buffers]),
        "column": (column.rank, column.size, float(total)),
        "row": (row.rank, row.size, [int(part) for part in parts]),
        "diagonal": (diagonal.rank, float(sum_of_diagonal)),
    }


def test_nodes_leaders_common_memory_and_parts(four: Team) -> None:
    got = four.call(places)
    assert [one["node"] for one in got] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert [one["leaders"] for one in got] == [(0, 2), None, (1, 2), None]
    assert [one["seen"] for one in got] == [(0.0, [0.0, 1.0])] * 2 + [(0.0, [2.0, 3.0])] * 2
    assert [one["column"] for one in got] == [(0, 2, 2.0), (0, 2, 4.0), (1, 2, 2.0), (1, 2, 4.0)]
    assert [one["row"] for one in got] == [(0, 2, [0, 1]), (1, 2, [0, 1]), (0, 2, [2, 3]), (1, 2, [2, 3])]
    assert [one["diagonal"] for one in got] == [(0, 3.0), (0, 3.0), (1, 3.0), (1, 3.0)]


def sums(group: Group) -> dict[str, Any]:
    dice = torch.Generator().manual_seed(group.rank)
    own = torch.randn(300_001, generator=dice)
    strided = torch.randn(7, 3, generator=dice).t()
    parts = group.allgather(torch.cat([own, strided.flatten()]))
    group.allreduce(own)
    group.allreduce(strided)
    half = torch.ones(5, dtype=torch.bfloat16)
    group.allreduce(half)
    told = []
    for source in range(group.size):
        first = torch.full((2, 3), float(group.rank)).bfloat16().t()
        group.broadcast(first, source)
        told.append(set(first.flatten().tolist()))
    whole = torch.cat([own, strided.flatten()])
    error = (whole - torch.stack(parts).double().sum(0)).abs().max()
    bits = hashlib.sha256(whole.numpy().tobytes()).hexdigest()
    return {"error": float(error), "bits": bits, "half": half.tolist(), "told": told}


@pytest.mark.parametrize("name", ["four", "one_host"])
def test_sums_and_broadcasts(name: str, request: pytest.FixtureRequest) -> None:
    """300 001 values, which neither two threads nor MPI's chunks divide; tensors that are not contiguous."""
    team = request.getfixturevalue(name)
    got = team.call(sums)
    assert all(one["error"] < 2e-6 for one in got)
    assert len({one["bits"] for one in got}) == 1
    assert team.call(sums)[0]["bits"] == got[0]["bits"], "and in every run"
    assert all(one["half"] == [float(team.size)] * 5 for one in got)
    assert all(one["told"] == [{float(source)} for source in range(team.size)] for one in got)


def shapes(group: Group) -> bool:
    parts = [torch.arange(4), torch.tensor(2.5, dtype=torch.float64), torch.empty(0), torch.ones(2, 3, 1).int()]
    got = group.allgather(parts[group.rank])
    same = [torch.equal(a, b) and a.dtype == b.dtype and a.shape == b.shape for a, b in zip(got, parts, strict=True)]
    return all(same) and allgather_object(group, {"rank": group.rank}) == [{"rank": r} for r in range(4)]


def test_allgather_of_different_shapes_and_types(four: Team) -> None:
    assert four.call(shapes) == [True] * 4


def late_barrier(group: Group, last: int) -> tuple[float, float]:
    """When this rank came to the barrier, and when it left; the clock is the machine's."""
    if group.rank == last:
        time.sleep(0.3)
    came = time.monotonic()
    group.barrier()
    return came, time.monotonic()


@pytest.mark.parametrize("last", range(4))
def test_nobody_leaves_a_barrier_before_the_last_has_come(four: Team, last: int) -> None:
    times = four.call(late_barrier, last)
    assert min(left for _, left in times) >= max(came for came, _ in times) == times[last][0]


COUNT = 40


def exchange(group: Group) -> int:
    """Everybody sends to everybody at once, under two tags; how many messages were as expected."""
    sizes = [0, 3, 5_000, 300_000]
    right = 0
    for i in range(COUNT):
        for other in range(group.size):
            for tag in ("a", "b"):
                message = torch.full((sizes[i % 4] + ord(tag),), float(1000 * i + 10 * group.rank + other))
                group.send(message, other, tag)
                message.zero_()  # it may be changed once it was sent
    for i in range(COUNT):
        for other in reversed(range(group.size)):
            for tag in ("b", "a"):
                source, came = group.receive(other, tag, SOON)
                want = float(1000 * i + 10 * other + group.rank)
                right += (source, len(came), bool((came == want).all())) == (other, sizes[i % 4] + ord(tag), True)
    return right


@pytest.mark.parametrize("name", ["four", "one_host"])
def test_messages_between_any_two_ranks(name: str, request: pytest.FixtureRequest) -> None:
    team = request.getfixturevalue(name)
    assert team.call(exchange) == [COUNT * team.size * 2] * team.size


def from_anybody(group: Group) -> list[tuple[int, float]]:
    for other in range(group.size):
        group.send(torch.tensor(10.0 * group.rank + other), other, "to any")
    got = [group.receive(ANY, "to any", SOON) for _ in range(group.size)]
    return sorted((source, float(tensor)) for source, tensor in got)


@pytest.mark.parametrize("name", ["four", "one_host"])
def test_messages_from_anybody(name: str, request: pytest.FixtureRequest) -> None:
    team = request.getfixturevalue(name)
    for rank, got in enumerate(team.call(from_anybody)):
        assert got == [(source, 10.0 * source + rank) for source in range(team.size)]


def impatient(group: Group) -> list[str]:
    said = []
    for source in (*range(group.size), ANY):
        try:
            group.receive(source, "never", 0.12)
        except GroupTimeout as timeout:
            said.append(str(timeout))
    return said


def test_a_message_that_does_not_come(four: Team) -> None:
    ends = ["from any rank within 0.12 s"]
    for said in four.call(impatient):
        # Of another process MPI knows the process alone.
        assert len(said) == 5
        assert all("no message" in line and "within 0.12 s" in line for line in said)
        assert said[4].endswith(ends[0])
    assert four.call(impatient)[3][2].endswith("from rank 2 within 0.12 s")


def impossible(group: Group) -> list[str]:
    said = []
    for attempt in (group.torch_group, group.node.torch_group, group.split(group.node.rank).torch_group):
        try:
            attempt()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    try:
        group.share(3)
    except Exception as error:
        said.append(str(error))
    return said


def test_what_there_can_not_be(four: Team) -> None:
    for said in four.call(impossible):
        assert (
            said[:3]
            == [
                "GroupError: torch.distributed needs a process per rank; with host_workers='threads' use "
                "sync='shared_memory'"
            ]
            * 3
        )
        assert said[3] == "4 ranks on 2 nodes have no common memory; share within group.node"


def note(group: Group) -> None:
    group.at_step(group.rank + 5)
    group.enter(("input", "compute", "wait", "exchange")[group.rank])
    group.node.at_step(group.rank + 6)


def test_the_board_has_a_line_for_every_rank(four: Team) -> None:
    four.call(note)
    assert four.board is not None
    phases = ["input", "compute", "wait", "exchange"]
    assert [four.board.where(r) for r in range(4)] == [f"step {r + 6}, phase {phases[r]}" for r in range(4)]


def patience(group: Group) -> float:
    """Processor time of this process while the last rank lets the others wait."""
    group.barrier()
    before = time.process_time()
    if group.rank == 3:
        time.sleep(1.5)
    group.barrier()
    return time.process_time() - before


def test_waiting_threads_sleep(four: Team) -> None:
    assert max(four.call(patience)) < 0.5


# --- aborts, in groups of their own ---


def wait_in(group: Group, how: str, culprit: int) -> None:
    mate = group.rank ^ 1
    if how == "barrier":
        group.barrier()
    elif how == "lane":
        end = time.monotonic() + SOON
        while time.monotonic() < end:  # of the lane without the culprit, nobody is missing
            group.split_before.allreduce(torch.zeros(3))  # type: ignore[attr-defined]
            time.sleep(0.01)
    else:
        group.receive({"message": culprit, "mate": mate, "any": ANY}[how], "never")


def give_up(group: Any, how: str, culprit: int) -> tuple[str, float]:
    """What a waiting rank was told, at once and when it calls again; and when."""
    group.split_before = group.split(group.node.rank)
    if group.rank == culprit:
        time.sleep(0.15)
        group.abort(f"rank {culprit} has had enough")
        return "", time.monotonic()
    said = []
    for _ in range(2):
        try:
            wait_in(group, how, culprit)
        except GroupAborted as error:
            said.append(str(error))
    return " | ".join(said), time.monotonic()


def in_a_new_group(outer: Group, how: str, culprit: int) -> list[tuple[str, float]]:
    from lockstep.engine.groups.hybrid import HybridGroup
    from lockstep.engine.groups.mpi import MpiGroup

    groups = HybridGroup.of(MpiGroup.world(host=f"host{outer.rank}"), 2)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(give_up, groups, [how] * 2, [culprit] * 2))


@pytest.mark.parametrize("culprit", range(4))
@pytest.mark.parametrize("how", ["barrier", "message", "mate", "any", "lane"])
def test_an_abort_reaches_whoever_waits_for_whatever(two_processes: Team, how: str, culprit: int) -> None:
    """`mate`: each waits for its own process's other thread, and neither of them looks at MPI for it."""
    told = [one for of_process in two_processes.call(in_a_new_group, how, culprit) for one in of_process]
    reason = f"rank {culprit} has had enough"
    assert [said for said, _ in told] == ["" if rank == culprit else f"{reason} | {reason}" for rank in range(4)]
    assert max(at for _, at in told) - told[culprit][1] < ABORT_SECONDS


def crowded(outer: Group) -> str:
    from lockstep.engine.groups.hybrid import HybridGroup
    from lockstep.engine.groups.mpi import MpiGroup

    try:
        HybridGroup.of(MpiGroup.world(host="same"), 2)
    except Exception as error:
        return str(error)
    return ""


def test_two_processes_of_one_host_are_refused(two_processes: Team) -> None:
    assert two_processes.call(crowded) == ["2 processes on one host; host_workers='threads' has one on each"] * 2


@pytest.mark.parametrize(
    ("launcher", "options", "message"),
    [
        ("mpiexec", {"hosts": 2}, "3 ranks can't be split equally over 2 hosts"),
        ("engines", {}, "host_workers='threads' is not possible with Engines"),
    ],
)
@pytest.mark.filterwarnings("ignore:3 workers")
def test_launchers_that_can_not(launcher: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LAUNCHERS[launcher](3, host_workers="threads", **options)


def test_only_processes_and_threads() -> None:
    with pytest.raises(ValueError, match="host_workers='fibres' does not exist"):
        Mpiexec(2, host_workers="fibres")

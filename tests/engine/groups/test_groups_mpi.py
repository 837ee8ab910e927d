"""What the ranks of a real MPI job promise each other: the same as all groups, and nothing in /dev/shm."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.groups import ANY, Group, GroupAborted, GroupTimeout, allgather_object, wire
from lockstep.engine.launch import Team
from lockstep.engine.launch.mpi.mpiexec import Mpiexec

pytestmark = [pytest.mark.linux, pytest.mark.serial]
SOON = 20.0


@pytest.fixture(scope="module")
def four() -> Iterator[Team]:
    """Four ranks on two emulated hosts: more than most test machines have cores."""
    with warnings.catch_warnings(action="ignore"):
        launcher = Mpiexec(4, hosts=2)
    with launcher as team:
        yield team


def ring(group: Group) -> list[Any]:
    """Tensors of every kind to the next rank; a message may be changed after it was sent."""
    other, got = (group.rank + 1) % group.size, []
    for tensor in (
        *(torch.arange(6.0).view(2, 3).t(), torch.tensor(True), torch.zeros(0, 4)),
        *(torch.tensor(2.5).bfloat16(), torch.full((300_000,), 7, dtype=torch.int64)),
    ):
        sent = tensor.clone()
        group.send(sent, other, "any")
        sent.zero_()
        source, came = group.receive(ANY, "any", SOON)
        got.append((source, torch.equal(came, tensor), came.dtype == tensor.dtype, came.shape == tensor.shape))
    return got


def test_messages(four: Team) -> None:
    for rank, got in enumerate(four.call(ring)):
        assert got == [((rank - 1) % 4, True, True, True)] * 5


def told_apart(group: Group) -> list[float]:
    """To rank 0, whose two tags have the same number in MPI; and nothing else may come."""
    if group.rank:
        group.send(torch.tensor(float(group.rank)), 0, "first")
        group.send(torch.tensor(10.0 * group.rank), 0, "second")
        return []
    taken = [float(group.receive(rank, tag, SOON)[1]) for rank in (3, 1) for tag in ("second", "first")]
    taken += [float(group.receive(2, "second", SOON)[1]), float(group.receive(ANY, "first", SOON)[1])]
    try:
        group.receive(ANY, "first", 0.05)
    except GroupTimeout:
        return taken
    return []


def one_number(group: Group) -> list[float]:
    kept = wire.number_of
    wire.number_of = lambda tag: 1
    try:
        return told_apart(group)
    finally:
        wire.number_of = kept


@pytest.mark.parametrize("function", [told_apart, one_number])
def test_messages_are_told_apart_by_sender_and_tag(four: Team, function: Any) -> None:
    assert four.call(function)[0] == [30.0, 3.0, 10.0, 1.0, 20.0, 2.0]


def late(group: Group) -> float:
    """Rank 0 sends 40 MB, then never calls MPI again while rank 1 takes it."""
    if group.rank == 0:
        before = time.monotonic()
        group.send(torch.ones(10_000_000), 1, "large")
        sent = time.monotonic() - before
        time.sleep(2.4)
        return sent
    if group.rank == 1:
        time.sleep(1.2)
        return float(group.receive(0, "large", 1.0)[1].sum())
    return 0.0


def test_a_large_message_arrives_while_its_sender_is_busy(four: Team) -> None:
    sent, total, *_ = four.call(late)
    assert total == 1e7
    assert sent < 1.2, "it did not wait for the receiver"


def sums(group: Group) -> dict[str, Any]:
    dice = torch.Generator().manual_seed(group.rank)
    own = torch.randn(300_001, generator=dice)
    strided = torch.randn(7, 3, generator=dice).t()
    parts = group.allgather(torch.cat([own, strided.flatten()]))
    group.allreduce(own)
    group.allreduce(strided)
    half = torch.ones(5, dtype=torch.bfloat16)
    group.allreduce(half)
    whole = torch.cat([own, strided.flatten()])
    first = torch.full((3,), float(group.rank)).bfloat16()
    group.broadcast(first, 2)
    error = (whole - torch.stack(parts).double().sum(0)).abs().max()
    bits = hashlib.sha256(whole.numpy().tobytes()).hexdigest()
    return {"error": float(error), "bits": bits, "half": half.tolist(), "first": first.tolist()}


def test_sums_have_the_same_bits_everywhere(four: Team) -> None:
    """300 001 values: more than a chunk, and divisible by nothing."""
    got = four.call(sums)
    assert all(one["error"] < 2e-6 for one in got)
    assert len({one["bits"] for one in got}) == 1
    assert four.call(sums)[0]["bits"] == got[0]["bits"], "and in every run"
    assert all((one["half"], one["first"]) == ([4.0] * 5, [2.0] * 3) for one in got)


def shapes(group: Group) -> bool:
    parts = [torch.arange(4), torch.tensor(2.5, dtype=torch.float64), torch.empty(0), torch.ones(2, 3, 1).int()]
    got = group.allgather(parts[group.rank])
    same = [torch.equal(a, b) and a.dtype == b.dtype and a.shape == b.shape for a, b in zip(got, parts, strict=True)]
    return all(same) and allgather_object(group, {"rank": group.rank}) == [{"rank": r} for r in range(4)]


def test_allgather_of_different_shapes_and_types(four: Team) -> None:
    assert four.call(shapes) == [True] * 4


def nodes(group: Group) -> dict[str, Any]:
    buffers = group.node.share(1000)
    untouched = float(sum(buffer.abs().sum() for buffer in buffers))
    group.barrier()
    buffers[group.node.rank][999] = float(group.rank)
    group.barrier()
    parity = group.split(group.rank % 2)
    total = torch.tensor([float(group.rank)])
    parity.allreduce(total)
    return {
        "node": (group.node.rank, group.node.size),
        "leaders": (group.leaders.rank, group.leaders.size) if group.leaders else None,
        "seen": (untouched, [float(buffer[999]) for buffer in buffers]),
        "parity": (parity.rank, parity.size, float(total), parity.node.size),
        "leads": parity.leaders.size if parity.leaders else 0,
    }


def test_nodes_leaders_and_common_memory(four: Team) -> None:
    got = four.call(nodes)
    assert [one["node"] for one in got] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert [one["leaders"] for one in got] == [(0, 2), None, (1, 2), None]
    assert [one["seen"] for one in got] == [(0.0, [0.0, 1.0])] * 2 + [(0.0, [2.0, 3.0])] * 2
    # Ranks 0 and 2, and ranks 1 and 3, are each alone on their host.
    assert [one["parity"] for one in got] == [(0, 2, 2.0, 1), (0, 2, 4.0, 1), (1, 2, 2.0, 1), (1, 2, 4.0, 1)]
    assert [one["leads"] for one in got] == [2] * 4


def across(group: Group) -> str:
    try:
        group.share(3)
    except Exception as error:
        return str(error)
    return ""


def test_ranks_of_two_hosts_share_no_memory(four: Team) -> None:
    assert four.call(across) == ["4 ranks on 2 nodes have no common memory; share within group.node"] * 4


def gloo(group: Group) -> list[float]:
    total = torch.tensor([float(group.rank)])
    torch.distributed.all_reduce(total, group=group.torch_group())
    part = group.split(group.rank // 2)
    half = torch.tensor([float(group.rank)])
    torch.distributed.all_reduce(half, group=part.torch_group())
    return [float(total), float(half)]


def test_a_torch_group_of_the_same_ranks(four: Team) -> None:
    assert four.call(gloo) == [[6.0, 1.0], [6.0, 1.0], [6.0, 5.0], [6.0, 5.0]]


def patience(group: Group) -> float:
    """Processor time of three ranks that wait for the fourth."""
    group.barrier()
    before = time.process_time()
    if group.rank == 0:
        time.sleep(1.5)
    group.barrier()
    return time.process_time() - before


def test_waiting_ranks_sleep(four: Team) -> None:
    """A blocking MPI call would take 1.5 s of it."""
    assert max(four.call(patience)) < 0.5


def names(group: Group) -> list[str]:
    """Files in /dev/shm that this rank maps and that have a name there."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "/dev/shm/" in line and not line.endswith("(deleted)")]


def test_nothing_has_a_name_in_shared_memory(four: Team) -> None:
    """So nothing can be left behind, whoever is killed."""
    four.call(nodes)
    assert four.call(names) == [[]] * 4


def test_importing_a_group_does_not_start_mpi() -> None:
    """It would make every process that imports it, this one too, an MPI job of its own, with a file in /dev/shm."""
    program = "import lockstep.engine.groups.mpi, lockstep.engine.groups.windows, lockstep.commands.mpi_rank\n"
    program += "from mpi4py import MPI\nprint(MPI.Is_initialized())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def gives_up(group: Group) -> tuple[bool, bool]:
    """Was the buffer of an all-reduce that others did not join kept, after its rank had caught the abort?"""
    if group.rank == 0:
        group.abort("no more")  # and never joins the sum
        return True, True
    alive: list[weakref.ref[torch.Tensor]] = []

    def sums() -> None:
        tensor = torch.ones(1000)
        alive.append(weakref.ref(tensor))
        group.allreduce(tensor)

    raised = False
    try:
        sums()
    except GroupAborted:
        raised = True
    gc.collect()
    return raised, alive[0]() is not None


def test_what_mpi_may_still_write_into_is_kept_after_an_abort() -> None:
    """It was freed once the error had been caught, and the process crashed before it could say why."""
    with warnings.catch_warnings(action="ignore"), Mpiexec(2) as team:
        assert team.call(gives_up) == [(True, True)] * 2

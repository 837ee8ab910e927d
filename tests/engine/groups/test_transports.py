"""Sums over TCP sockets and one-sided MPI: exact, for any size, from the group's own ranks only, and never for ever."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.engine.groups import Group, GroupAborted, GroupError, GroupTimeout
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.launch import Team
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from lockstep.engine.sync.transports import TRANSPORTS, transport_of
from lockstep.engine.sync.transports.base import add_in_rank_order
from lockstep.engine.sync.transports.connections import connect_ranks
from lockstep.engine.sync.transports.sockets import Sockets
from lockstep.records import COLUMNS
from steps import on_ranks

# Empty, fewer than ranks, divisible by nothing, more than a block per rank.
SIZES = [0, 1, 2, 3, 7, 1001, 700_001]
SOON = 10.0


def addend(rank: int, size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(rank))


def in_rank_order(ranks: int, size: int) -> Tensor:
    total = addend(0, size)
    for rank in range(1, ranks):
        total += addend(rank, size)
    return total


def sums(group: Group, name: str) -> list[tuple[bool, float]]:
    """For each size: is it torch's own sum, bit by bit, and nothing beside it touched; bytes sent."""
    transport = transport_of(name, group)
    whole = transport.buffer(torch.empty(max(SIZES) + 2))
    untouched, got = not bool(whole.any()), []
    for size in SIZES:
        whole[:] = 5.0
        piece = whole[1 : size + 1]
        piece.copy_(addend(group.rank, size))
        sent = transport.allreduce(piece)
        beside = bool((whole[0] == 5.0) & (whole[size + 1 :] == 5.0).all())
        got.append((torch.equal(piece, in_rank_order(group.size, size)) and beside and untouched, sent))
        group.barrier()  # nobody changes what another one still compares: each has its own
    transport.close()
    return got


def check(ranks: list[list[tuple[bool, float]]]) -> None:
    for size, told in zip(SIZES, zip(*ranks, strict=True), strict=True):
        assert all(right for right, _ in told), size
        assert sum(sent for _, sent in told) == 2 * (len(ranks) - 1) * 4 * size


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_sums_over_sockets_are_those_in_rank_order(ranks: int) -> None:
    check(on_ranks(ranks, sums, "sockets"))


def sent_in_messages(group: Group, size: int) -> float:
    return transport_of("messages", group).allreduce(torch.ones(size))


def test_an_all_reduce_of_the_groups_own_counts_as_a_ring() -> None:
    """Threads move nothing through a wire, and a library sends as it likes: the column must say what its number is."""
    assert on_ranks(3, sent_in_messages, 900) == [2 * 2 / 3 * 900 * 4] * 3
    assert "what a ring would send" in COLUMNS["bytes_sent"].meaning


@pytest.fixture(scope="module")
def three() -> Iterator[Team]:
    with warnings.catch_warnings(action="ignore"):  # more ranks than some machines have cores
        launcher = Mpiexec(3, hosts=2)
    with launcher as team:
        yield team


@pytest.mark.linux
@pytest.mark.serial
@pytest.mark.parametrize("name", ["rma", "sockets"])
def test_sums_between_mpi_ranks(three: Team, name: str) -> None:
    check(three.call(sums, name))
    check(three.call(sums, name))  # and again: what the first has closed is in nobody's way


def bits(group: Group, name: str, pieces: int) -> str:
    transport = transport_of(name, group)
    whole = transport.buffer(torch.empty(10_001))
    whole.copy_(addend(group.rank, 10_001))
    for piece in whole.chunk(pieces):
        transport.allreduce(piece)
    digest = hashlib.sha256(whole.numpy().tobytes()).hexdigest()
    group.barrier()
    transport.close()
    return digest


@pytest.mark.linux
@pytest.mark.serial
def test_a_sum_has_the_same_bits_however_it_is_cut_and_carried(three: Team) -> None:
    cases = [("rma", 1), ("rma", 7), ("sockets", 1), ("sockets", 7)]
    assert len({digest for case in cases for digest in three.call(bits, *case)}) == 1


def left_over(group: Group) -> tuple[int, list[str]]:
    """Mappings of windows, and files of the MPI library that have a name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    shared = [line for line in lines if "/dev/shm/" in line]
    return len(shared), [line for line in shared if not line.endswith("(deleted)")]


def with_a_window(group: Group) -> list[str]:
    transport = transport_of("rma", group)
    transport.buffer(torch.empty(100_000))
    group.barrier()
    named = left_over(group)[1]
    group.barrier()
    transport.close()
    return named


@pytest.mark.linux
@pytest.mark.serial
def test_a_window_has_no_name_and_is_given_back(three: Team) -> None:
    """Without a name nothing is left behind, whoever is killed."""
    assert three.call(with_a_window) == [[]] * 3
    before = [count for count, _ in three.call(left_over)]
    for _ in range(3):
        three.call(with_a_window)
    assert [count for count, _ in three.call(left_over)] == before


def elsewhere(group: Group) -> str:
    transport = transport_of("rma", group)
    transport.buffer(torch.empty(10))
    try:
        transport.allreduce(torch.ones(10))
    except GroupError as error:
        return str(error)
    finally:
        transport.close()
    return ""


@pytest.mark.linux
@pytest.mark.serial
def test_only_a_window_can_be_read_from_outside(three: Team) -> None:
    assert three.call(elsewhere) == ["transport='rma' can only sum what stands in the buffer it gave"] * 3


def test_rank_order() -> None:
    """1e8 + 1 is 1e8 in float32, so the order shows."""
    addends = [torch.tensor([value]) for value in (1e8, 1.0, -1e8, 3.0)]
    for rank in range(4):
        own = addends[rank].clone()
        add_in_rank_order(own, [value.clone() for other, value in enumerate(addends) if other != rank], rank)
        assert float(own) == 3.0


# --- who may take part ---


class Watched(ThreadGroup):
    """Strangers connect to rank 0 as soon as its address is known, before any rank does."""

    def allgather(self, tensor: Tensor) -> list[Tensor]:
        told = super().allgather(tensor)
        self.strangers = getattr(self, "strangers", [])
        for port in listening() if self.rank == 1 else ():
            for hello in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1" + b"?" * 16):
                stranger = socket.create_connection(("127.0.0.1", port))
                stranger.sendall(hello)
                self.strangers.append(stranger)
        self.barrier()
        return told


def listening() -> list[int]:
    import psutil

    found = psutil.Process().net_connections("tcp4")
    return [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN and each.laddr.ip == "127.0.0.1"]


def test_strangers_are_refused() -> None:
    made: list[Any] = []

    def run(group: Any) -> bool:
        group.__class__ = Watched
        made.append(group)
        transport = Sockets(group)
        tensor = torch.full((9,), 2.0**group.rank)
        transport.allreduce(tensor)
        transport.close()
        return tensor.tolist() == [7.0] * 9

    assert on_ranks(3, run) == [True] * 3
    strangers = [stranger for group in made for stranger in group.strangers]
    assert len(strangers) >= 3 * 3, "each of three ranks listened"
    for stranger in strangers:
        stranger.settimeout(SOON)
        with contextlib.suppress(ConnectionResetError):  # closed with what it had said unread
            assert stranger.recv(100) == b"", "a stranger was told something"
        stranger.close()


def test_one_sided_sums_need_mpi() -> None:
    with pytest.raises(GroupError, match="ThreadGroup has not; give launcher='mpiexec' or 'engines', or transport='so"):
        transport_of("rma", ThreadGroup.of(1)[0])
    with pytest.raises(JobError, match="launcher='processes' has not; give 'engines' or 'mpiexec'"):
        Job(sync="allreduce", transport="rma", launcher="processes", workers=2)


def test_what_a_transport_can_not_carry_is_refused() -> None:
    with pytest.raises(JobError, match="compression='terngrad' is sent as messages; give transport='messages'"):
        Job(sync="allreduce", transport="sockets", compression="terngrad")
    with pytest.raises(JobError, match="transport='sockets' sends from the CPU's memory; give device='cpu'"):
        Job(sync="allreduce", transport="sockets", device="cuda")
    for name in TRANSPORTS:
        assert Job(sync="allreduce", transport=name, launcher="mpiexec").transport == name


# --- ranks that leave ---


def failing(group: Group, how: str) -> tuple[str, str, float]:
    """What rank 0 is told when rank 1 does not sum with it, and after how many seconds."""
    transport = Sockets(group, patience_seconds=0.5 if how == "silent" else SOON)
    group.barrier()
    began = time.monotonic()
    try:
        if group.rank == 0:
            transport.allreduce(torch.ones(1_000_000))
        elif how == "close":
            transport.close()
        elif how == "abort":
            group.abort("rank 1 failed: a tyre burst")
            time.sleep(0.5)  # its connections stand meanwhile
    except GroupError as error:
        return type(error).__name__, str(error), time.monotonic() - began
    finally:
        if group.rank == 0:
            transport.close()
    if how == "silent":
        time.sleep(1.5)
    transport.close()
    return "", "", 0.0


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("close", GroupAborted, "rank 1 has left the group"),
        ("abort", GroupAborted, "rank 1 failed: a tyre burst"),
        ("silent", GroupTimeout, "nothing came from ranks [1] within 0.5 s"),
    ],
)
def test_a_rank_that_does_not_come_is_told_in_time(how: str, kind: type[Exception], says: str) -> None:
    told, text, seconds = on_ranks(2, failing, how)[0]
    assert told == kind.__name__ and text.startswith(says)
    assert seconds < SOON


def test_a_rank_that_never_calls_is_told_in_time() -> None:
    def run(group: Group) -> str:
        if group.rank == 1:  # takes part in what goes through the group, and calls nobody
            for _ in range(2):
                group.allgather(torch.zeros(0, dtype=torch.uint8))
            return ""
        import lockstep.engine.sync.transports.connections as connections

        kept = connections.allgather_object
        connections.allgather_object = lambda group, value: (
            group.allgather(torch.zeros(0, dtype=torch.uint8)),
            [value],
        )[1]
        try:
            connect_ranks(group, within_seconds=0.3)
        except GroupTimeout as error:
            return str(error)
        finally:
            connections.allgather_object = kept
        return "no error"

    assert on_ranks(2, run)[0].startswith("rank 0 has no connection to ranks [1] in time")

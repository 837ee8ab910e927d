"""What ranks promise each other: meeting, sums, messages and common memory, and nobody waits for one who has gone."""

from __future__ import annotations

import gc
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from lockstep.engine.groups import ANY, Group, GroupAborted, GroupError, GroupTimeout, allgather_object
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.processes import ProcessGroup
from lockstep.engine.groups.threads import ThreadGroup

SOON = 20.0  # seconds; an upper bound for a hanging test


def on_all(groups: Sequence[Group], function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(group, *arguments)` on every rank at once, each in a thread: the results, by rank."""
    with ThreadPoolExecutor(len(groups)) as pool:
        calls = [pool.submit(function, group, *arguments) for group in groups]
        try:
            return [call.result(SOON) for call in calls]
        except BaseException:
            groups[0].abort("the test has failed")
            raise


def connected(size: int) -> list[ProcessGroup]:
    """Ranks as they would be in `size` processes, all in this one."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(size)]
    for a in range(size):
        for b in range(a):
            ends[a][b], ends[b][a] = socket.socketpair()
    board = Board.create(size)
    return [ProcessGroup(rank, size, ends[rank], board) for rank in range(size)]


KINDS = {"threads": ThreadGroup.of, "processes": connected}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Sequence[Group]]]:
    """Groups of either kind."""
    made: list[Group] = []

    def groups(size: int) -> Sequence[Group]:
        made.extend(KINDS[request.param](size))
        return made

    yield groups
    for group in made:
        if isinstance(group, ProcessGroup):
            group.close()


Make = Callable[[int], Sequence[Group]]


# --- collectives ---


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_nobody_passes_a_barrier_before_all_have_come(make: Make, size: int) -> None:
    come: list[int] = []
    late = threading.Event()

    def meet(group: Group) -> int:
        if group.rank == size - 1 and size > 1:
            assert late.wait(SOON)
        come.append(group.rank)
        group.barrier()
        return len(come)

    groups = make(size)
    threading.Timer(0.1, late.set).start()
    assert on_all(groups, meet) == [size] * size


def test_barriers_do_not_mix_with_messages(make: Make) -> None:
    def chatter(group: Group) -> list[float]:
        got = []
        for number in range(20):
            group.send(torch.tensor([float(number)]), (group.rank + 1) % group.size, "news")
            group.barrier()
            got.append(float(group.receive(tag="news")[1]))
        return got

    assert on_all(make(3), chatter) == [[float(number) for number in range(20)]] * 3


@pytest.mark.parametrize("source", [0, 2])
def test_broadcast(make: Make, source: int) -> None:
    def share(group: Group) -> Tensor:
        tensor = torch.full((2, 3), float(group.rank))
        group.broadcast(tensor, source)
        return tensor

    for got in on_all(make(3), share):
        assert torch.equal(got, torch.full((2, 3), float(source)))


def test_allgather_of_different_shapes_and_types(make: Make) -> None:
    parts = [torch.arange(4), torch.tensor(2.5, dtype=torch.float64), torch.empty(0), torch.ones(2, 3, 1).int()]

    for got in on_all(make(4), lambda group: group.allgather(parts[group.rank])):
        assert [(part.dtype, part.shape) for part in got] == [(part.dtype, part.shape) for part in parts]
        assert all(torch.equal(a, b) for a, b in zip(got, parts, strict=True))


def test_allgather_of_objects(make: Make) -> None:
    values = [{"a": [1, None]}, "naïve", (2.5,)]
    assert on_all(make(3), lambda group: allgather_object(group, values[group.rank])) == [values] * 3


def test_allreduce_gives_the_same_bits_everywhere() -> None:
    """1001 values: no slice of 2, 3 or 5 threads is as long as the others."""
    for size in (1, 2, 3, 5):
        dice = torch.Generator().manual_seed(size)
        parts = torch.randn(size, 1001, generator=dice)

        def reduce(group: Group, parts: Tensor = parts) -> Tensor:
            own = parts[group.rank].clone()
            group.allreduce(own)
            return own

        got = on_all(ThreadGroup.of(size), reduce)
        assert all(torch.equal(one, got[0]) for one in got)
        assert torch.allclose(got[0], parts.double().sum(0).float(), atol=1e-6)


def test_the_plain_allreduce_that_a_new_group_gets(make: Make) -> None:
    """Group's own, over send and receive, which `split` uses too."""
    parts = torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(0))

    def reduce(group: Group) -> Tensor:
        own = parts[group.rank].clone()
        Group.allreduce(group, own)
        return own

    got = on_all(make(3), reduce)
    assert all(torch.equal(one, parts[0] + parts[1] + parts[2]) for one in got)


def test_split(make: Make) -> None:
    """Ranks 0, 2, 4 and ranks 1, 3; each half meets, sums and talks by its own ranks."""

    def half(group: Group) -> dict[str, Any]:
        part = group.split(group.rank % 2)
        tensor = torch.tensor([float(group.rank)])
        part.allreduce(tensor)
        first = torch.tensor([float(group.rank)])
        part.broadcast(first)
        part.barrier()
        part.send(torch.tensor([group.rank]), (part.rank + 1) % part.size, "next")
        sender, left = part.receive(ANY, "next", SOON)
        return {
            "place": (part.rank, part.size),
            "sum": float(tensor),
            "first": float(first),
            "left": (sender, int(left)),
            "all": [int(t) for t in part.allgather(torch.tensor(group.rank))],
        }

    got = on_all(make(5), half)
    assert [one["place"] for one in got] == [(0, 3), (0, 2), (1, 3), (1, 2), (2, 3)]
    assert [one["sum"] for one in got] == [6.0, 4.0, 6.0, 4.0, 6.0]
    assert [one["first"] for one in got] == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert [one["left"] for one in got] == [(2, 4), (1, 3), (0, 0), (0, 1), (1, 2)]
    assert [one["all"] for one in got] == [[0, 2, 4], [1, 3]] * 2 + [[0, 2, 4]]


def test_one_machine_is_one_node(make: Make) -> None:
    for group in make(2):
        assert group.node is group
        assert group.leaders is None


# --- common memory ---


def write_and_read(group: Group, length: int) -> tuple[float, list[tuple[float, float]]]:
    """Sum before anybody writes, then the first and last value of every buffer."""
    buffers = group.share(length)
    assert [b.shape for b in buffers] == [(length,)] * group.size
    assert all(b.dtype == torch.float32 for b in buffers)
    untouched = float(sum(b.abs().sum() for b in buffers))
    group.barrier()
    buffers[group.rank][[0, -1]] = torch.tensor([1.0, 2.0]) + 10 * group.rank
    group.barrier()
    return untouched, [(float(b[0]), float(b[-1])) for b in buffers]


@pytest.mark.linux
def test_all_ranks_see_shared_memory(make: Make) -> None:
    for length in (1000, 600_000):  # within a huge page of 2 MiB, and over one
        assert on_all(make(2)[-2:], write_and_read, length) == [(0.0, [(1.0, 2.0), (11.0, 12.0)])] * 2


@pytest.mark.linux
def test_a_part_of_the_ranks_shares_memory_of_its_own(make: Make) -> None:
    got = on_all(make(4), lambda group: write_and_read(group.split(group.rank % 2), 9))
    assert got == [(0.0, [(1.0, 2.0), (11.0, 12.0)])] * 4


def test_a_part_of_a_part_cannot_share() -> None:
    def deeper(group: Group) -> None:
        group.split(0).split(1).share(3)

    with pytest.raises(GroupError, match="group 'color 1' of SubGroup can't share memory"):
        on_all(ThreadGroup.of(2), deeper)


def test_threads_do_not_keep_what_they_shared() -> None:
    """An idle team would otherwise hold the last model's gradients, once per rank."""
    groups = ThreadGroup.of(2)

    def use(group: Group) -> list[weakref.ref[Tensor]]:
        tensor = torch.ones(3)
        group.allreduce(tensor)
        return [weakref.ref(tensor), *map(weakref.ref, group.share(3))]

    kept = on_all(groups, use)
    gc.collect()
    assert [ref() for refs in kept for ref in refs] == [None] * 6


# --- messages ---


def test_a_message_may_be_changed_after_it_was_sent(make: Make) -> None:
    first, second = make(2)
    tensor = torch.ones(3)
    first.send(tensor, 1, "a")
    first.send(tensor, 0, "to myself")
    tensor.zero_()
    assert second.receive(0, "a", SOON)[1].tolist() == [1.0, 1.0, 1.0]
    assert first.receive(0, "to myself", SOON)[1].tolist() == [1.0, 1.0, 1.0]


def test_messages_are_told_apart_by_sender_and_tag_and_keep_their_order(make: Make) -> None:
    groups = make(3)
    for number in (1, 2):
        groups[0].send(torch.tensor(number), 2, "a")
        groups[0].send(torch.tensor(10 * number), 2, "b")
        groups[1].send(torch.tensor(100 * number), 2, "a")
    last = groups[2]
    assert [int(last.receive(1, "a", SOON)[1]), int(last.receive(0, "b", SOON)[1])] == [100, 10]
    assert [int(last.receive(0, "a", SOON)[1]) for _ in range(2)] == [1, 2]
    assert [int(last.receive(1, "a", SOON)[1]), int(last.receive(0, "b", SOON)[1])] == [200, 20]


def test_from_any_rank_until_a_deadline(make: Make) -> None:
    groups = make(3)
    for rank in (2, 1):
        groups[rank].send(torch.tensor(rank), 0, "news")
    got = dict(groups[0].receive(ANY, "news", SOON) for _ in range(2))
    assert {rank: int(value) for rank, value in got.items()} == {1: 1, 2: 2}
    with pytest.raises(GroupTimeout, match=r"no message 'news' from any rank within 0\.05 s"):
        groups[0].receive(ANY, "news", 0.05)
    with pytest.raises(GroupTimeout, match=r"no message 'news' from rank 2 within 0 s"):
        groups[0].receive(2, "news", 0)


@pytest.mark.parametrize("tensor", [torch.arange(6).view(2, 3).t(), torch.tensor(True), torch.zeros(0, 4)])
def test_any_layout_is_sent(make: Make, tensor: Tensor) -> None:
    first, second = make(2)
    first.send(tensor, 1)
    _, got = second.receive(0, deadline_seconds=SOON)
    assert torch.equal(got, tensor)
    assert got.dtype == tensor.dtype


def test_large_messages_in_both_directions_at_once() -> None:
    """8 MB each way are far more than sockets hold: who only sends must still read."""
    groups = connected(2)

    def swap(group: Group) -> bool:
        other = 1 - group.rank
        for number in range(3):
            group.send(torch.full((2_000_000,), 10.0 * number + group.rank), other, "large")
        got = [group.receive(other, "large", SOON)[1] for _ in range(3)]
        return all(bool((tensor == 10.0 * n + other).all()) for n, tensor in enumerate(got))

    assert on_all(groups, swap) == [True, True]
    for group in groups:
        group.close()


def test_two_threads_of_a_rank_send_whole_messages() -> None:
    first, second = connected(2)
    senders = [
        threading.Thread(target=lambda n=n: [first.send(torch.full((50_000,), n), 1, str(n)) for _ in range(5)])
        for n in range(3)
    ]
    for sender in senders:
        sender.start()
    for n in range(3):
        assert all(bool((second.receive(0, str(n), SOON)[1] == n).all()) for _ in range(5))
    for sender in senders:
        sender.join(SOON)
    first.close()
    second.close()


# --- one who goes ---


def test_abort_wakes_whoever_waits(make: Make) -> None:
    groups = make(3)

    def wait(group: Group) -> str:
        if group.rank == 1:
            time.sleep(0.1)  # the others wait by then
            group.abort("rank 1 failed: ValueError: bad")
            return ""
        with pytest.raises(GroupAborted) as caught:
            group.barrier()
        return str(caught.value)

    assert on_all(groups, wait) == ["rank 1 failed: ValueError: bad", "", "rank 1 failed: ValueError: bad"]
    with pytest.raises(GroupAborted, match="rank 1 failed"):
        groups[1].receive(0, "later")
    groups[2].abort("something that followed")
    with pytest.raises(GroupAborted, match="rank 1 failed"):
        groups[2].receive(0, "later")


def test_a_message_that_came_before_the_abort_is_still_there(make: Make) -> None:
    first, second = make(2)
    first.send(torch.tensor(5), 1, "last words")
    first.abort("gone")
    assert int(second.receive(0, "last words", SOON)[1]) == 5
    with pytest.raises(GroupAborted, match="gone"):
        second.receive(0, "more", SOON)


def test_a_rank_that_leaves_is_noticed() -> None:
    groups = connected(3)

    def wait(group: Group) -> str:
        if group.rank == 2:
            groups[2].close()
            return ""
        with pytest.raises(GroupAborted) as caught:
            group.receive(0 if group.rank == 1 else 1, "news", SOON)
        return str(caught.value)

    assert on_all(groups, wait) == ["rank 2 has left the group", "rank 2 has left the group", ""]
    with pytest.raises(GroupAborted, match="rank 2 has left the group"):
        for _ in range(3):
            groups[0].send(torch.zeros(1_000), 2)
    groups[0].abort("rank 2 is gone")  # telling who has gone fails quietly
    for group in groups[:2]:
        group.close()


def test_a_rank_that_leaves_within_a_message() -> None:
    ours, theirs = socket.socketpair()
    group = ProcessGroup(0, 2, {1: ours}, Board.create(2))
    theirs.sendall(b"\x00\x00\x00\x10")  # a third of a header
    theirs.close()
    with pytest.raises(GroupAborted, match="rank 1 has left the group"):
        group.receive(1, "news", SOON)
    group.close()


def test_a_closed_group_leaves_no_thread() -> None:
    before = threading.active_count()
    groups = connected(3)
    assert threading.active_count() == before + 3
    for group in groups:
        group.close()
        group.close()
    assert threading.active_count() == before


# --- the board ---


def test_the_board_says_what_every_rank_does() -> None:
    board = Board.create(2)
    first, second = ThreadGroup.of(2, board)
    assert board.where(1) == "step 0, phase start"
    before = board.changes()
    second.at_step(3)
    assert board.changes() == before, "a step alone is no progress"
    second.enter("exchange")
    assert (board.where(0), board.where(1)) == ("step 0, phase start", "step 3, phase exchange")
    assert board.changes() == (before[0], before[1] + 1)
    part = on_all([first, second], lambda group: group.split(group.rank))[0]
    part.enter("update")
    part.at_step(8)
    assert board.where(0) == "step 8, phase update", "a part of the ranks writes to the whole's board"
    other = Board(board.handle, 2)
    assert other.where(1) == board.where(1), "as another process sees it"
    with pytest.raises(ValueError):
        first.enter("lunch")
    board.close()
    board.close()

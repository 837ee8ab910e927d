"""Ranks that are threads of one process per host: memory within a host, MPI between hosts.

    process 0                         process 1                rank = process * threads + thread
      thread 0 = rank 0  == lane 0 ==   thread 0 = rank 2      (lane 0 is also `leaders`)
          | node                            | node
      thread 1 = rank 1  == lane 1 ==   thread 1 = rank 3

A lane is an MPI communicator of the threads with one number, and the inbox of each: thread t alone probes and
receives on lane t, and takes part in its collectives; whoever has a message for rank (process q, thread u) sends it on
lane u, to process q, with its own number in the tag. So no two threads ever wait for the same thing in MPI.

    thread 0 aborts        mailboxes of this process: at once     other processes: a message, found when they next poll
    a process aborted      whoever polls MPI notices it           threads that wait in a mailbox poll every 50 ms

*Single-to-Multi*, section 4.2: threads as the local strategy of each node, MPI between nodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from lockstep.engine.groups.base import ANY, CanShare, Group, GroupAborted, GroupError, GroupTimeout, SubGroup
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.mailbox import Mailbox
from lockstep.engine.groups.mpi import MpiGroup
from lockstep.engine.groups.mpi_waiting import MpiProcess
from lockstep.engine.groups.threads import ThreadGroup

_LOOK_SECONDS = 0.05  # how often a thread that waits for another one asks MPI whether a rank elsewhere has aborted
_NO_TORCH = "torch.distributed needs a process per rank; with host_workers='threads' use sync='shared_memory'"

_given_up: list[GroupAborted] = []
"""Kept because they hold the frames that they passed, and so the buffers that MPI may still write to."""


class ThreadedMpiProcess(MpiProcess):
    """The state that all threads and lanes of this process share: who has aborted, and the messages under way.

    Whenever another thread of the process calls MPI, it continues what an aborted rank had begun. Those buffers must
    therefore stay until the process ends, which is soon; without them there were segmentation faults.
    """

    def check(self) -> None:
        try:
            super().check()
        except GroupAborted as error:
            _given_up.append(error)
            raise


class HostThreads(ThreadGroup):
    """The threads of this process. A thread that waits for another one also notices that a rank elsewhere aborted.

    `first`: the rank of thread 0 in the whole group, which gives the lines on the board.
    """

    def __init__(
        self,
        rank: int,
        boxes: list[Mailbox],
        board: Board | None,
        common: dict[str, Any],
        process: ThreadedMpiProcess,
        first: int,
    ) -> None:
        super().__init__(rank, boxes, board, common)
        self._process, self.first = process, first

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        # Otherwise a token of an aborted rank that tries again could let another rank pass a barrier.
        self._process.check()
        super().send(tensor, destination, tag)

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        until = math.inf if deadline_seconds is None else time.monotonic() + deadline_seconds
        while True:
            self._process.check()  # first, because the mailbox may hold tokens of an aborted barrier
            left = until - time.monotonic()
            try:
                return super().receive(source, tag, min(left, _LOOK_SECONDS))
            except GroupTimeout:
                if left <= _LOOK_SECONDS:
                    raise GroupTimeout(_nothing(self.first, source, tag, deadline_seconds)) from None

    def wait_for(self, done: Callable[[], bool], until: float | None) -> bool:
        """As `MpiProcess.wait`."""
        return self._process.wait(done, until=until)

    def abort(self, reason: str) -> None:
        super().abort(reason)
        self._process.abort(reason)

    def torch_group(self) -> Any:
        raise GroupError(_NO_TORCH)

    def enter(self, phase: str) -> None:
        if self._board is not None:
            self._board.enter(self.first + self.rank, phase)

    def at_step(self, step: int) -> None:
        if self._board is not None:
            self._board.at_step(self.first + self.rank, step)


class Lane(MpiGroup):
    """The threads of the same number in all processes, seen from one of them, which is the only one to wait here."""

    def torch_group(self) -> Any:
        raise GroupError(_NO_TORCH)


class HybridGroup(Group, CanShare):
    """One rank of `processes` x `threads`, in rank order of the processes. Make a process's with `HybridGroup.of`."""

    def __init__(self, process: int, node: HostThreads, lanes: list[Lane]) -> None:
        self.process, self.processes, self.threads = process, lanes[0].size, node.size
        self.rank, self.size = node.first + node.rank, self.processes * self.threads
        self._node, self._lanes, self._lane = node, lanes, lanes[node.rank]

    @classmethod
    def of(cls, world: MpiGroup, threads: int, board: Board | None = None) -> list[HybridGroup]:
        """The groups of this process's threads; `world` is that of the processes. Collective: one thread of each.

        `board` has a line per rank. Every process must give the same number of threads.
        """
        if world.size > 1 and world.node.size > 1:
            raise GroupError(f"{world.node.size} processes on one host; host_workers='threads' has one on each")
        process, first = ThreadedMpiProcess(world.comm), world.rank * threads
        lanes = [
            Lane(world.comm.Dup(), process, board, world.hosts, [p * threads + t for p in range(world.size)])
            for t in range(threads)
        ]
        boxes: list[Mailbox] = [Mailbox() for _ in range(threads)]
        common: dict[str, Any] = {}
        nodes = [HostThreads(t, boxes, board, common, process, first) for t in range(threads)]
        return [cls(world.rank, node, lanes) for node in nodes]

    @property
    def node(self) -> Group:
        return self._node

    @property
    def leaders(self) -> Group | None:
        return self._leaders

    @property
    def _leaders(self) -> Lane | None:
        return self._lane if self._node.rank == 0 and self.processes > 1 else None

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        process, thread = divmod(destination, self.threads)
        if process == self.process:
            self._node.send(tensor, thread, tag)
        else:
            self._lanes[thread].send(tensor, process, _label(self._node.rank, tag))

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        """(source, tensor) of the oldest message of its sender; ANY looks at one sender after the other."""
        if source == ANY and self.processes > 1:
            return self._receive_any(tag, deadline_seconds)
        process, thread = (self.process, ANY) if source == ANY else divmod(source, self.threads)
        if process == self.process:
            sender, tensor = self._node.receive(thread, tag, deadline_seconds)
            return self._node.first + sender, tensor
        return source, self._lane.receive(process, _label(thread, tag), deadline_seconds)[1]

    def _receive_any(self, tag: str, deadline_seconds: float | None) -> tuple[int, Tensor]:
        until = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        found: list[tuple[int, Tensor]] = []

        def came() -> bool:
            try:
                sender, tensor = ThreadGroup.receive(self._node, ANY, tag, 0.0)
                found.append((self._node.first + sender, tensor))
            except GroupTimeout:
                found.extend(self._look_at_lane(tag))
            return bool(found)

        if not self._node.wait_for(came, until):
            raise GroupTimeout(_nothing(0, ANY, tag, deadline_seconds))
        return found[0]

    def _look_at_lane(self, tag: str) -> list[tuple[int, Tensor]]:
        """A message of another process, if one has arrived."""
        for thread in range(self.threads):
            try:
                process, tensor = self._lane.receive(ANY, _label(thread, tag), 0.0)
            except GroupTimeout:
                continue
            return [(process * self.threads + thread, tensor)]
        return []

    def barrier(self) -> None:
        self._node.barrier()
        if self.processes > 1:
            if self._leaders is not None:
                self._leaders.barrier()
            self._node.barrier()

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        """First to the threads of its process, then to the other leaders, and from each leader to its threads."""
        process, thread = divmod(source, self.threads)
        here = process == self.process
        if here:
            self._node.broadcast(tensor, thread)
        if self._leaders is not None:
            self._leaders.broadcast(tensor, process)
        if not here:
            self._node.broadcast(tensor)

    def allgather(self, tensor: Tensor) -> list[Tensor]:
        """Each thread gathers on its lane; then the threads of a process exchange what they have gathered."""
        column = self._lane.allgather(tensor) if self.processes > 1 else [tensor]
        return [part for own in column for part in self._node.allgather(own)]

    def allreduce(self, tensor: Tensor) -> None:
        """First within each process, then between the leaders, which pass the sum on: the same bits everywhere."""
        whole = tensor.detach().contiguous()
        self._node.allreduce(whole)
        if self._leaders is not None:
            self._leaders.allreduce(whole)
        if self.processes > 1:
            self._node.broadcast(whole)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)

    def split(self, color: int) -> Group:
        """As `Group.split`; the threads with one number, which hold the same slice, get MPI's own collectives."""
        part = super().split(color)
        same_number = list(range(self._node.rank, self.size, self.threads))
        return self._lane if isinstance(part, SubGroup) and part.ranks == same_number else part

    def share(self, length: int) -> list[Tensor]:
        return self.share_among(self, length)

    def share_among(self, group: Group, length: int) -> list[Tensor]:
        ranks = group.ranks if isinstance(group, SubGroup) else range(self.size)
        hosts = {rank // self.threads for rank in ranks}
        if len(hosts) > 1:
            raise GroupError(f"{group.size} ranks on {len(hosts)} nodes have no common memory; share within group.node")
        return self._node.share_among(group, length)

    def torch_group(self) -> Any:
        raise GroupError(_NO_TORCH)

    def abort(self, reason: str) -> None:
        self._node.abort(reason)

    def enter(self, phase: str) -> None:
        self._node.enter(phase)

    def at_step(self, step: int) -> None:
        self._node.at_step(step)


def check_lanes(groups: list[HybridGroup], check: Callable[[Group], None]) -> None:
    """`check` on every lane of this process, in one thread, before the ranks start. Collective."""
    for group in groups:
        check(group._lane)


def _label(thread: int, tag: str) -> str:
    """The tag of a message on a lane, which includes the sending thread."""
    return f"{thread}>{tag}"


def _nothing(first: int, source: int, tag: str, deadline_seconds: float | None) -> str:
    origin = "any rank" if source == ANY else f"rank {first + source}"
    return f"no message {tag!r} from {origin} within {deadline_seconds} s"

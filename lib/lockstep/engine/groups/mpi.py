"""Ranks of an MPI job, on mpi4py's zero-copy calls only (those with a capital letter, on buffers; nothing is pickled).

    message    [tag, type, shape | padding | data]  one Isend; the receiver probes, then receives into fresh memory
    sums       MPI_Iallreduce in place, in chunks of 16 MiB that are under way together
    memory     an anonymous file per node, as between processes; `node` and `leaders` come from MPI_Comm_split_type

Every wait looks and sleeps, so that idle ranks leave their core to others (see `groups.mpi_waiting`).

Measured on 2 cores, MPICH 5 (100 MB, 2 ranks): one blocking Allreduce 92 ms; chunks of 1 MiB 39, of 16 MiB 35, all at
once 41 ms; between two emulated hosts at 10 Gbit/s 16 MiB take 93 ms in chunks of 1 MiB, 52 ms at once; 3 ranks on
2 cores, 400 kB: spinning 8.3 ms, yielding 0.4 ms. So nothing here blocks.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups import memory, wire
from lockstep.engine.groups.base import ANY, CanShare, Group, GroupError, GroupTimeout, SubGroup
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.gloo import interface_address, make_gloo
from lockstep.engine.groups.library import MPI, start_mpi
from lockstep.engine.groups.mpi_waiting import EAGER_SECONDS, MpiProcess

HOST_VARIABLE = "LOCKSTEP_HOST"  # an emulated host's name; ranks of one machine with different names are on two nodes
_CHUNK = 1 << 22  # values of an all-reduce's chunk
_RATE = 1e9  # bytes/s, for an estimate of how long an exchange takes: a rank yields for so long before it sleeps

_SUMMABLE = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE, torch.int64: MPI.INT64_T, torch.int32: MPI.INT32_T}


class MpiGroup(Group, CanShare):
    """This process's rank in communicator `comm`. Make the one of all ranks with `MpiGroup.world`."""

    def __init__(self, comm: Any, common: MpiProcess, board: Board | None, hosts: list[str], ranks: list[int]) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self._common, self._board = common, board
        self._hosts, self._ranks = hosts, ranks  # for each rank of this group: its host, and its rank in the world
        self._aside: list[tuple[int, str, Tensor]] = []
        self._machines = [""]
        self._torch: Any = None
        self._world: MpiGroup = self
        self._node: Group | None = None
        self._leaders: Group | None = None

    @classmethod
    def world(cls, board: Board | None = None, host: str | None = None, comm: Any = None) -> MpiGroup:
        """All ranks of the job. Collective. `host`: this rank's node, by default the machine's name.

        `board` has a line per rank; without one a rank notes nothing. Initialises MPI unless that has happened.
        """
        start_mpi()
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise GroupError("this MPI library allows one thread only; use a build with MPI_THREAD_MULTIPLE")
        comm = (comm or MPI.COMM_WORLD).Dup()
        group = cls(comm, MpiProcess(comm), board, [""] * comm.size, list(range(comm.size)))
        name = host or os.environ.get(HOST_VARIABLE) or socket.gethostname()
        names = group.allgather(torch.frombuffer(bytearray(name.encode()), dtype=torch.uint8))
        machine = torch.frombuffer(bytearray(socket.gethostname().encode()), dtype=torch.uint8)
        group._machines = [part.numpy().tobytes().decode() for part in group.allgather(machine)]
        group._hosts = [part.numpy().tobytes().decode() for part in names]
        group._find_nodes(name)
        unlink_library_files()
        return group

    def _find_nodes(self, host: str) -> None:
        """Find the ranks that share memory and are on the same (emulated) host. Collective."""
        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        color = sorted(set(self._hosts)).index(host)
        node = near.Split(color, self.rank)
        near.Free()
        # The name includes the node's first rank, because two nodes without common memory may have the same name.
        firsts = [int(t) for t in self.allgather(torch.tensor(int(node.bcast(self.rank, 0))))]
        self._hosts = [f"{name} {first}" for name, first in zip(self._hosts, firsts, strict=True)]
        if len(set(firsts)) == 1:
            node.Free()
            return
        self._node = self._part(node)
        leads = node.rank == 0
        leaders = self.comm.Split(0 if leads else MPI.UNDEFINED, self.rank)
        self._leaders = self._part(leaders) if leads else None

    def _part(self, comm: Any) -> MpiGroup:
        """The group of communicator `comm`, whose ranks are some of this one's."""
        inside = comm.Get_group().Translate_ranks(list(range(comm.size)), self.comm.Get_group())
        part = MpiGroup(
            comm, self._common, self._board, [self._hosts[r] for r in inside], [self._ranks[r] for r in inside]
        )
        part._world = self._world
        return part

    @property
    def hosts(self) -> list[str]:
        """The name of each rank's node; ranks with the same name share memory."""
        return list(self._hosts)

    @property
    def node(self) -> Group:
        if self._node is None:
            mine = [r for r in range(self.size) if self._hosts[r] == self._hosts[self.rank]]
            self._node = self if len(mine) == self.size else SubGroup(self, mine, f"node {mine[0]}")
        return self._node

    @property
    def leaders(self) -> Group | None:
        firsts = sorted(self._hosts.index(name) for name in set(self._hosts))
        if self._leaders is None and len(firsts) > 1 and self.rank in firsts:
            self._leaders = SubGroup(self, firsts, "leaders")
        return self._leaders

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        self._common.check()
        message = wire.packed(tensor, tag)
        request = self.comm.Isend([message, MPI.BYTE], destination, wire.number_of(tag))
        self._common.keep(request, message)

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        for index, (sender, label, tensor) in enumerate(self._aside):
            if label == tag and source in (sender, ANY):
                del self._aside[index]
                return sender, tensor
        until = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        found: list[tuple[int, str, Tensor]] = []

        def came() -> bool:
            found.extend(self._probe(source, tag))
            return bool(found)

        if not self._common.wait(came, until=until):
            origin = "any rank" if source == ANY else f"rank {source}"
            raise GroupTimeout(f"no message {tag!r} from {origin} within {deadline_seconds} s")
        return found[0][0], found[0][2]

    def _probe(self, source: int, tag: str) -> list[tuple[int, str, Tensor]]:
        """The next message that fits, if it has arrived. One whose tag only has the same number is put aside."""
        status = MPI.Status()
        message = self.comm.Improbe(MPI.ANY_SOURCE if source == ANY else source, wire.number_of(tag), status)
        if message is None:
            return []
        buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        request = message.Irecv([buffer, MPI.BYTE])
        self._common.wait(request.Test, EAGER_SECONDS + buffer.nbytes / _RATE)
        label, tensor = wire.unpacked(buffer)
        came = (status.Get_source(), label, tensor)
        if label != tag:
            self._aside.append(came)
            return []
        return [came]

    def barrier(self) -> None:
        self.finish(self.comm.Ibarrier(), 0)

    def broadcast(self, tensor: Tensor, source: int = 0) -> None:
        whole = tensor.detach().contiguous()
        self.finish(self.comm.Ibcast([wire.bytes_of(whole), MPI.BYTE], source), whole.nbytes)
        if self.rank != source and whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)

    def allgather(self, tensor: Tensor) -> list[Tensor]:
        own = tensor.detach().cpu().contiguous()
        heads = np.zeros((self.size, wire.HEAD.size), np.uint8)
        heads[self.rank] = np.frombuffer(wire.head_of(own, ""), np.uint8)
        self.finish(self.comm.Iallgather(MPI.IN_PLACE, [heads, MPI.BYTE]), 0)
        kinds = [wire.header_of(head.tobytes()) for head in heads]
        counts = [int(np.prod(shape)) * kind.itemsize for _, kind, shape in kinds]
        starts = [sum(counts[:r]) for r in range(self.size)]
        data = np.empty(sum(counts), np.uint8)
        self.finish(self.comm.Iallgatherv([wire.bytes_of(own), MPI.BYTE], [data, counts, starts, MPI.BYTE]), len(data))
        parts = [data[start : start + count] for start, count in zip(starts, counts, strict=True)]
        return [wire.tensor_of(part, kind, shape) for part, (_, kind, shape) in zip(parts, kinds, strict=True)]

    def allreduce(self, tensor: Tensor) -> None:
        kind = _SUMMABLE.get(tensor.dtype)
        if kind is None or tensor.device.type != "cpu":
            super().allreduce(tensor)  # MPI has no sums of bfloat16
            return
        whole = tensor.detach().contiguous()
        flat = whole.view(-1).numpy()
        starts = range(0, len(flat), _CHUNK)
        requests = [self.comm.Iallreduce(MPI.IN_PLACE, [flat[i : i + _CHUNK], kind], MPI.SUM) for i in starts]
        self._common.wait(lambda: MPI.Request.Testall(requests), EAGER_SECONDS + 2 * whole.nbytes / _RATE)
        if whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)

    def finish(self, request: Any, size_bytes: int = 0) -> None:
        """Wait for an MPI request of about `size_bytes`, looking and sleeping. Raises GroupAborted."""
        self._common.wait(request.Test, EAGER_SECONDS + size_bytes / _RATE)

    def split(self, color: int) -> Group:
        self.barrier()  # Split itself spins
        return self._part(self.comm.Split(color, self.rank))

    def share(self, length: int) -> list[Tensor]:
        return self.share_among(self, length)

    def share_among(self, group: Group, length: int) -> list[Tensor]:
        if isinstance(group, MpiGroup) and len(set(group._hosts)) > 1:
            raise GroupError(
                f"{group.size} ranks on {len(set(group._hosts))} nodes have no common memory; share within group.node"
            )
        return memory.share_among(group, length)

    def torch_group(self) -> Any:
        """gloo over TCP; rank 0's address, of the interface in GLOO_SOCKET_IFNAME, travels by MPI. Collective."""
        if self._torch is None:
            if self._world is self:
                self._torch = make_gloo(self, interface_address(len(set(self._machines)) > 1), timeout_seconds=1800)
            else:
                self._world.torch_group()
                self._torch = torch.distributed.new_group(self._ranks, use_local_synchronization=True)
        return self._torch

    def abort(self, reason: str) -> None:
        self._common.abort(reason)

    def write_to(self, board: Board) -> None:
        """Note phases and steps on `board`, which the ranks of the node share."""
        self._board = board

    def enter(self, phase: str) -> None:
        if self._board is not None:
            self._board.enter(self._ranks[self.rank], phase)

    def at_step(self, step: int) -> None:
        if self._board is not None:
            self._board.at_step(self._ranks[self.rank], step)


def unlink_library_files() -> None:
    """Take the names off the shared-memory files that this process's MPI library maps.

    All ranks have mapped them when MPI_Init returns; without a name they go with the last rank, even after kill -9.
    """
    if not os.path.exists("/proc/self/maps"):
        return
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/dev/shm/" in line}
    for path in paths:
        if os.path.basename(path).startswith(("mpich_shm_", "sm_segment.", "vader_segment.")):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue  # another rank has removed it already

"""Sums over plain TCP: a connection between every two ranks, and a reduce-scatter and an all-gather in one stream.

    to rank q     | my numbers of q's slice | sums of my own slice, as they are ready |
    from rank q   | its numbers of my slice | sums of q's slice, as they are ready    |

Both directions move at once and never block, so full buffers on both sides can't wait for each other. A slice is added
up in blocks as soon as all ranks' numbers of a block are there, and a block's sums leave at once: with two ranks the
wire is busy both ways all the time. Each rank sends 2 (n-1)/n of the buffer, as a ring does, in one step instead of
n-1.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time

import torch
from torch import Tensor

from lockstep.engine.groups import Group, GroupAborted, GroupError, GroupTimeout
from lockstep.engine.groups.wire import bytes_of
from lockstep.engine.sync.base import cut
from lockstep.engine.sync.transports.base import Transport, add_in_rank_order
from lockstep.engine.sync.transports.connections import LOOK_SECONDS, check_not_aborted, connect_ranks

_BLOCK_BYTES = 512 << 10  # added up at once, so small that it stays in the cache
_PATIENCE_SECONDS = 1800.0  # as gloo's; a launcher's failure detector is quicker


class Sockets(Transport):
    """`patience_seconds`: after so long without any byte moved, GroupTimeout is raised."""

    def __init__(self, group: Group, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self.group, self.patience_seconds = group, patience_seconds
        self._blocks = torch.empty(group.size - 1, _BLOCK_BYTES, dtype=torch.uint8)
        self._peers = connect_ranks(group)
        self._closed = False

    def buffer(self, like: Tensor) -> Tensor:
        if like.device.type != "cpu":
            raise GroupError(f"transport='sockets' sends from the CPU's memory, not {like.device}; give device='cpu'")
        return super().buffer(like)

    def allreduce(self, piece: Tensor) -> float:
        parts = [piece[part] for part in cut(piece.numel(), self.group.size)]
        own = parts[self.group.rank]
        blocks = list(self._blocks.view(piece.dtype))
        streams = [
            _Stream(rank, self._peers[rank], parts[rank], own, block)
            for rank, block in zip(sorted(self._peers), blocks, strict=True)
        ]
        summed = 0  # bytes of this rank's slice that are summed already
        while not all(stream.done for stream in streams):
            moved = [stream.move(summed) for stream in streams]
            stop = min(summed + _BLOCK_BYTES, own.nbytes)
            if summed < stop and all(stream.got >= stop for stream in streams):
                place = slice(summed // piece.itemsize, stop // piece.itemsize)
                addends = [block[: place.stop - place.start] for block in blocks]
                add_in_rank_order(own[place], addends, self.group.rank)
                summed = stop
            elif not any(moved):
                self._wait(streams, summed)
        return float(sum(stream.sent for stream in streams))

    def _wait(self, streams: list[_Stream], summed: int) -> None:
        """Sleep until a byte can move. Raises GroupAborted, GroupTimeout."""
        until = time.monotonic() + self.patience_seconds
        with selectors.PollSelector() as selector:
            for stream in streams:
                if events := stream.wants(summed):
                    selector.register(stream.peer, events)
            while not selector.select(LOOK_SECONDS):
                check_not_aborted(self.group)
                if self._closed:
                    raise GroupError("the transport was closed while it was in use")
                if time.monotonic() > until:
                    silent = [stream.rank for stream in streams if not stream.done]
                    raise GroupTimeout(f"nothing came from ranks {silent} within {self.patience_seconds} s")

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # the peer has gone already
                peer.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it; sent data still arrive
            peer.close()


class _Stream:
    """What goes to one peer and comes from it during one sum, in bytes.

    `away` is the peer's slice of this rank's numbers, `own` this rank's slice, `block` takes the peer's numbers of it.
    """

    def __init__(self, rank: int, peer: socket.socket, away: Tensor, own: Tensor, block: Tensor) -> None:
        self.rank, self.peer = rank, peer
        self._away, self._own, self._block = (bytes_of(tensor).data for tensor in (away, own, block))
        self.total = len(self._away) + len(self._own)
        self.sent = self.got = 0

    @property
    def done(self) -> bool:
        return self.sent == self.got == self.total

    def move(self, summed: int) -> int:
        """Bytes that could be sent and received now, when `summed` bytes of the own slice are sums."""
        before = self.sent + self.got
        try:
            if ready := self._to_send(summed):
                with contextlib.suppress(BlockingIOError):
                    self.sent += self.peer.send(ready)
            if room := self._to_fill(summed):
                with contextlib.suppress(BlockingIOError):
                    count = self.peer.recv_into(room)
                    if count == 0:
                        raise GroupAborted(f"rank {self.rank} has left the group")
                    self.got += count
        except OSError as error:
            raise GroupAborted(f"rank {self.rank} has left the group: {error}") from error
        return self.sent + self.got - before

    def wants(self, summed: int) -> int:
        """The events that would let a byte move."""
        reading = selectors.EVENT_READ if self._to_fill(summed) else 0
        return reading | (selectors.EVENT_WRITE if self._to_send(summed) else 0)

    def _to_send(self, summed: int) -> memoryview:
        if self.sent < len(self._away):
            return self._away[self.sent :]
        return self._own[self.sent - len(self._away) : summed]

    def _to_fill(self, summed: int) -> memoryview:
        if self.got < len(self._own):
            return self._block[self.got - summed : len(self._own) - summed]
        # The peer has added these up already, so they may be overwritten.
        return self._away[self.got - len(self._own) :]

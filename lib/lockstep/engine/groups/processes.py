"""Ranks that are processes of one machine.

Small messages go through a socket per pair of ranks, made by the launcher before the processes start:
nothing to look up, nothing on disk, and a rank that dies closes its sockets, which its peers notice at
once. Bulk sums go through gloo; common memory is an anonymous file that all ranks map.
"""

from __future__ import annotations

import contextlib
import pickle
import selectors
import socket
import struct
import threading
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.groups import memory
from lockstep.engine.groups.base import ANY, CanShare, Group, GroupAborted, GroupError
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.gloo import make_gloo
from lockstep.engine.groups.mailbox import Mailbox
from lockstep.engine.thread_names import name_training_thread

_HEADER = struct.Struct("!IQ")  # bytes of the pickled (tag, dtype, shape), bytes of the tensor
_ABORT = "abort"


class ProcessGroup(Group, CanShare):
    """This process's rank. `peers` holds a connected stream socket for every other rank.

    `gloo_timeout_seconds`: a gloo collective that takes longer raises; the launcher's failure detector is quicker.
    """

    sums_with_torch = True

    def __init__(
        self, rank: int, size: int, peers: dict[int, socket.socket], board: Board, gloo_timeout_seconds: float = 1800
    ) -> None:
        self.rank, self.size = rank, size
        self._peers, self._board = peers, board
        self._locks = {other: threading.Lock() for other in peers}
        self._box = Mailbox()
        self._gloo: Any = None
        self._gloo_timeout_seconds = gloo_timeout_seconds
        self._reader = threading.Thread(target=self._read_all, name="lockstep-messages", daemon=True)
        self._reader.start()

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        if destination == self.rank:
            self._box.deliver(self.rank, tag, tensor.detach().clone())
            return
        array = tensor.detach().cpu().contiguous().numpy()
        head = pickle.dumps((tag, array.dtype.str, array.shape))
        data = array.reshape(-1).view(np.uint8).data
        try:
            with self._locks[destination]:
                peer = self._peers[destination]
                peer.sendall(_HEADER.pack(len(head), len(data)) + head)
                peer.sendall(data)
        except OSError as error:
            raise GroupAborted(f"rank {destination} has left the group: {error}") from error

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        return self._box.take(source, tag, deadline_seconds)

    def _read_all(self) -> None:
        """Move the messages of all peers into the mailbox until the peers are gone. Runs in its own thread."""
        name_training_thread("receive")
        with selectors.DefaultSelector() as selector:
            for other, peer in self._peers.items():
                selector.register(peer, selectors.EVENT_READ, other)
            while selector.get_map():
                for key, _ in selector.select():
                    try:
                        tag, tensor = _read(self._peers[key.data])
                    except (OSError, EOFError):
                        selector.unregister(key.fileobj)
                        self._box.abort(f"rank {key.data} has left the group")
                        continue
                    if tag == _ABORT:
                        self._box.abort(tensor.numpy().tobytes().decode())
                    else:
                        self._box.deliver(key.data, tag, tensor)

    def abort(self, reason: str) -> None:
        text = torch.from_numpy(np.frombuffer(reason.encode() or b" ", dtype=np.uint8).copy())
        self._box.abort(reason)
        for other in self._peers:
            try:
                self.send(text, other, _ABORT)
            except GroupError:
                continue  # it has ended already

    def torch_group(self) -> Any:
        """The default gloo group, made at the first call, which is collective."""
        if self._gloo is None:
            self._gloo = make_gloo(self, "127.0.0.1", self._gloo_timeout_seconds)
        return self._gloo

    def allreduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=self.torch_group())

    def share(self, length: int) -> list[Tensor]:
        return self.share_among(self, length)

    def share_among(self, group: Group, length: int) -> list[Tensor]:
        return memory.share_among(group, length)

    def enter(self, phase: str) -> None:
        self._board.enter(self.rank, phase)

    def at_step(self, step: int) -> None:
        self._board.at_step(self.rank, step)

    def close(self) -> None:
        """Leave the group, which the peers report as 'has left the group'."""
        if self._gloo is not None:
            dist.destroy_process_group()
            self._gloo = None
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # the peer has ended already
                peer.shutdown(socket.SHUT_RDWR)  # wakes a reading thread, which close() alone would leave waiting
        self._reader.join()
        for peer in self._peers.values():
            peer.close()


def _read(peer: socket.socket) -> tuple[str, Tensor]:
    head_bytes, data_bytes = _HEADER.unpack(_exactly(peer, _HEADER.size))
    tag, kind, shape = pickle.loads(_exactly(peer, head_bytes))
    data = _exactly(peer, data_bytes)
    return tag, torch.from_numpy(np.frombuffer(data, dtype=kind).reshape(shape))


def _exactly(peer: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        got = peer.recv_into(view[filled:])
        if got == 0:
            raise EOFError
        filled += got
    return data

"""Ranks that are processes on any machines, with a TCP connection between every two of them.

host a   rank 0 --- rank 1          node: the ranks of one host, which share memory
           |    X    |             leaders: the first rank of each host
host b   rank 2 --- rank 3          sums: gloo, over the same network
"""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lockstep.engine.groups import memory
from lockstep.engine.groups.base import Group, GroupError, SubGroup
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.gloo import interface_address, make_gloo
from lockstep.engine.groups.processes import ProcessGroup

_CONNECT_SECONDS = 60.0
_GREETING_SECONDS = 5.0  # a connection that sends nothing is hung up on after this
_MOST_STRANGERS = 500  # at a time; select takes 1024 descriptors


class TcpGroup(ProcessGroup):
    """This process's rank. `hosts`: the machine of each rank, by name; `peers` as in `ProcessGroup`."""

    def __init__(self, rank: int, hosts: Sequence[str], peers: dict[int, socket.socket], board: Board) -> None:
        self.hosts = list(hosts)
        super().__init__(rank, len(hosts), peers, board)
        mine = [other for other, host in enumerate(hosts) if host == hosts[rank]]
        firsts = sorted({self.hosts.index(host) for host in hosts})
        self._node = self if len(mine) == self.size else SubGroup(self, mine, f"node {mine[0]}")
        self._leaders = SubGroup(self, firsts, "leaders") if len(firsts) > 1 and rank in firsts else None

    @property
    def node(self) -> Group:
        return self._node

    @property
    def leaders(self) -> Group | None:
        return self._leaders

    def torch_group(self) -> Any:
        """gloo over TCP, at rank 0's address on the interface in GLOO_SOCKET_IFNAME. The first call is collective."""
        if self._gloo is None:
            address = interface_address(len(set(self.hosts)) > 1)
            self._gloo = make_gloo(self, address, self._gloo_timeout_seconds)
        return self._gloo

    def share_among(self, group: Group, length: int) -> list[Tensor]:
        if group is self and self._node is not self:
            raise GroupError(
                f"{self.size} ranks on {len(set(self.hosts))} hosts have no common memory; share within group.node"
            )
        return memory.share_among(group, length)


def connect_all(
    rank: int, addresses: Sequence[tuple[str, int]], listening: socket.socket, key: bytes
) -> dict[int, socket.socket]:
    """A connection to every other rank. Collective. `addresses`: where each rank listens; `key`: the team's secret.

    A rank connects to those before it and waits for those after it. Raises GroupError, with the rank that is missing.
    """
    peers: dict[int, socket.socket] = {}
    proof = hmac.digest(key, b"lockstep", "sha256")
    for other in range(rank):
        try:
            peers[other] = socket.create_connection(addresses[other], timeout=_CONNECT_SECONDS)
        except OSError as error:
            host, port = addresses[other]
            raise GroupError(
                f"rank {rank} can't reach rank {other} at {host}:{port}: {error}; executors must reach each other on "
                "any port"
            ) from error
        peers[other].sendall(proof + rank.to_bytes(4, "big"))
    peers |= _arrivals(listening, proof, set(range(rank + 1, len(addresses))), rank)
    for peer in peers.values():
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peers


def _arrivals(listening: socket.socket, proof: bytes, expected: set[int], rank: int) -> dict[int, socket.socket]:
    """The connections of the `expected` ranks, among those of strangers who know no key. Raises GroupError.

    All are listened to at once: strangers that send garbage, or nothing, keep no rank waiting.
    """
    found: dict[int, socket.socket] = {}
    waiting: dict[socket.socket, tuple[bytes, float]] = {}  # what it has sent so far, and until when it may send
    end = time.monotonic() + _CONNECT_SECONDS
    try:
        while missing := expected - set(found):
            if time.monotonic() > end:
                raise GroupError(f"rank {rank} waited {_CONNECT_SECONDS:.0f} s for rank {min(missing)} in vain")
            ready, _, _ = select.select([listening, *waiting], [], [], 0.2)
            for peer in [late for late, (_, until) in waiting.items() if time.monotonic() > until]:
                waiting.pop(peer)
                peer.close()
            if listening in ready and len(waiting) < _MOST_STRANGERS:
                with contextlib.suppress(OSError):
                    waiting[listening.accept()[0]] = (b"", time.monotonic() + _GREETING_SECONDS)
            for peer in [each for each in ready if each in waiting]:
                received, until = waiting.pop(peer)
                received += (more := _received(peer, len(proof) + 4 - len(received)))
                known = _rank_of(received, proof)
                if known in missing:
                    found[known] = peer
                elif more and proof.startswith(received[: len(proof)]) and len(received) < len(proof) + 4:
                    waiting[peer] = (received, until)
                else:
                    peer.close()  # it does not belong to this team
    finally:
        for peer in waiting:
            peer.close()
    return found


def _received(peer: socket.socket, most: int) -> bytes:
    with contextlib.suppress(OSError):
        return peer.recv(most)
    return b""


def _rank_of(received: bytes, proof: bytes) -> int:
    """The rank that has sent all this; -1 as long as it has not, or without the key."""
    if len(received) < len(proof) + 4 or not hmac.compare_digest(received[: len(proof)], proof):
        return -1
    return int.from_bytes(received[len(proof) :], "big")

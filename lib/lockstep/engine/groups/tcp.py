"""Ranks that are processes on any machines, with a TCP connection between every two of them.

host a   rank 0 --- rank 1          node: the ranks of one host, which share memory
           |    X    |             leaders: the first rank of each host
host b   rank 2 --- rank 3          sums: gloo, over the same network
"""

from __future__ import annotations

import contextlib
import hmac
import socket
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lockstep.engine.groups import memory
from lockstep.engine.groups.base import Group, GroupError, SubGroup
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.gloo import interface_address, make_gloo
from lockstep.engine.groups.processes import ProcessGroup

_CONNECT_SECONDS = 60.0
_GREETING_SECONDS = 5.0  # a connection that sends nothing keeps the ranks waiting no longer than this


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
    listening.settimeout(_CONNECT_SECONDS)
    while len(peers) < len(addresses) - 1:
        try:
            peer, _ = listening.accept()
        except TimeoutError:
            missing = sorted(set(range(len(addresses))) - set(peers) - {rank})
            raise GroupError(f"rank {rank} waited {_CONNECT_SECONDS:.0f} s for rank {missing[0]} in vain") from None
        known = _greeting(peer, proof)
        if known is None or known in peers:
            peer.close()  # it does not belong to this team
        else:
            peers[known] = peer
    for peer in peers.values():
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peers


def _greeting(peer: socket.socket, proof: bytes) -> int | None:
    """The rank that has connected; None for a connection without the key."""
    peer.settimeout(_GREETING_SECONDS)
    received = b""
    with contextlib.suppress(OSError):
        while len(received) < len(proof) + 4 and (more := peer.recv(len(proof) + 4 - len(received))):
            received += more
    if len(received) < len(proof) + 4 or not hmac.compare_digest(received[: len(proof)], proof):
        return None
    return int.from_bytes(received[len(proof) :], "big")

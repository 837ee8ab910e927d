"""Makes a TCP connection between every two ranks of a group, and refuses all other connections.

    rank 0 listens                          rank 2
      | <-------------- connects ------------ |
      | <------ 2, the secret of rank 0 ----- |    closed if the secret is wrong or missing
      | ------- the secret of rank 2 -------> |

Addresses and secrets travel through the group. Each rank connects to the ranks below it and accepts those above it.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.engine.groups import ANY, Group, GroupAborted, GroupError, GroupTimeout, allgather_object
from lockstep.engine.groups.gloo import interface_address

LOOK_SECONDS = 0.05  # how often a rank that waits for a socket checks whether another rank aborted
_CONNECT_SECONDS = 60.0
_SECRET_BYTES = 16
_HELLO = struct.Struct(f"!I{_SECRET_BYTES}s")  # rank of the connecting side, secret of the accepting side


@dataclass(frozen=True)
class Endpoint:
    """The address at which a rank listens, and the secret that connecting ranks must send."""

    host: str
    port: int
    secret: bytes


def check_not_aborted(group: Group) -> None:
    """Raises GroupAborted if a rank of `group` has aborted."""
    with contextlib.suppress(GroupTimeout):
        group.receive(ANY, "nobody sends this", 0.001)  # long enough for every kind of group to poll once


def connect_ranks(group: Group, within_seconds: float = _CONNECT_SECONDS) -> dict[int, socket.socket]:
    """A non-blocking connection to every other rank. Collective. Raises GroupAborted, GroupTimeout."""
    hosts = set(allgather_object(group, socket.gethostname()))
    until = time.monotonic() + within_seconds
    with contextlib.ExitStack() as on_error:
        with _listening(interface_address(len(hosts) > 1)) as listener:
            host, port = listener.getsockname()
            endpoints = allgather_object(group, Endpoint(host, port, secrets.token_bytes(_SECRET_BYTES)))
            peers: dict[int, socket.socket] = {}
            for rank in range(group.rank):
                peers[rank] = on_error.enter_context(_call(group, rank, endpoints, until))
            for rank, peer in _answer(group, listener, endpoints, until):
                peers[rank] = on_error.enter_context(peer)
        for peer in peers.values():
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        on_error.pop_all()
    return peers


@contextlib.contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    with socket.create_server((address, 0), backlog=socket.SOMAXCONN) as listener:
        listener.setblocking(False)
        yield listener


def _call(group: Group, rank: int, endpoints: list[Endpoint], until: float) -> socket.socket:
    """Connect to `rank`, which must prove that it belongs to this job too."""
    endpoint = endpoints[rank]
    try:
        peer = socket.create_connection((endpoint.host, endpoint.port), timeout=max(0.1, until - time.monotonic()))
    except OSError as error:
        raise GroupError(
            f"rank {group.rank} can't reach rank {rank} at {endpoint.host} port {endpoint.port}: {error}; "
            "name an interface that all hosts reach with --iface (or GLOO_SOCKET_IFNAME)"
        ) from error
    with contextlib.ExitStack() as on_error:
        on_error.enter_context(peer)
        peer.sendall(_HELLO.pack(group.rank, endpoint.secret))
        peer.settimeout(LOOK_SECONDS)
        received = b""
        while len(received) < _SECRET_BYTES:
            with contextlib.suppress(TimeoutError):
                more = _receive(peer, _SECRET_BYTES - len(received))
                if not more:
                    raise GroupAborted(f"rank {rank} has left the group")
                received += more
            _in_time(group, until, f"rank {rank} at {endpoint.host} port {endpoint.port}")
        if not hmac.compare_digest(received, endpoints[group.rank].secret):
            raise GroupError(f"what answers at {endpoint.host} port {endpoint.port} is not rank {rank} of this job")
        on_error.pop_all()
    return peer


def _answer(
    group: Group, listener: socket.socket, endpoints: list[Endpoint], until: float
) -> Iterator[tuple[int, socket.socket]]:
    """Yields the ranks above this one as they connect. A caller that does not belong to this job is closed at once, a
    silent one at the end."""
    expected = set(range(group.rank + 1, group.size))
    heard: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        try:
            while expected:
                for key, _ in selector.select(LOOK_SECONDS):
                    if key.fileobj is listener:
                        caller = listener.accept()[0]
                        caller.setblocking(False)
                        heard[caller] = b""
                        selector.register(caller, selectors.EVENT_READ)
                        continue
                    caller = next(one for one in heard if one is key.fileobj)
                    more = _receive(caller, _HELLO.size - len(heard[caller]))
                    heard[caller] += more
                    if more and len(heard[caller]) < _HELLO.size:
                        continue
                    selector.unregister(caller)
                    rank = _caller(heard.pop(caller), expected, endpoints[group.rank].secret)
                    if rank is None:
                        caller.close()
                        continue
                    # If it has ended, the first use of the connection will report it.
                    with contextlib.suppress(OSError):
                        caller.sendall(endpoints[rank].secret)
                    expected.remove(rank)
                    yield rank, caller
                _in_time(group, until, f"ranks {sorted(expected)}")
        finally:
            for caller in heard:
                caller.close()


def _receive(peer: socket.socket, count: int) -> bytes:
    """Receives at most `count` bytes; none if the other side has closed. Raises TimeoutError."""
    try:
        return peer.recv(count)
    except ConnectionError:
        return b""


def _caller(hello: bytes, expected: set[int], secret: bytes) -> int | None:
    """The rank that has sent `hello`, if it knows the secret and is expected."""
    if len(hello) < _HELLO.size:
        return None
    rank, received = _HELLO.unpack(hello)
    return rank if hmac.compare_digest(received, secret) and rank in expected else None


def _in_time(group: Group, until: float, who: str) -> None:
    check_not_aborted(group)
    if time.monotonic() > until:
        raise GroupTimeout(f"rank {group.rank} has no connection to {who} in time; do all hosts reach each other?")

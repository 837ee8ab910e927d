"""Where a run's processes listen: every TCP and UDP socket of them, as the kernel lists it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import psutil


class Listening(NamedTuple):
    """A socket that others can send to."""

    program: str
    kind: str
    address: str
    port: int


def family_of(pids: Iterable[int]) -> list[psutil.Process]:
    """These processes and all below them."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    return found


def sockets_of(pids: Iterable[int]) -> list[Listening]:
    """All of these processes and of those below them that are in this network."""
    return [one for process in family_of(pids) for one in _of(process)]


def _of(process: psutil.Process) -> Iterator[Listening]:
    with contextlib.suppress(psutil.Error, OSError):
        if os.readlink(f"/proc/{process.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return  # no stranger reaches a network of its own
        for each in process.net_connections("inet"):
            if each.status == psutil.CONN_LISTEN or (each.type == socket.SOCK_DGRAM and not each.raddr):
                yield Listening(process.name(), each.type.name, each.laddr.ip, each.laddr.port)


def beyond_loopback(found: Iterable[Listening]) -> list[Listening]:
    """Those that other machines can reach."""
    return [one for one in found if not _loopback(one.address)]


def _loopback(address: str) -> bool:
    known = ipaddress.ip_address(address)
    mapped = getattr(known, "ipv4_mapped", None)
    return (mapped or known).is_loopback

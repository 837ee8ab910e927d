"""Makes a torch.distributed group from ranks that can exchange messages already, which carry its store's address."""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any

import psutil
import torch
import torch.distributed as dist

from lockstep.engine.groups.base import Group, GroupError

_ADDRESS_BYTES = 64


def make_gloo(group: Group, address: str, timeout_seconds: float) -> Any:
    """The process's default gloo group, of all ranks of `group`. Collective.

    rank 0   opens a store on `address` and nowhere else, broadcasts "address port"
    others   connect to it; gloo then finds the ranks through the store

    `address` is rank 0's, as the others reach it. gloo itself uses the interface named by GLOO_SOCKET_IFNAME.
    """
    place = torch.zeros(_ADDRESS_BYTES, dtype=torch.uint8)
    if group.rank == 0:
        # A store that opens its own port listens on every interface, and anybody may read and write it.
        listening = socket.create_server((address, 0), backlog=512)
        port = listening.getsockname()[1]
        handle = listening.detach()  # the store closes it
        store = dist.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=handle)
        text = f"{address} {port}".encode().ljust(_ADDRESS_BYTES, b"\0")
        place = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    group.broadcast(place)
    if group.rank != 0:
        host, port = place.numpy().tobytes().rstrip(b"\0").decode().split()
        store = dist.TCPStore(host, int(port), is_master=False)
    timeout = datetime.timedelta(seconds=timeout_seconds)
    dist.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size, timeout=timeout)
    return dist.group.WORLD


def interface_address(several_hosts: bool) -> str:
    """The IPv4 address at which other hosts reach this one: that of the interface in GLOO_SOCKET_IFNAME (`--iface`).

    Without that variable it is 127.0.0.1 for a single host, else the address of this host's name. Raises GroupError.
    """
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if not name and not several_hosts:
        return "127.0.0.1"
    if not name:
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError as error:
            raise GroupError(
                f"{socket.gethostname()} has no address: {error}; name an interface with --iface"
            ) from None
    interfaces = psutil.net_if_addrs()
    for address in interfaces.get(name, []):
        if address.family == socket.AF_INET:
            return address.address
    raise GroupError(
        f"network interface {name!r} has no IPv4 address on {socket.gethostname()}; there are: "
        f"{', '.join(sorted(interfaces))}; name one with --iface (or GLOO_SOCKET_IFNAME)"
    )

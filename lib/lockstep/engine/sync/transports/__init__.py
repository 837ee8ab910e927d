"""How the sums of `sync=allreduce` travel: the network protocols that Single-to-Multi compares (section 3.3.2).

messages   the group's own all-reduce: MPI, gloo between processes, memory between threads
rma        one-sided MPI, the portable way to RDMA: ranks read each other's memory
sockets    plain TCP: "the developer has to design how and which information to send to other nodes"
"""

from __future__ import annotations

from lockstep.engine.groups import Group
from lockstep.engine.sync.transports.base import Messages, Transport

TRANSPORTS = ("messages", "rma", "sockets")


def transport_of(name: str, group: Group) -> Transport:
    """The transport that `Job.transport` names, between the ranks of `group`. Collective.

    Raises GroupError where there can be none.
    """
    if name == "rma":
        from lockstep.engine.sync.transports.rma import OneSided  # it needs MPI, which other groups may lack

        return OneSided(group)
    if name == "sockets":
        from lockstep.engine.sync.transports.sockets import Sockets

        return Sockets(group)
    if name != "messages":
        raise ValueError(f"transport={name!r} does not exist; there are: {', '.join(TRANSPORTS)}")
    return Messages(group)


__all__ = ["TRANSPORTS", "Transport", "transport_of"]

"""Strategies of other libraries, behind one call: `run(job, group, site) -> Trace`, by the name in `Job.sync`.

A new peer is a file here and a line in `lockstep.engine.registry.PEERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from lockstep.engine import registry
from lockstep.engine.peers.base import Peer

if TYPE_CHECKING:
    from lockstep.engine.training.loop import Trace

PEERS = cast("dict[str, type[Peer]]", registry.peers())


def run_function(sync: str) -> Callable[..., Trace]:
    """The function that every rank of a job with this sync calls: a peer's `run`, or else `run_job`."""
    if sync in PEERS:
        return PEERS[sync].run
    from lockstep.engine.training.loop import run_job

    return run_job


__all__ = ["PEERS", "Peer", "run_function"]

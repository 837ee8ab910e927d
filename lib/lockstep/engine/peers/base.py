"""The base class of peers, which bring their own exchange and perhaps their own training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lockstep.engine.declared import DeclaredSync

if TYPE_CHECKING:
    from lockstep.engine.groups import Group
    from lockstep.engine.job import Job
    from lockstep.engine.training.loop import Site, Trace


class Peer(DeclaredSync, ABC):
    """Not instantiated: its class attributes declare it, as those of a sync do, and `run` trains."""

    frameworks = ("torch",)

    @staticmethod
    @abstractmethod
    def run(job: Job, group: Group, site: Site | None = None) -> Trace:
        """Train as `job` says, on every rank of `group`. Collective. Raises what the peer raises."""

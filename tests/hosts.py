"""Several hosts on one machine: a group whose ranks believe that they are on different nodes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lockstep.engine.groups import ANY, Group
from lockstep.engine.groups.base import CanShare, SubGroup
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace, run_job


class Hosts(Group, CanShare):
    """`whole`, on nodes of `sizes` ranks each, in rank order. `between_bytes`: what this rank sent to other nodes.

    Collectives are those of `Group`, over messages, so that every byte is counted.
    """

    def __init__(self, whole: Group, sizes: tuple[int, ...]) -> None:
        assert sum(sizes) == whole.size
        self.whole, self.rank, self.size = whole, whole.rank, whole.size
        self.host_of = [host for host, count in enumerate(sizes) for _ in range(count)]
        self.between_bytes = 0
        mine = [rank for rank in range(self.size) if self.host_of[rank] == self.host_of[self.rank]]
        self._node = SubGroup(self, mine, f"node {mine[0]}")

    @property
    def node(self) -> Group:
        return self._node

    def send(self, tensor: Tensor, destination: int, tag: str = "") -> None:
        if self.host_of[destination] != self.host_of[self.rank]:
            self.between_bytes += tensor.numel() * tensor.element_size()
        self.whole.send(tensor, destination, tag)

    def receive(self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None) -> tuple[int, Tensor]:
        return self.whole.receive(source, tag, deadline_seconds)

    def share(self, length: int) -> list[Tensor]:
        raise AssertionError("ranks on several nodes have no common memory")

    def share_among(self, group: Group, length: int) -> list[Tensor]:
        assert len({self.host_of[rank] for rank in group.ranks}) == 1  # type: ignore[attr-defined]
        assert isinstance(self.whole, CanShare)
        return self.whole.share_among(group, length)

    def abort(self, reason: str) -> None:
        self.whole.abort(reason)

    def torch_group(self) -> Any:
        return self.whole.torch_group()

    def enter(self, phase: str) -> None:
        self.whole.enter(phase)

    def at_step(self, step: int) -> None:
        self.whole.at_step(step)


def run_on_hosts(job: Job, group: Group, site: Site, sizes: tuple[int, ...] = ()) -> Trace:
    """`run_job` on emulated hosts; the trace's scores tell what crossed from this rank's host, per step."""
    hosts = Hosts(group, sizes)
    before = hosts.between_bytes
    trace = run_job(job, hosts, site)
    trace.scores["between_bytes"] = float(hosts.between_bytes - before)
    return trace

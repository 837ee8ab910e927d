"""What the simulated machines cost: workers with a core each, one server, and the link of the server.

    worker      compute_seconds(images) of every micro-batch, and what delays add
    message     alpha on the way, and the server's link is taken for bytes x beta: one message after the other
    server      an update takes update_seconds; meanwhile nothing is received

    worker 0 --- computes --->|alpha|[bytes]                 |alpha|--- computes --->
    worker 1 --- computes ------>|alpha|      [bytes][update][0][1]|alpha|--- computes
                                              server receives, updates, sends parameters to 0, then to 1

With n workers and no delays a round takes compute + 2 alpha + (n + 1) bytes x beta + update where computing is long,
for messages to and from others pass meanwhile, and 2 n bytes x beta + update where it is short: the chain that the cost
model charges one server with (`lockstep.predict.link_model`), which hides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.analysis.statistics import AnalysisError
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate.clock import nanoseconds


@dataclass(frozen=True)
class Cluster:
    """`standby` of the workers, the last ones, compute for others only. Raises AnalysisError for what can't be."""

    workers: int
    costs: Costs
    link: AlphaBeta
    update_seconds: float = 0.0
    standby: int = 0

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise AnalysisError(f"a cluster of workers={self.workers} computes nothing; give at least 1")
        if not 0 <= self.standby < self.workers:
            raise AnalysisError(f"standby={self.standby} of {self.workers} workers leaves nobody to train; give fewer")
        if not self.update_seconds >= 0:
            raise AnalysisError(f"update_seconds={self.update_seconds} is not possible; give at least 0")

    @property
    def latency(self) -> int:
        """Nanoseconds from the end of a computation to the server, or from the server to the beginning of one."""
        return nanoseconds(self.link.alpha_seconds)

    @property
    def message_seconds(self) -> float:
        """How long a gradient, or the parameters, take the server's link."""
        return self.link.beta_seconds_per_byte * self.costs.gradient_bytes

    @property
    def message(self) -> int:
        """The same in nanoseconds."""
        return nanoseconds(self.message_seconds)

    @property
    def update(self) -> int:
        """Nanoseconds of an update."""
        return nanoseconds(self.update_seconds)

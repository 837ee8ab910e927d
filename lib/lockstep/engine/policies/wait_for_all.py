"""Synchronous: an update takes every worker's contribution.

Single-to-Multi 3.3.1 ("synchronization of the gradient occurs ... to ensure that all models are identical");
ConvLSTM-D-Accel 3, steps 1-4 ("after collecting all gradients"), and its Algorithm 1 ("wait for synchronization").
"""

from __future__ import annotations

from lockstep.engine.policies.base import Decision, Policy


class WaitForAll(Policy):
    """No worker continues before all have arrived; contributions are summed in rank order."""

    does = "a server waits until every worker has contributed, then makes one update of all contributions"
    label = "wait for all"
    takes_all = True

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._here: set[int] = set()

    def arrived(self, worker: int, version: int, now: float) -> Decision:
        """Raises ValueError for a worker that does not exist or has arrived already."""
        del version, now
        if worker in self._here or not 0 <= worker < self.workers:
            raise ValueError(f"worker {worker} of {self.workers} can't arrive: {sorted(self._here)} wait already")
        self._here.add(worker)
        if len(self._here) < self.workers:
            return Decision()
        everybody = tuple(sorted(self._here))
        self._here.clear()
        return Decision(apply=everybody, release=everybody)

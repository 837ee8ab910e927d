"""A policy says whose contributions make up the next update, and who may go on.

It receives events and answers with decisions. It sends nothing, computes nothing and never reads a clock: the caller
passes the time. So the same object can decide for a real server and in a simulation.

    worker 0 ---- arrived(0, version 3, now) ---->          Decision()                     wait
    worker 2 ---- arrived(2, version 3, now) ---->  policy  Decision()                     wait
    worker 1 ---- arrived(1, version 3, now) ---->          Decision(apply=(0, 1, 2),      one update of all three
                                                                     release=(0, 1, 2))    all get new parameters
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lockstep.engine.declared import DeclaredPolicy


@dataclass(frozen=True)
class Decision:
    """What the server does now, in this order: `drop`, then one update of `apply`, then `release`."""

    drop: tuple[int, ...] = ()  # workers whose waiting contribution is discarded
    apply: tuple[int, ...] = ()  # workers whose contributions are summed, in this order, into one update
    release: tuple[int, ...] = ()  # workers that get the present parameters and continue


class Policy(DeclaredPolicy, ABC):
    """Decides for a server of `workers` workers. A worker has one contribution waiting at most.

    Each worker that has contributed must eventually be released, and each contribution is applied or dropped once.
    The options that a policy declares are arguments of its constructor, by their names.
    """

    def __init__(self, workers: int) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            raise ValueError(f"workers={workers!r} is not possible; give a whole number of at least 1")
        self.workers = workers

    @abstractmethod
    def arrived(self, worker: int, version: int, now: float) -> Decision:
        """`worker` has contributed, computed on parameters that had seen `version` updates; `now` in seconds."""

    def wake_at(self) -> float | None:
        """When to call `woke` if no worker arrives before, in seconds of the same clock; None: never."""
        return None

    def woke(self, now: float) -> Decision:
        """The time of `wake_at` has come."""
        del now
        return Decision()

"""The straggler policies in virtual time: the same objects that a server of real ranks asks, another clock.

    simulate(policy, cluster, delays, until)          all workers of a round at once, where the policy decides in rounds
    simulate(..., learner=...), or keep_tasks=True    event by event: with real gradients, and a table of tasks

Both paths end every step at the same nanosecond.
"""

from __future__ import annotations

from lockstep.simulate.cluster import Cluster
from lockstep.simulate.ending import Until
from lockstep.simulate.running import simulate
from lockstep.simulate.tasks import SimulatedRun

__all__ = ["Cluster", "SimulatedRun", "Until", "simulate"]

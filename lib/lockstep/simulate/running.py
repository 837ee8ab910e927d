"""Chooses the path of a simulation: all workers of a round at once, or event by event."""

from __future__ import annotations

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import Delays
from lockstep.engine.policies.base import Policy
from lockstep.engine.policies.rounds import RoundPolicy
from lockstep.simulate.cluster import Cluster
from lockstep.simulate.ending import Until
from lockstep.simulate.events import Events
from lockstep.simulate.learner import Learner
from lockstep.simulate.rounds import Rounds, refusal
from lockstep.simulate.tasks import SimulatedRun

PATHS = ("auto", "rounds", "events")


def simulate(
    policy: Policy, cluster: Cluster, delays: Delays, until: Until, *, learner: Learner | None = None,
    keep_tasks: bool = False, path: str = "auto",
) -> SimulatedRun:  # fmt: skip
    """Run `policy` on `cluster` in virtual time.

    `learner` computes real gradients; without it only time passes. `path`: rounds (all workers at once), events, or
    auto, which takes the first where it can. Raises AnalysisError for a policy or a wish that the path named can't
    serve.
    """
    if path not in PATHS:
        raise AnalysisError(f"path={path!r} does not exist; there are: {', '.join(PATHS)}")
    wants_events = learner is not None or keep_tasks
    policy.hear_of_gaps(delays.begins_anew)
    if path == "rounds" and wants_events:
        raise AnalysisError("path='rounds' has neither gradients nor a table of tasks; give path='events'")
    if path == "events" or wants_events or (path == "auto" and refusal(policy)):
        return Events(policy, cluster, delays, until, learner, keep_tasks).run()
    if not isinstance(policy, RoundPolicy):
        raise AnalysisError(f"{type(policy).__name__} can't be simulated with all workers at once: {refusal(policy)}")
    return Rounds(policy, cluster, delays, until).run()

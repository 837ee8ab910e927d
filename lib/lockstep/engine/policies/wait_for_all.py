"""Synchronous: an update takes every worker's contribution.

Single-to-Multi 3.3.1 ("synchronization of the gradient occurs ... to ensure that all models are identical");
ConvLSTM-D-Accel 3, steps 1-4 ("after collecting all gradients"), and its Algorithm 1 ("wait for synchronization").
"""

from __future__ import annotations

from lockstep.engine.policies.base import Needs
from lockstep.engine.policies.rounds import RoundPolicy


class WaitForAll(RoundPolicy):
    """No worker continues before all have arrived; contributions are summed in rank order."""

    does = "a server waits until every worker has contributed, then makes one update of all contributions"
    label = "wait for all"
    takes_all = True
    everyone = True
    needs = Needs(one_decider=False)

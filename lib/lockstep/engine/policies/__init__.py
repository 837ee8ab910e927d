"""What a parameter server decides: pure logic, the same on a real clock and in virtual time.

A new policy is a file here and a line in `lockstep.engine.registry.POLICIES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from lockstep.engine import registry
from lockstep.engine.policies.base import Decision, Policy
from lockstep.engine.policies.wait_for_all import WaitForAll

if TYPE_CHECKING:
    from lockstep.engine.job import Job

POLICIES = cast("dict[str, type[Policy]]", registry.policies())
"""By the name in `Job.policy`."""

MakePolicy = Callable[[int], Policy]
"""The policy of a server of so many workers."""


def make_policy(job: Job) -> MakePolicy:
    """The policy that `job.policy` names, with the options that it declares."""
    policy = POLICIES[job.policy]
    options = {option.name: getattr(job, option.name) for option in policy.options}
    return functools.partial(policy, **options) if options else policy


__all__ = ["POLICIES", "Decision", "MakePolicy", "Policy", "WaitForAll", "make_policy"]

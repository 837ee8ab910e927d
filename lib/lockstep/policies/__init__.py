"""What a parameter server decides: pure logic, the same on a real clock and in virtual time."""

from lockstep.policies.base import Decision, Policy
from lockstep.policies.wait_for_all import WaitForAll

POLICIES: dict[str, type[Policy]] = {"wait_for_all": WaitForAll}
"""By the name in `Job.policy`."""

__all__ = ["POLICIES", "Decision", "Policy", "WaitForAll"]

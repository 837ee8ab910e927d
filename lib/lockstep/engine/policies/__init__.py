"""What a parameter server decides: pure logic, the same on a real clock and in virtual time.

A new policy is a file here and a line in `lockstep.engine.registry.POLICIES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from lockstep.engine import registry
from lockstep.engine.option_text import options_text, parse_options
from lockstep.engine.options import JobError
from lockstep.engine.policies.base import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    GradientStandIn,
    Left,
    Needs,
    Policy,
    Progressed,
    Setting,
    Updated,
    Use,
    Work,
)
from lockstep.engine.policies.not_applicable import NOT_APPLICABLE
from lockstep.engine.policies.wait_for_all import WaitForAll

if TYPE_CHECKING:
    from lockstep.engine.job import Job

POLICIES = cast("dict[str, type[Policy]]", registry.policies())
"""By the name in `Job.policy`."""

MakePolicy = Callable[[Setting], Policy]


def policy_of(name: str, options: str, setting: Setting) -> Policy:
    """The policy of this name with options such as `k=6`. Raises JobError for a name or options that do not exist."""
    if name not in POLICIES:
        raise JobError(f"policy={name!r} does not exist; there are: {', '.join(POLICIES)}")
    kind = POLICIES[name]
    return kind(setting, parse_options(options, kind.Options, f"policy {name!r}"))


def canonical_options(name: str, options: str) -> str:
    """The same options in canonical order, without those that have their defaults. Raises JobError as `policy_of`."""
    if name not in POLICIES:
        raise JobError(f"policy={name!r} does not exist; there are: {', '.join(POLICIES)}")
    return options_text(parse_options(options, POLICIES[name].Options, f"policy {name!r}"))


def make_policy(job: Job) -> MakePolicy:
    """The policy that `job.policy` names, with the job's options. Raises JobError when it is made."""
    return functools.partial(policy_of, job.policy, job.values["policy_options"])


__all__ = [
    "NOTHING",
    "NOT_APPLICABLE",
    "POLICIES",
    "Arrived",
    "Contribution",
    "Decision",
    "Event",
    "GradientStandIn",
    "Left",
    "MakePolicy",
    "Needs",
    "Policy",
    "Progressed",
    "Setting",
    "Updated",
    "Use",
    "WaitForAll",
    "Work",
    "canonical_options",
    "make_policy",
    "policy_of",
]

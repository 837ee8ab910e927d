"""HOW replicas exchange what they have learned. A new sync is a file here and a line in
`lockstep.engine.registry.SYNCS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lockstep.engine import registry
from lockstep.engine.sync.base import StepCost, Sync

if TYPE_CHECKING:
    from lockstep.engine.job import Job
    from lockstep.engine.sync.plan import OptimiserFactory, Plan, Share

SYNCS = cast("dict[str, type[Sync]]", registry.syncs())


def make_sync(job: Job, plan: Plan, optimiser: OptimiserFactory) -> Sync:
    """The sync that `job.sync` names, with the options that `job` gives."""
    return SYNCS[job.sync].of(job, plan, optimiser)


def __getattr__(name: str) -> Any:
    # Imported on demand: a plan needs numpy and torch, and code that only reads declarations must not wait for these.
    if name in ("Plan", "Share"):
        from lockstep.engine.sync import plan

        return getattr(plan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["SYNCS", "Plan", "Share", "StepCost", "Sync", "make_sync"]

"""What runs on a worker while `lockstep why` looks: a few steps of training, with CPU time and page faults noted."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lockstep.engine.groups import Group
from lockstep.engine.groups.base import first_ranks
from lockstep.engine.job import Job
from lockstep.engine.peers import run_function
from lockstep.engine.sync.plan import OptimiserFactory
from lockstep.engine.training.loop import Site, Trace

CPU_SECONDS, FAULTS = "cpu_seconds", "page_faults"
"""Columns that a visit adds to each step of its trace: CPU time of the thread that computes, and minor page faults of
its process. Zero where they can't be told, such as beside a parameter server, whose workers have no optimizer."""


class UsageMeter:
    """Notes what this thread and this process have used whenever the optimizer has made a step.

    Its first note comes behind the warm-up step, so that memory which is touched once does not count.
    """

    def __init__(self) -> None:
        self._notes: list[tuple[float, int]] = []

    def metering(self, make: OptimiserFactory) -> OptimiserFactory:
        """The factory whose optimizers tell this meter."""

        def made(tensors: Iterable[Tensor]) -> Any:
            optimiser = make(tensors)
            optimiser.register_step_post_hook(lambda *_: self._notes.append((time.thread_time(), _page_faults())))
            return optimiser

        return made

    def add_to(self, steps: list[dict[str, float]], processes: float) -> None:
        """Add the columns to steps that followed one warm-up step. `processes`: of this rank, below 1 where it shares
        one."""
        known = len(self._notes) == len(steps) + 1
        for number, step in enumerate(steps):
            (before, faults), (after, more) = self._notes[number : number + 2] if known else ((0.0, 0), (0.0, 0))
            step |= {CPU_SECONDS: after - before, FAULTS: (more - faults) * processes}


def observed_visit(job: Job, group: Group, site: Site, keep_denormals: bool = False) -> Trace:
    """`job` on the first ranks of a team that may have more; the others sleep.

    `keep_denormals`: as in a script that does not flush them. It holds for the thread that calls operators; those that
    help it were started with what held then, but it waits for the slowest part, and that is its own.
    """
    among = first_ranks(group, job.ranks)
    if among is None:
        return Trace(group.rank)
    meter = UsageMeter()
    assert site.use_case is not None
    case = replace(site.use_case, optimiser=meter.metering(site.use_case.optimiser))
    if keep_denormals:
        torch.set_flush_denormal(False)
    try:
        trace = run_function(job.sync)(job, among, replace(site, use_case=case))
    finally:
        torch.set_flush_denormal(True)
    # The kernel counts faults of a process: those of ranks that are threads of one are divided evenly.
    meter.add_to(trace.steps, 1 / job.workers if job.launcher == "threads" else 1.0)
    return trace


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

"""What runs on the workers: the training loop, unless an experiment measures something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace
from lockstep.measure.probes.exchange import run_exchange
from lockstep.measure.probes.flops import run_flops
from lockstep.measure.probes.operators import run_profile
from lockstep.measure.probes.roofs import run_decode, run_machine
from lockstep.measure.probes.spark import run_overhead, run_preparation
from lockstep.measure.probes.stages import run_layers, run_stage_times

EXPERIMENTS: Mapping[str, Callable[[Job, Group, Site | None], Trace]] = {
    "exchange": run_exchange,
    "collective": run_exchange,
    "wire": run_exchange,
    "servers_wire": run_exchange,
    "between_hosts": run_exchange,
    "traffic": run_exchange,
    "start": run_exchange,
    "profile": run_profile,
    "flops": run_flops,
    "machine": run_machine,
    "decode": run_decode,
    "layers": run_layers,
    "stage_times": run_stage_times,
    "overhead": run_overhead,
    "preparation": run_preparation,
}
"""Experiment -> what its cells run instead of `run_job`."""

RESTARTED = ("start",)
"""Experiments whose team is started anew in every round, so that `launch_seconds` is measured as often."""

OF_ALL_FRAMEWORKS = ("profile",)
"""Of EXPERIMENTS those that measure other frameworks than torch, too."""

STEPS_TRACED = ("timeline",)
"""Experiments of which every step of every rank is kept, in `steps.csv`."""

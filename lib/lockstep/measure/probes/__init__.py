"""The probes: experiments whose cells measure something other than training."""

from __future__ import annotations

from functools import partial
from typing import Any

from lockstep.measure.probes.exchange import run_exchange
from lockstep.measure.probes.flops import run_flops
from lockstep.measure.probes.operators import run_profile
from lockstep.measure.probes.probe import OF_PIPELINES, Probe
from lockstep.measure.probes.roofs import run_decode, run_machine
from lockstep.measure.probes.spark import run_overhead, run_preparation


def _of_stages(name: str, *job_group_site: Any) -> Any:
    from lockstep.measure.probes import stages  # with torch's pipelining, which takes seconds to load

    return getattr(stages, name)(*job_group_site)


_EXCHANGE = Probe(run_exchange)

PROBES: dict[str, Probe] = {
    "exchange": _EXCHANGE,
    "collective": _EXCHANGE,
    "wire": _EXCHANGE,
    "servers_wire": _EXCHANGE,
    "between_hosts": _EXCHANGE,
    "traffic": _EXCHANGE,
    "start": Probe(run_exchange, restarts_team=True),
    "profile": Probe(
        run_profile, tables={"operators": ("framework", "network", "global_batch_size")}, any_framework=True
    ),
    "flops": Probe(run_flops, tables={"flops": ()}),
    "machine": Probe(run_machine),
    "decode": Probe(run_decode),
    "layers": Probe(partial(_of_stages, "run_layers"), tables={"layers": OF_PIPELINES}),
    "stage_times": Probe(partial(_of_stages, "run_stage_times"), tables={"stages": OF_PIPELINES}),
    "overhead": Probe(run_overhead),
    "preparation": Probe(run_preparation),
}
"""Experiment -> what its cells measure. An experiment that is not named here trains."""

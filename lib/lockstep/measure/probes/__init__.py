"""The probes: experiments whose cells measure something other than training."""

from __future__ import annotations

from lockstep.measure.probes.exchange import run_exchange
from lockstep.measure.probes.flops import run_flops
from lockstep.measure.probes.operators import run_profile
from lockstep.measure.probes.probe import OF_PIPELINES, Probe
from lockstep.measure.probes.roofs import run_decode, run_machine
from lockstep.measure.probes.spark import run_overhead, run_preparation
from lockstep.measure.probes.stages import run_layers, run_stage_times

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
    "layers": Probe(run_layers, tables={"layers": OF_PIPELINES}),
    "stage_times": Probe(run_stage_times, tables={"stages": OF_PIPELINES}),
    "overhead": Probe(run_overhead),
    "preparation": Probe(run_preparation),
}
"""Experiment -> what its cells measure. An experiment that is not named here trains."""

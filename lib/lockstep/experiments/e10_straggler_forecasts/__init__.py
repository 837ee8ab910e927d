"""Notebook 10: Can stragglers be forecast?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.experiments.e10_straggler_forecasts.answer import answer
from lockstep.experiments.e10_straggler_forecasts.figures import FIGURES
from lockstep.experiments.e10_straggler_forecasts.findings import FINDINGS
from lockstep.experiments.e10_straggler_forecasts.grid import cells, comparisons
from lockstep.experiments.e10_straggler_forecasts.sudden import sudden
from lockstep.experiments.e10_straggler_forecasts.tables import TABLES
from lockstep.experiments.e10_straggler_forecasts.targets import TARGETS
from lockstep.experiments.e10_straggler_forecasts.trace_onsets import stragglers_of_traces
from lockstep.experiments.e10_straggler_forecasts.verdicts import RULES
from lockstep.experiments.experiment import Experiment

if TYPE_CHECKING:
    from lockstep.measure.probes.probe import Probes


def _probes() -> Probes:
    from lockstep.experiments.e10_straggler_forecasts.measuring import probes  # torch: only who measures waits for it

    return probes()


EXPERIMENT = Experiment(
    name="10_straggler_forecasts",
    question="Can stragglers be forecast?",
    grid=cells,
    comparisons=comparisons,
    tables={**TABLES, "trace_stragglers": stragglers_of_traces},
    texts={"sudden": sudden},
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts=RULES,
    targets=TARGETS,
    headlines=("dps-lstm-forecasts", "dps-stragglers-beforehand"),
    probes=_probes,
)

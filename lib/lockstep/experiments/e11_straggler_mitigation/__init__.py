"""Notebook 11: What does mitigating stragglers buy, and at what price?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.experiments.e11_straggler_mitigation import cost_verdicts, learning_verdicts, verdicts
from lockstep.experiments.e11_straggler_mitigation.answer import answer
from lockstep.experiments.e11_straggler_mitigation.figures import FIGURES
from lockstep.experiments.e11_straggler_mitigation.findings import FINDINGS
from lockstep.experiments.e11_straggler_mitigation.grid import cells, comparisons
from lockstep.experiments.e11_straggler_mitigation.tables import TABLES
from lockstep.experiments.e11_straggler_mitigation.targets import TARGETS
from lockstep.experiments.experiment import Experiment

if TYPE_CHECKING:
    from lockstep.measure.probes.probe import Probes


def probes() -> Probes:
    """What its cells simulate; it brings torch, for which figures and reports do not wait."""
    from lockstep.experiments.e11_straggler_mitigation.measuring import PROBES

    return PROBES


EXPERIMENT = Experiment(
    name="11_straggler_mitigation",
    question="What does mitigating stragglers buy, and at what price?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts={**verdicts.RULES, **cost_verdicts.RULES, **learning_verdicts.RULES},
    targets=TARGETS,
    headlines=("dps-mitigation", "dps-training-time", "dps-stand-in"),
    drawn_only=("node_usd_per_hour",),
    probes=probes,
)

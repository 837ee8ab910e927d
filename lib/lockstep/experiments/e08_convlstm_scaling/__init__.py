"""Notebook 08: What do more nodes gain for a small network, and what would exascale take?"""

from __future__ import annotations

from lockstep.experiments.e08_convlstm_scaling.figures import FIGURES
from lockstep.experiments.e08_convlstm_scaling.findings import FINDINGS, answer
from lockstep.experiments.e08_convlstm_scaling.grid import cells, comparisons
from lockstep.experiments.e08_convlstm_scaling.tables import TABLES
from lockstep.experiments.e08_convlstm_scaling.targets import TARGETS
from lockstep.experiments.e08_convlstm_scaling.verdicts import RULES
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="08_convlstm_scaling",
    question="What do more nodes gain for a small network, and what would exascale take?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts=RULES,
    targets=TARGETS,
    headlines=("cla-speedup-5",),
    drawn_only=("assumed_latency_seconds", "assumed_bits_per_second", "epoch_images", "forecast_nodes"),
)

"""Notebook 01: How fast can one machine train before anything is distributed?"""

from __future__ import annotations

from lockstep.experiments.e01_single_node_baselines.figures import FIGURES
from lockstep.experiments.e01_single_node_baselines.findings import FINDINGS, answer
from lockstep.experiments.e01_single_node_baselines.grid import cells, comparisons, traced
from lockstep.experiments.e01_single_node_baselines.tables import TABLES
from lockstep.experiments.e01_single_node_baselines.targets import TARGETS
from lockstep.experiments.e01_single_node_baselines.verdicts import RULES
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="01_single_node_baselines",
    question="How fast can one machine train before anything is distributed?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts=RULES,
    targets=TARGETS,
    headlines=("s2m-gpu-better-than-cpu",),
    traced=traced,
)

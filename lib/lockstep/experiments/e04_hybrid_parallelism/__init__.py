"""Notebook 04: When does combining data and model parallelism pay?"""

from __future__ import annotations

from lockstep.experiments.e04_hybrid_parallelism.answer import answer
from lockstep.experiments.e04_hybrid_parallelism.figures import FIGURES
from lockstep.experiments.e04_hybrid_parallelism.findings import FINDINGS
from lockstep.experiments.e04_hybrid_parallelism.grid import cells, comparisons, traced
from lockstep.experiments.e04_hybrid_parallelism.tables import TABLES
from lockstep.experiments.e04_hybrid_parallelism.verdicts import RULES
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="04_hybrid_parallelism",
    question="When does combining data and model parallelism pay?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts=RULES,
    headlines=("s2m-table2-gpu-hybrid-simplebig",),
    traced=traced,
)

"""Notebook 07: What does a larger batch cost in accuracy, and what does it save in time?"""

from __future__ import annotations

from lockstep.experiments.e07_convlstm_batch_size import time_verdicts, verdicts
from lockstep.experiments.e07_convlstm_batch_size.answer import answer
from lockstep.experiments.e07_convlstm_batch_size.comparisons import comparisons
from lockstep.experiments.e07_convlstm_batch_size.figures import FIGURES
from lockstep.experiments.e07_convlstm_batch_size.findings import FINDINGS
from lockstep.experiments.e07_convlstm_batch_size.grid import cells
from lockstep.experiments.e07_convlstm_batch_size.tables import TABLES
from lockstep.experiments.e07_convlstm_batch_size.targets import TARGETS
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="07_convlstm_batch_size",
    question="What does a larger batch cost in accuracy, and what does it save in time?",
    grid=cells,
    comparisons=comparisons,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts={**time_verdicts.RULES, **verdicts.RULES},
    targets=TARGETS,
    headlines=("cla-data-accuracy", "cla-nearly-double"),
)

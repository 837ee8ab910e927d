"""Notebook 00: What did the papers publish, what do we measure, and do the two agree?"""

from __future__ import annotations

from lockstep.experiments.e00_overview.figures import FIGURES
from lockstep.experiments.e00_overview.findings import FINDINGS, answer, answers
from lockstep.experiments.e00_overview.tables import TABLES, TEXTS
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="00_overview",
    question="What did the papers publish, what do we measure, and do the two agree?",
    answer=answer,
    findings=FINDINGS,
    tables=TABLES,
    figures=FIGURES,
    texts={"answers": answers, **TEXTS},
    drawn_only=("results", "measure"),
)

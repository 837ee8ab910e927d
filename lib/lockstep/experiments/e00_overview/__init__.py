"""Notebook 00: What did the papers publish, what do we measure, and do the two agree?"""

from __future__ import annotations

from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="00_overview", question="What did the papers publish, what do we measure, and do the two agree?"
)

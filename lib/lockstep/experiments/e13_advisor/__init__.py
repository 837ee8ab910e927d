"""Notebook 13: How many workers should train my model, and how far off is that advice?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.experiments.e13_advisor.grid import cells, planned
from lockstep.experiments.experiment import Experiment

if TYPE_CHECKING:
    from lockstep.measure.probes.probe import Probes


def _probes() -> Probes:
    from lockstep.experiments.e13_advisor.measuring import probes  # torch: only who measures waits for it

    return probes()


EXPERIMENT = Experiment(
    name="13_advisor",
    question="How many workers should train my model, and how far off is that advice?",
    grid=cells,
    planned=planned,
    probes=_probes,
)

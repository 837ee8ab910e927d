"""Notebook 09: What does automatic tuning find, and what does it cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.experiments.e09_autotuning.grid import cells, planned
from lockstep.experiments.experiment import Experiment

if TYPE_CHECKING:
    from lockstep.measure.probes.probe import Probes


def _probes() -> Probes:
    from lockstep.experiments.e09_autotuning.measuring import probes  # torch: only who measures waits for it

    return probes()


EXPERIMENT = Experiment(
    name="09_autotuning",
    question="What does automatic tuning find, and what does it cost?",
    grid=cells,
    planned=planned,
    probes=_probes,
)

"""Notebook 13: How many workers should train my model, and how far off is that advice?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.experiments.e13_advisor.answer import answer
from lockstep.experiments.e13_advisor.checking import all_predictions
from lockstep.experiments.e13_advisor.errors_file import write_errors
from lockstep.experiments.e13_advisor.figures import FIGURES
from lockstep.experiments.e13_advisor.findings import FINDINGS
from lockstep.experiments.e13_advisor.grid import cells, planned
from lockstep.experiments.e13_advisor.tables import TABLES
from lockstep.experiments.e13_advisor.targets import TARGETS
from lockstep.experiments.experiment import Experiment
from lockstep.records.places import REFERENCE, repository_root

if TYPE_CHECKING:
    from pathlib import Path

    from lockstep.analysis.stored import Stored
    from lockstep.measure.probes.probe import Probes

NAME = "13_advisor"


def _probes() -> Probes:
    from lockstep.experiments.e13_advisor.measuring import probes  # torch: only who measures waits for it

    return probes()


def _after(stored: Stored, folder: Path) -> None:
    """The advisor knows its errors from the reference alone: not from whatever somebody has tried since."""
    if folder.resolve() == (repository_root() / REFERENCE / NAME).resolve():
        write_errors(all_predictions(stored.shown))


EXPERIMENT = Experiment(
    name=NAME,
    question="How many workers should train my model, and how far off is that advice?",
    grid=cells,
    planned=planned,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    targets=TARGETS,
    drawn_only=("form",),
    probes=_probes,
    after=_after,
)

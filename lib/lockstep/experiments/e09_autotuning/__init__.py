"""Notebook 09: What does automatic tuning find, and what does it cost?"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lockstep.experiments.e09_autotuning.answer import answer
from lockstep.experiments.e09_autotuning.figures import FIGURES
from lockstep.experiments.e09_autotuning.findings import FINDINGS
from lockstep.experiments.e09_autotuning.grid import cells, planned
from lockstep.experiments.e09_autotuning.tables import TABLES
from lockstep.experiments.e09_autotuning.targets import TARGETS
from lockstep.experiments.e09_autotuning.verdicts import RULES
from lockstep.experiments.experiment import Experiment

if TYPE_CHECKING:
    from pathlib import Path

    from lockstep.analysis.stored import Stored
    from lockstep.measure.probes.probe import Probes


def _probes() -> Probes:
    from lockstep.experiments.e09_autotuning.measuring import probes  # torch: only who measures waits for it

    return probes()


def _after(stored: Stored, folder: Path) -> None:
    from lockstep.experiments.e09_autotuning.chosen_setting import write_chosen

    with warnings.catch_warnings(action="ignore"):  # a progress bar of Optuna's looks for widgets as it is imported
        from lockstep.experiments.e09_autotuning.comparing import compare  # torch, and minutes

    compare(stored, folder)
    write_chosen(stored, folder)


EXPERIMENT = Experiment(
    name="09_autotuning",
    question="What does automatic tuning find, and what does it cost?",
    grid=cells,
    planned=planned,
    tables=TABLES,
    figures=FIGURES,
    answer=answer,
    findings=FINDINGS,
    verdicts=RULES,
    targets=TARGETS,
    headlines=("cla-tuned-accuracy", "cla-tuning-gain"),
    probes=_probes,
    after=_after,
)

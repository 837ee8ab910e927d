"""Cells whose every test image's score is stored: settings that were fixed before, by the networks that are compared.

They hold a fifth of the training images out, which sets thresholds and is trained on by none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.engine.job import Job, JobError
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.fixed_batch import trained

SCORES = "scores"
"""The experiment's name, which the engine knows too (`lockstep.engine.training.image_scores.SCORED`)."""


def score_cells(chosen: Parameters, way: str) -> list[Job]:
    """Each of `scored_settings`, by each of the networks compared: first one setting by all networks. Settings with
    batch normalization are trained by one worker. Raises JobError for a name that is no candidate's."""
    settings: Mapping[str, Mapping[str, Any]] = chosen.candidates
    jobs = []
    for name in chosen.scored_settings:
        if name not in settings:
            raise JobError(f"scored_settings has {name!r}, which is no candidate; there are: {', '.join(settings)}")
        whole = dict(settings[name]) if "updates" in settings[name] else {"epochs": chosen.epochs, **settings[name]}
        by = "sequential" if whole.get("batch_norm") else way
        for network in chosen.compared:
            shared = {"use_case": chosen.use_cases[0], "network": network, "scored_on": "validation"}
            jobs.append(trained(by, SCORES, **shared, **whole))
    return jobs

"""Cells whose every test image's score is stored: settings that were fixed before, by the networks that are compared.

They hold a fifth of the training images out, which sets thresholds and is trained on by none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.engine.job import Job, JobError
from lockstep.experiments.fixed_batch import trained

SCORES = "scores"
"""The experiment's name, which the engine knows too (`lockstep.engine.training.image_scores.SCORED`)."""
SCORED_SEEDS = 6


def score_cells(
    use_case: str, networks: Iterable[str], settings: Mapping[str, Mapping[str, Any]], names: Iterable[str], *,
    way: str, epochs: int,
) -> list[Job]:  # fmt: skip
    """Each of the settings `names`, by each network: first one setting by all networks. Settings with batch
    normalization are trained by one worker. Raises JobError for a name that is no setting's."""
    jobs = []
    for name in names:
        if name not in settings:
            raise JobError(f"scored_settings has {name!r}, which is no candidate; there are: {', '.join(settings)}")
        whole = dict(settings[name]) if "updates" in settings[name] else {"epochs": epochs, **settings[name]}
        by = "sequential" if whole.get("batch_norm") else way
        for network in networks:
            jobs.append(trained(by, SCORES, use_case=use_case, network=network, scored_on="validation", **whole))
    return jobs

"""Cells in virtual time: workers under delays that can be repeated, simulated in one process."""

from __future__ import annotations

from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job


def simulated(experiment: str, *, delays: str = "none", workers: int, **fields: Any) -> Job:
    """A cell of `workers` simulated workers and a server, which the experiment's probe of that name simulates.

    `delays` in canonical form; `fields` are further ones of Job. What the probe compares within the cell, such as
    policies, meets the same seed's delays, and stands in a table of its own. Raises JobError for impossible values.
    """
    given: dict[str, Any] = {"use_case": NO_USE_CASE, "input": "none", "steps": 1, "warmup_steps": 0, **fields}
    share = given.pop("per_worker_batch_size", 32)
    return Job(
        experiment=experiment, strategy="simulated", launcher="virtual", sync="parameter_server",
        policy="wait_for_all", servers=1, delays=delays, workers=workers, per_worker_batch_size=share,
        global_batch_size=share * workers, **given,
    )  # fmt: skip

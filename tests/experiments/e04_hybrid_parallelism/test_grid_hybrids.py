"""Notebook 04's grid: what its tables compare stands in one round."""

from __future__ import annotations

import pytest

from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored
from lockstep.experiments.e04_hybrid_parallelism import EXPERIMENT
from planned_rounds import MEASURE_TOGETHER, defaults, planned_records


@pytest.fixture(scope="module")
def stored() -> Stored:
    return Stored(planned_records(EXPERIMENT, lambda job: 1.0 if job.strategy == "sequential" else 1.5))


def test_every_way_stands_beside_sequential_training(stored: Stored) -> None:
    table = EXPERIMENT.tables["speedup"](stored)
    ran = table[(table["status"] == "ok") & (table["variant"] == "a")]
    assert len(ran) and ran["speedup"].notna().all() and not ran["reason"].str.contains(MEASURE_TOGETHER).any()
    for claim in read_claims().to_dict("records"):
        if claim["notebook"] == EXPERIMENT.name:
            assert MEASURE_TOGETHER not in EXPERIMENT.verdicts[claim["verdict"]](claim, stored).reason, claim["id"]


def test_the_headline_is_the_hybrid_and_the_equal_pair_has_two_workers() -> None:
    jobs = EXPERIMENT.grid(defaults(EXPERIMENT))
    pairs = [[jobs[place] for place in each.cells] for each in EXPERIMENT.comparisons(jobs) if each.headline]
    ((hybrid, base),) = pairs
    assert (hybrid.replicas, hybrid.pipeline_ranks, base.strategy) == (2, 2, "sequential")
    again = [[jobs[place] for place in each.cells] for each in EXPERIMENT.comparisons(jobs)]
    ((second, first),) = [pair for pair in again if pair[0].variant == "b"]
    assert second == first.with_(variant="b") and first.workers == 2
    assert all(job.warmup_steps >= 3 for job in jobs)

"""Notebook 04's grid: what its tables compare stands in one round."""

from __future__ import annotations

import re

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


@pytest.mark.slow
def test_one_process_with_all_cores_is_among_the_ways_and_is_told_where_it_was_measured(stored: Stored) -> None:
    jobs = EXPERIMENT.grid(defaults(EXPERIMENT))
    alone = [job for job in jobs if job.strategy == "intra_op"]
    assert [job.use_case for job in alone] == ["SimpleBig", "ComplexSmall"]
    assert all((job.workers, job.threads_per_worker, job.cores_per_worker) == (1, 2, 2) for job in alone)
    assert all(job.per_worker_batch_size == job.global_batch_size for job in alone)
    told = EXPERIMENT.findings["speedup"](stored)
    assert "with two threads inside operators" in told and "was not measured" not in told
    first = EXPERIMENT.answer(stored).split(";")[0]
    assert "fully connected layers split over two ranks" in first, "the overview quotes no more than this"
    assert re.search(r"and without any split, by two threads inside operators of one process, [\d.]+ times \[", first)
    predicted = EXPERIMENT.tables["predicted"](stored)
    assert "intra_op" not in set(predicted.get("strategy", [])), "layers were timed on one core"
    rows = stored.records[stored.records["strategy"] != "intra_op"]
    assert "`lockstep run 04` adds it" in EXPERIMENT.findings["speedup"](Stored(rows))


def test_the_headline_is_the_hybrid_and_the_equal_pair_has_two_workers() -> None:
    jobs = EXPERIMENT.grid(defaults(EXPERIMENT))
    pairs = [[jobs[place] for place in each.cells] for each in EXPERIMENT.comparisons(jobs) if each.headline]
    ((hybrid, base),) = pairs
    assert (hybrid.replicas, hybrid.pipeline_ranks, base.strategy) == (2, 2, "sequential")
    again = [[jobs[place] for place in each.cells] for each in EXPERIMENT.comparisons(jobs)]
    ((second, first),) = [pair for pair in again if pair[0].variant == "b"]
    assert second == first.with_(variant="b") and first.workers == 2
    assert all(job.warmup_steps >= 3 for job in jobs)

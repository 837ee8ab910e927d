"""The ladder of single-node training: each rung is the one before plus one ingredient."""

from __future__ import annotations

import itertools

import pytest

from lockstep.job import IDENTITY, Job, JobError
from lockstep.ladder import RUNGS, ladder

ADDS = {
    "intra_op": {"threads_per_worker", "cores_per_worker"},
    "allocator": {"environment"},
    "fused": {"optimiser"},
    "channels_last": {"memory_format"},
    "bfloat16": {"precision"},
    "copies": {"copies"},
    "cuda": {"device", "threads_per_worker", "cores_per_worker"},
}


def test_each_rung_changes_what_its_name_says_and_nothing_else() -> None:
    jobs = ladder("SimpleBig", 2, 32)
    assert [job.strategy for job in jobs] == list(RUNGS)
    for below, job in itertools.pairwise(jobs):
        changed = {name for name in IDENTITY if getattr(below, name) != getattr(job, name)}
        assert changed == {"strategy", *ADDS[job.strategy]}, job.strategy


def test_the_baseline_is_one_thread_on_one_core_with_torchs_defaults() -> None:
    base = ladder("ComplexSmall", 4, 8)[0]
    assert (base.threads_per_worker, base.cores_per_worker, base.workers) == (1, 1, 1)
    assert (base.environment, base.optimiser, base.memory_format) == ("plain", "plain", "contiguous")
    assert (base.precision, base.input, base.global_batch_size) == ("float32", "jpeg", 8)


def test_the_budget_of_cores_is_that_of_the_operators() -> None:
    assert {job.threads_per_worker for job in ladder("SimpleBig", 6, 32) if job.strategy == "fused"} == {6}


def test_a_rung_that_is_left_out_takes_what_it_adds_with_it() -> None:
    base, fused = ladder("SimpleBig", 2, 32, ["sequential", "fused"])
    assert (base.optimiser, fused.optimiser, fused.environment, fused.threads_per_worker) == (
        "plain",
        "fused",
        "plain",
        1,
    )


def test_what_does_not_exist() -> None:
    with pytest.raises(KeyError, match="magic"):
        ladder("SimpleBig", 2, 32, ["sequential", "magic"])
    with pytest.raises(JobError, match="threads_per_worker=0 is not possible"):
        ladder("SimpleBig", 0, 32)


def test_copies_are_avoided_in_bfloat16_only() -> None:
    with pytest.raises(JobError, match="copies='avoided' has nothing to avoid in float32"):
        Job(copies="avoided")
    assert Job(copies="avoided", precision="bfloat16").copies == "avoided"

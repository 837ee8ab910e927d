"""The ladder of single-node training: each rung is the one before plus one ingredient."""

from __future__ import annotations

import itertools

import pytest

from lockstep.engine.job import IDENTITY, Job, JobError
from lockstep.engine.job.strategies import RUNGS
from lockstep.experiments.e01_single_node_baselines.grid import (
    AA_RUNG,
    EXPERIMENT,
    PROFILED,
    ROOF,
    ROOF_1_CORE,
    cells,
    decoding,
    ladder,
    profiles,
    roofs,
    traced,
)
from lockstep.experiments.experiment import Parameters

ADDS = {
    "intra_op": {"threads_per_worker", "cores_per_worker"},
    "allocator": {"environment"},
    "fused": {"optimiser"},
    "channels_last": {"memory_format"},
    "bfloat16": {"precision"},
    "copies": {"copies"},
    "cuda": {"device"},
}


def test_each_rung_changes_what_its_name_says_and_nothing_else() -> None:
    jobs = [job for job in ladder("SimpleBig", 2, 32) if job.variant == "a"]
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
    for cores in (0, True, 2.0):
        with pytest.raises(JobError, match=f"^cores={cores} is not possible; give a whole number of at least 1"):
            ladder("SimpleBig", cores, 32)  # type: ignore[arg-type]


def test_copies_are_avoided_in_bfloat16_only() -> None:
    with pytest.raises(JobError, match="copies='avoided' has nothing to avoid in float32"):
        Job(copies="avoided")
    assert Job(copies="avoided", precision="bfloat16").copies == "avoided"


def test_the_pair_that_shows_the_noise_is_one_and_the_same_cell() -> None:
    a, b = [job for job in ladder("SimpleBig", 2, 32) if job.strategy == AA_RUNG]
    assert (a.variant, b.variant) == ("a", "b") and a == b.with_(variant="a")


def test_profiles_are_of_rungs_that_are_measured_too() -> None:
    rungs = ladder("ComplexSmall", 2, 8, steps=3)
    found = profiles(rungs)
    assert [job.strategy for job in found] == list(PROFILED["ComplexSmall"])
    for job in found:
        assert (job.experiment, job.steps, job.warmup_steps, job.variant) == ("profile", 1, 1, "a")
        assert job.with_(experiment=EXPERIMENT, steps=3) in rungs


def test_every_rung_has_the_roof_that_it_is_compared_with() -> None:
    there = {(job.strategy, job.precision, job.device, job.threads_per_worker) for job in roofs(2)}
    for job in ladder("SimpleBig", 2, 32):
        name = ROOF_1_CORE if job.threads_per_worker == 1 else ROOF
        assert (name, job.precision, job.device, job.threads_per_worker) in there, job.strategy


def test_a_use_case_without_a_value() -> None:
    chosen = Parameters(use_cases=["SimpleBig", "Foo"], batch_size={"SimpleBig": 4}, cores=2, steps=1, warmup_steps=1)
    message = r"batch_size=\{'SimpleBig': 4\} has no value for use case 'Foo'; give one, or leave it out of use_cases"
    with pytest.raises(JobError, match=message):
        cells(chosen)


def test_the_resources_of_every_float32_rung_are_sampled_once() -> None:
    chosen = Parameters(use_cases=["SimpleBig"], batch_size={"SimpleBig": 4}, cores=2, steps=1, warmup_steps=1)
    sampled = [job.strategy for job in cells(chosen) if traced(job)]
    assert sampled == [name for name in RUNGS if name not in ("bfloat16", "copies", "cuda")]


def test_decoding_is_of_one_core() -> None:
    job = decoding("SimpleBig")
    assert (job.experiment, job.strategy, job.workers, job.cores_per_worker, job.input) == (
        "decode",
        "decode",
        1,
        1,
        "jpeg",
    )

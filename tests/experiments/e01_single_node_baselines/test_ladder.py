"""The ladder of single-node training: each rung is the one before plus one ingredient."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fake_single_node import CHOSEN, operators, records
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import target_table
from lockstep.engine.job import IDENTITY, Job, JobError
from lockstep.engine.job.strategies import RUNGS
from lockstep.experiments.e01_single_node_baselines.grid import (
    AA_RUNG,
    EXPERIMENT,
    PROFILED,
    ROOF,
    ROOF_1_CORE,
    cells,
    comparisons,
    decoding,
    ladder,
    profiles,
    roofs,
    traced,
)
from lockstep.experiments.e01_single_node_baselines.tables import TABLES
from lockstep.experiments.e01_single_node_baselines.targets import TARGETS
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
    rungs = ladder("ComplexSmall", 2, 8, steps=3, warmup_steps=3)
    found = profiles(rungs)
    assert [job.strategy for job in found] == list(PROFILED["ComplexSmall"])
    for job in found:
        assert (job.experiment, job.steps, job.variant) == ("profile", 1, "a") and job.warmup_steps >= 3
        assert job.with_(experiment=EXPERIMENT, steps=3) in rungs


def test_every_rung_has_the_roof_that_it_is_compared_with() -> None:
    there = {(job.strategy, job.precision, job.device, job.threads_per_worker) for job in roofs(2)}
    for job in ladder("SimpleBig", 2, 32):
        name = ROOF_1_CORE if job.threads_per_worker == 1 else ROOF
        assert (name, job.precision, job.device, job.threads_per_worker) in there, job.strategy


def test_a_use_case_without_a_value() -> None:
    given: dict[str, Any] = {"batch_size": {"SimpleBig": 4}, "cores": 2, "steps": 1, "warmup_steps": 1}
    message = r"batch_size=\{'SimpleBig': 4\} has no value for use case 'Pneumonia'; give one, or leave it out of use"
    with pytest.raises(JobError, match=message):
        cells(Parameters(use_cases=["SimpleBig", "Pneumonia"], **given))


def test_a_use_case_that_does_not_exist_is_not_blamed_on_its_batch_size() -> None:
    given: dict[str, Any] = {"batch_size": {"SimpleBig": 4}, "cores": 2, "steps": 1, "warmup_steps": 1}
    with pytest.raises(JobError, match=r"^use case 'Foo' does not exist; there are: ComplexSmall, SimpleBig"):
        cells(Parameters(use_cases=["SimpleBig", "Foo"], **given))


def test_the_resources_of_the_ends_of_the_ladder_are_sampled_once() -> None:
    sampled = [(job.use_case, job.strategy) for job in cells(CHOSEN) if traced(job)]
    assert sampled == [(name, strategy) for name in CHOSEN.use_cases for strategy in ("sequential", "channels_last")]


def test_decoding_is_of_one_core() -> None:
    job = decoding("SimpleBig")
    assert (job.experiment, job.strategy, job.workers, job.cores_per_worker, job.input) == (
        "decode",
        "decode",
        1,
        1,
        "jpeg",
    )


# What stands back to back


def pairs() -> list[tuple[Job, ...]]:
    jobs = cells(CHOSEN)
    return [tuple(jobs[place] for place in found.cells) for found in comparisons(jobs)]


def test_every_cell_is_measured_and_no_pair_twice() -> None:
    jobs, found = cells(CHOSEN), comparisons(cells(CHOSEN))
    assert {place for each in found for place in each.cells} == set(range(len(jobs)))
    assert len({frozenset(each.cells) for each in found}) == len(found)


def test_a_rung_stands_beside_the_baseline_and_beside_the_rung_below() -> None:
    ladders = [pair for pair in pairs() if {job.experiment for job in pair} == {EXPERIMENT}]
    for use_case in CHOSEN.use_cases:
        named = [tuple(job.strategy for job in pair) for pair in ladders if pair[0].use_case == use_case]
        on_cpu = [name for name in RUNGS if name != "cuda"]
        assert {(name, "sequential") for name in on_cpu[1:]} <= set(named)
        assert set(zip(on_cpu[2:], on_cpu[1:], strict=False)) <= set(named)
        assert {("cuda", name) for name in on_cpu} <= set(named), "which setting is the best is not known beforehand"
    assert all(above.global_batch_size == under.global_batch_size for above, under in ladders)


def test_one_pair_shows_the_noise_and_three_rungs_are_headlines() -> None:
    twice = [pair for pair in pairs() if {job.variant for job in pair} == {"a", "b"}]
    assert [pair[0].use_case for pair in twice] == CHOSEN.use_cases[:1]
    jobs = cells(CHOSEN)
    headlines = [[jobs[place].strategy for place in found.cells] for found in comparisons(jobs) if found.headline]
    of_each = [["cuda", "channels_last"], ["channels_last", "sequential"], ["copies", "sequential"]]
    assert headlines == of_each * len(CHOSEN.use_cases), "the GPU comes first: once it was not reached in four minutes"


def test_training_is_warmed_up() -> None:
    assert all(job.warmup_steps >= 3 for job in cells(CHOSEN) if job.experiment in (EXPERIMENT, "profile"))


def test_no_table_or_target_lacks_a_pair() -> None:
    """Made-up records have the cells of a comparison in one round, and of no other pair."""
    stored = Stored(records(), {"operators": operators()})
    ladder = TABLES["ladder"](stored)
    ran = ladder[(ladder["status"] == "ok") & (ladder["variant"] == "a")]
    assert ran["speedup"].notna().all() and ran["ceiling"].notna().all()
    assert ran[~ran["strategy"].isin(["sequential", "intra_op"])]["gain"].notna().all()
    assert TABLES["decoding"](stored)["cores_fed"].notna().all()
    for row in target_table(TARGETS, stored).to_dict("records"):
        assert row["rounds"] >= 8 or "bfloat16" in row["target"], row["target"]


def test_the_grid_of_the_notebook_is_what_is_tested(root: Path) -> None:
    notebook = json.loads((root / "notebooks" / "01_single_node_baselines.ipynb").read_text())
    (source,) = [c["source"] for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", [])]
    given: dict[str, Any] = {}
    exec("".join(source), given)
    assert {name: given[name] for name in vars(CHOSEN)} == vars(CHOSEN)

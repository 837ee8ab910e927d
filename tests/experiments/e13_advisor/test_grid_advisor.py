"""Notebook 13's cells: what calibrates and what is judged stand in one round of each model, and nothing is both."""

from __future__ import annotations

import itertools

import pytest
import torch

from fake_advisor import MODELS, PARAMETERS
from lockstep.engine.job import Job
from lockstep.engine.usecases import use_case
from lockstep.experiments.e13_advisor.grid import (
    CALIBRATION,
    CROWDED,
    HELD_OUT,
    HOSTS,
    MEMORY_ROUNDS,
    MOST_ROUNDS,
    WIRE,
    cells,
    planned,
)
from lockstep.experiments.e13_advisor.measuring import run_crowded, sizes_of
from lockstep.experiments.experiment import Parameters
from lockstep.measure import cell
from lockstep.records import MEMORY


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return cells(PARAMETERS)


def what(job: Job) -> tuple[object, ...]:
    return job.use_case, job.sync, job.hosts, job.workers, job.threads_per_worker, job.global_batch_size


def test_no_cell_is_both_calibrated_with_and_held_out(jobs: list[Job]) -> None:
    seen = {what(job) for job in jobs if job.experiment == CALIBRATION}
    asked = {what(job) for job in jobs if job.experiment in (HELD_OUT, HOSTS)}
    assert seen and asked and not seen & asked
    assert len(jobs) == len(set(jobs))


def test_a_round_of_a_model_mixes_calibration_and_held_out_cells(jobs: list[Job]) -> None:
    for comparison in planned(PARAMETERS, jobs)[: len(MODELS)]:
        own = [jobs[place] for place in comparison.cells]
        assert comparison.visits == comparison.cells and comparison.rounds == MOST_ROUNDS
        kinds = [job.experiment in (CALIBRATION, CROWDED) for job in own if job.experiment != WIRE]
        assert kinds[0] and sum(one != other for one, other in itertools.pairwise(kinds)) >= 4
        assert len({job.use_case for job in own} - {"none"}) == 1


def test_each_model_has_what_the_advisor_is_told_and_some_cells_twice(jobs: list[Job]) -> None:
    for name in MODELS:
        own = [job for job in jobs if job.use_case == name and job.experiment in (CALIBRATION, CROWDED)]
        again = [job for job in jobs if job.use_case == name and job.variant == "b"]
        batches = {job.per_worker_batch_size for job in own if job.strategy == "sequential"}
        assert batches == ({1, 2} if name == "ComplexSmall" else {2, 8})
        assert {job.sync for job in own if job.workers == 2} == {"shared_memory", "allreduce", "ddp"}
        assert again and all(job.with_(variant="a") in jobs for job in again)


def test_long_steps_have_fewer_cells_and_no_links(jobs: list[Job]) -> None:
    counts = {name: sum(job.use_case == name for job in jobs) for name in MODELS}
    assert counts["ComplexSmall"] < counts["SmallResNet"]
    assert not any(job.hosts > 1 for job in jobs if job.use_case == "ComplexSmall")
    alone = Parameters(**{**vars(PARAMETERS), "use_cases": ["ComplexSmall"]})
    assert not any(job.experiment == WIRE for job in cells(alone)), "there is no link to know"


def test_where_no_hosts_can_be_emulated_all_else_is_measured(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell, "why_impossible", lambda job: "no namespaces" if job.hosts > 1 else None)
    found = planned(PARAMETERS, jobs)
    rounds, apart = found[: len(MODELS)], found[len(MODELS) :]
    assert not any(jobs[place].hosts > 1 for comparison in rounds for place in comparison.cells)
    assert all(len(comparison.cells) == 1 and comparison.rounds == MEMORY_ROUNDS for comparison in apart)
    assert {place for one in found for place in one.cells} == set(range(len(jobs))), "every cell has a row"
    assert {jobs[one.cells[0]].experiment for one in apart} == {MEMORY, HOSTS, WIRE}


def test_what_a_model_consists_of_is_counted_without_making_it() -> None:
    sizes = sizes_of(use_case("TextLSTM"))
    assert sizes["gradient_bytes"] == 4 * sizes["parameters"] == 4 * 2_599_946
    assert sizes["optimiser_bytes"] == sizes["gradient_bytes"], "SGD with momentum keeps one number of each"
    assert sizes["largest_layer_bytes"] == 4 * (4 * 512 * (128 + 512) + 8 * 512)
    adam = sizes_of(use_case("MLPMixer"))
    assert adam["optimiser_bytes"] == 2 * adam["gradient_bytes"] and adam["buffer_bytes"] == 0
    assert sizes_of(use_case("SmallResNet"))["buffer_bytes"] > 0, "running statistics"


def test_crowded_workers_train_at_the_same_time_and_exchange_nothing() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from lockstep.engine.groups.threads import ThreadGroup

    fields = {"experiment": CROWDED, "use_case": "TextLSTM", "input": "memory", "steps": 2, "warmup_steps": 0}
    job = Job.of("processes", workers=2, per_worker_batch_size=2, **fields).with_(images=256)
    torch.set_num_threads(1)
    with ThreadPoolExecutor(2) as pool:
        traces = list(pool.map(lambda group: run_crowded(job, group), ThreadGroup.of(2)))
    for trace in traces:
        assert [step["images"] for step in trace.steps] == [2, 2], "the step that may end alone is left out"
        assert all(step["exchange_seconds"] == step["bytes_sent"] == 0 for step in trace.steps)
    assert max(trace.began for trace in traces) < min(trace.ended for trace in traces)
    assert traces[0].tables["models"][0]["empty_process_bytes"] > 2**20

"""Notebook 02's grid: equal batches where a claim is about speed, and every ratio has its two cells in one round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fake_records import CHOSEN, records, resources
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import target_table
from lockstep.engine.job import Job
from lockstep.experiments.e02_threads_vs_processes import EXPERIMENT
from lockstep.experiments.e02_threads_vs_processes.grid import TWICE, cells, comparisons, traced
from lockstep.experiments.experiment import Parameters


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return cells(CHOSEN)


def changed(**values: Any) -> Parameters:
    return Parameters(**{**vars(CHOSEN), **values})


def pairs(jobs: Sequence[Job]) -> list[tuple[Job, ...]]:
    return [tuple(jobs[place] for place in found.cells) for found in comparisons(jobs)]


def test_what_is_compared_trains_the_same_batches(jobs: list[Job]) -> None:
    """Else VGG16's update would serve twice the images with two workers, and two cores give more than twice one's."""
    for above, under in pairs(jobs):
        assert above.global_batch_size == under.global_batch_size, (above.label, under.label)
        assert (above.use_case, above.precision) == (under.use_case, under.precision)
        beside_the_cpu = above.device == "cuda" and under.strategy in ("threads", "processes")
        assert beside_the_cpu or above.device == under.device


def test_rivals_use_the_same_cores(jobs: list[Job]) -> None:
    for above, under in pairs(jobs):
        if "sequential" not in (above.strategy, under.strategy):
            assert above.workers * above.cores_per_worker == under.workers * under.cores_per_worker


def test_every_cell_is_measured_and_none_alone_that_has_a_rival(jobs: list[Job]) -> None:
    found = comparisons(jobs)
    assert {place for each in found for place in each.cells} == set(range(len(jobs)))
    assert all(len(each.cells) == 2 for each in found)
    assert len({frozenset(each.cells) for each in found}) == len(found), "no pair twice"


def test_the_headlines_are_those_of_table_1(jobs: list[Job]) -> None:
    """And a GPU's beside the CPU's, of which nothing is asked where there is none."""
    every = [pair for pair, each in zip(pairs(jobs), comparisons(jobs), strict=True) if each.headline]
    on_gpu = [pair for pair in every if pair[0].device == "cuda"]
    rivals = [(a.strategy, b.strategy, b.device, a.use_case) for a, b in on_gpu]
    assert rivals == [("sequential", name, "cpu", u) for u in CHOSEN.use_cases for name in ("threads", "processes")]
    headlines = [pair for pair in every if pair not in on_gpu]
    assert [(a.strategy, b.strategy, a.use_case) for a, b in headlines] == [
        (*rivals, name)
        for name in CHOSEN.use_cases
        for rivals in (("processes", "threads"), ("processes", "sequential"))
    ]


def test_several_pairs_show_the_noise_of_two_cores(jobs: list[Job]) -> None:
    """Bug: one A/A pair alone leaves one degree of freedom, and an interval of the noise that is too wide to use."""
    twice = [pair for pair in pairs(jobs) if {job.variant for job in pair} == {"a", "b"}]
    assert [first.strategy for first, _ in twice] == ["processes", "threads", "intra_op"]
    assert all(first == second.with_(variant="a") for first, second in twice)
    assert all(first.use_case == "SimpleBig" and first.workers * first.cores_per_worker == 2 for first, _ in twice)
    assert twice[0][0].workers == 2


def test_there_is_always_a_warm_up(jobs: list[Job]) -> None:
    assert all(job.warmup_steps >= 3 for job in jobs)


@pytest.mark.parametrize(
    "values", [{"use_cases": ["SimpleBig"]}, {"scaling_workers": [2]}, {"use_cases": ["ComplexSmall"]}]
)
def test_a_smaller_grid_has_its_pairs_too(values: dict[str, Any]) -> None:
    found = cells(changed(**values))
    assert all(len(pair) == 2 for pair in pairs(found)[:2])
    assert {place for each in comparisons(found) for place in each.cells} == set(range(len(found)))


@pytest.mark.slow
def test_no_verdict_table_target_or_finding_lacks_a_pair() -> None:
    """Made-up records have the cells of a comparison in one round, and of no other pair."""
    stored = Stored(records(), {"resources": resources()})
    claims = read_claims()
    for row in claims[claims["notebook"] == EXPERIMENT.name].to_dict("records"):
        found = judge(row, stored, EXPERIMENT.verdicts)
        assert "measure them in one run" not in found.reason, row["id"]
    alone = {(name, "b") for name in TWICE}  # the second of an A/A pair stands beside the first
    for name, table in EXPERIMENT.tables.items():
        shown = table(stored)
        if "reason" not in shown:
            continue
        lacking = shown[shown["reason"].astype(str).str.contains("measure them in one run")]
        assert {(row.strategy, row.variant) for row in lacking.itertuples()} <= alone, name
    for name, say in EXPERIMENT.findings.items():
        assert "do not answer" not in say(stored) and "not known yet" not in say(stored), name
    for row in target_table(EXPERIMENT.targets, stored).to_dict("records"):
        assert row["rounds"] >= 8 or "bfloat16" in row["target"], row["target"]


def test_only_what_figure_2_and_3_show_is_traced(jobs: list[Job]) -> None:
    found = [(job.use_case, job.strategy) for job in jobs if traced(job) and job.device == "cpu"]
    assert found == [(name, strategy) for name in CHOSEN.use_cases for strategy in ("threads", "processes")]


@pytest.mark.slow
def test_a_grid_is_planned_without_torch() -> None:
    code = "import sys; import lockstep.experiments.e02_threads_vs_processes.grid; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_the_notebook_has_every_parameter(root: Any) -> None:
    notebook = json.loads((root / "notebooks" / f"{EXPERIMENT.name}.ipynb").read_text())
    (source,) = [c["source"] for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", [])]
    given: dict[str, Any] = {}
    exec("".join(source), given)
    ours = {name: given[name] for name in vars(CHOSEN)}
    assert SimpleNamespace(**ours) == SimpleNamespace(**vars(CHOSEN)), "what the tests measure is what is measured"

"""Notebook 03's grid: what its verdicts, tables and targets compare stands in one round."""

from __future__ import annotations

import pytest

from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import target_table
from lockstep.analysis.verdicts import DECIDED, MEASURED
from lockstep.engine.job import Job
from lockstep.experiments.e03_pipelined_model_parallelism import EXPERIMENT
from planned_rounds import MEASURE_TOGETHER, defaults, planned_records

SPEEDS = {"sequential": 1.0, "naive_pipeline": 0.9, "intra_op": 1.8, "processes": 1.9, "decode": 10.0}


def speed(job: Job) -> float:
    return SPEEDS.get(job.strategy, 1.5)


@pytest.fixture(scope="module")
def stored() -> Stored:
    return Stored(planned_records(EXPERIMENT, speed))


def test_every_verdict_finds_its_cells_in_one_round(stored: Stored) -> None:
    for claim in read_claims().to_dict("records"):
        if claim["notebook"] == EXPERIMENT.name:
            found = EXPERIMENT.verdicts[claim["verdict"]](claim, stored)
            assert MEASURE_TOGETHER not in found.reason, claim["id"]
            if found.grade == MEASURED and found.measured:
                assert found.answer in DECIDED and found.round_seconds == 20.0, claim["id"]


def test_every_number_of_the_tables_has_its_base(stored: Stored) -> None:
    for name, column in (("speedup", "speedup"), ("schedules", "speedup"), ("partition", "ratio")):
        table = EXPERIMENT.tables[name](stored)
        ran = table[table["status"] == "ok"]
        wanted = ran[ran["variant"] == "a"] if "variant" in ran else ran
        assert len(wanted) and wanted[column].notna().all(), name
        assert not ran["reason"].str.contains(MEASURE_TOGETHER).any(), name


def test_targets_find_theirs(stored: Stored) -> None:
    table = target_table(EXPERIMENT.targets[:2], stored).set_index("target")
    assert table.iloc[0]["ratio"] == pytest.approx(1.5 / 0.9), "over naive"
    assert MEASURE_TOGETHER not in "".join(table["reason"])


def test_headlines_are_the_first_use_cases_pipeline_against_one_core_and_two() -> None:
    jobs = EXPERIMENT.grid(defaults(EXPERIMENT))
    found = [[jobs[place] for place in each.cells] for each in EXPERIMENT.comparisons(jobs) if each.headline]
    assert {pair[0].strategy for pair in found} == {"gpipe"} and {pair[0].use_case for pair in found} == {"SimpleBig"}
    assert [pair[1].strategy for pair in found] == ["sequential", "intra_op", "processes"]


def test_warm_up_is_never_short_and_equal_cells_stand_twice() -> None:
    jobs = EXPERIMENT.grid(defaults(EXPERIMENT))
    assert all(job.warmup_steps >= 3 for job in jobs if job.experiment != "decode")
    twice = {(job.experiment, job.strategy, job.workers) for job in jobs if job.variant == "b"}
    assert twice == {("speedup", "gpipe", 2), ("schedules", "naive_pipeline", 2)}

"""A cell whose server runs a policy: what its row and its tables say."""

from __future__ import annotations

import pytest

import tiny
from lockstep.engine.training.loop import Site, run_job
from lockstep.measure.summary import summarise
from lockstep.measure.traced_tables import traced_tables
from lockstep.records.schema import MEASUREMENTS
from steps import on_ranks
from together import small_job


def test_a_row_is_per_update_and_tasks_are_kept() -> None:
    this = small_job(
        sync="parameter_server", workers=2, servers=1, launcher="threads", policy="k_sync", steps=10, warmup_steps=2,
        delays="bad_node:worker=1,slow=4", compute="sleep:fixed_seconds=0.03", experiment="timeline",
    )  # fmt: skip
    traces = on_ranks(3, lambda group: run_job(this, group, Site(use_case=tiny.case())))
    row, tables = summarise(this, traces), traced_tables(this, traces, None)
    assert set(row) <= set(MEASUREMENTS)
    tasks = tables["tasks"]
    of_the_cell = tasks[["policy", "delays", "compute", "seed"]].drop_duplicates().to_dict("records")
    assert of_the_cell == [{name: getattr(this, name) for name in ("policy", "delays", "compute", "seed")}]
    applied = tasks[tasks["fate"] == "applied"]
    assert len(applied) == 12 and set(applied["worker"]) == {0}
    assert len(tables["steps"]) == 10, "the updates after the warm-up"
    assert "tasks" not in traced_tables(this.with_(experiment="speed"), traces, None), "thousands of rows per cell"
    assert row["step_seconds"] == pytest.approx(tables["steps"]["seconds"].mean())
    assert 0.03 < row["step_seconds"] < 0.1, "nobody waits for the slow one, which takes 0.12 s"
    used = applied[applied["update"] >= 2]
    assert row["images_per_second"] == pytest.approx(used["samples"].sum() / tables["steps"]["seconds"].sum())

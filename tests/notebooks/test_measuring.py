"""Every notebook that measures does so, from its grid to its figures: small batches, one round, the smoke profile."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockstep.figures import FIGURES

from lockstep.commands.runner import plan_runs
from lockstep.commands.runner.execution import execute
from lockstep.records import read_records

pytestmark = pytest.mark.usefixtures("no_leftovers")

TINY = {
    "01": ["images=24", "batch_size={SimpleBig: 2}"],
    "05": [
        *[
            "images=24",
            "per_worker_batch_size={SimpleBig: 1}",
            "batch_size=1",
            "local_steps=1",
            "message_bytes=[4096, 65536]",
        ],
        *[
            "link_rates=[1.0e+10]",
            "weak_syncs={SimpleBig: [allreduce, parameter_server]}",
            "server_bytes=65536",
            "strong_syncs={}",
        ],
    ],
    "03": [
        "images=24",
        "global_batch_size={SimpleBig: 4}",
        "micro_batches={SimpleBig: 2}",
        "pipelined={SimpleBig: [1f1b]}",
        "schedules=[1f1b, zero_bubble]",
        "schedule_micro_batches=[2]",
        "schedule_batch_size=4",
        "stage_counts=[2]",
    ],
    "04": [
        "images=24",
        "global_batch_size={SimpleBig: 4}",
        "micro_batches={SimpleBig: 2}",
        "worker_counts={SimpleBig: [2]}",
        "layer_sizes={SimpleBig: [1, 2]}",
        "message_bytes=[4096, 65536]",
    ],
    "02": ["images=24", "per_worker_batch_size={SimpleBig: 1}", "scaling_batch_size=2"],
    "06": [
        "images=24",
        "use_cases=[SimpleBig]",
        "worker_counts={SimpleBig: [2]}",
        "per_worker_batch_size={SimpleBig: 1}",
        "variants={SimpleBig: [mpi_allreduce, spark_allreduce, sparknet, sparknet_tau]}",
        "data_sizes=[6, 12]",
        "prepared_images=12",
        "message_bytes=65536",
    ],
    "07": [
        "images=40",
        "networks=[cnn]",
        "ways={cnn: {processes: [8], gpipe: [8]}}",
        "updates_batch_sizes=[8]",
        "ablation_images=16",
        "speed_batch_sizes=[8]",
        "speed_images=16",
    ],
    "08": [
        "images=40",
        "networks=[cnn]",
        "batch_size=8",
        "per_worker_batch_size=2",
        "held_out_batch_size=6",
        "message_bytes=[4096, 65536]",
        "learning_batch_sizes=[8]",
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(1200)  # 06 starts Spark for several teams, one after the other
@pytest.mark.parametrize("number", TINY)
def test_it_measures_and_draws(number: str, root: Path, tmp_path: Path) -> None:
    (plan,) = plan_runs([number], root, profile="smoke", assignments=TINY[number], out=tmp_path / "run")
    execute(plan)
    records = read_records(plan.folder)
    assert set(records["status"]) <= {"ok", "skipped"}, records[records["status"] == "failed"]["reason"].tolist()
    assert (records["status"] == "ok").sum() >= 8
    drawn = {path.name for path in (plan.folder / "figures").iterdir()}
    assert drawn == {f"{name}.{kind}" for name in FIGURES[plan.name] for kind in ("png", "svg")}


def test_every_notebook_with_figures_is_tried(root: Path) -> None:
    assert {plan.name for plan in plan_runs(list(TINY), root)} == set(FIGURES)

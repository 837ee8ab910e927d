"""Every notebook that measures does so, from its grid to its figures.

Two of them really measure as `lockstep run` does, what they can with the smallest network: 02 on this machine's
processes, 06 on MPI and a Spark driver. In the others the grid is answered from the stored results, since the
conformance suite and the tests of probes run what it would run; and their cells run here, since a kernel takes longer
to start than they take. Kernels run them in test_execution.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from stored_measuring import StoredMeasuring

from harness.spark_cluster import quick_java
from lockstep.commands.runner.execution import execute
from lockstep.commands.runner.plans import RunPlan, plan_runs
from lockstep.engine.job import IDENTITY
from lockstep.experiments import registry
from lockstep.records import read_records

pytestmark = pytest.mark.usefixtures("no_leftovers")

REALLY = {
    "02": [
        "images=24",
        "use_cases=[Pneumonia]",
        "per_worker_batch_size={SimpleBig: 1, Pneumonia: 1}",
        "scaling_batch_size=2",
        "kernels_batch_size=2",
    ],
    "06": [
        "images=24",
        "use_cases=[Pneumonia]",
        "worker_counts={Pneumonia: [2]}",
        "per_worker_batch_size={Pneumonia: 1}",
        "variants={Pneumonia: [sparknet]}",
        "tau=2",
        "data_sizes=[6]",
        "prepared_images=12",
        "message_bytes=65536",
    ],
}
STORED = ("01", "03", "04", "05", "07", "08", "09", "10", "11", "13")


def plan_of(number: str, assignments: list[str], root: Path, folder: Path) -> RunPlan:
    (plan,) = plan_runs([number], root, profile="smoke", assignments=assignments, out=folder)
    return plan


def check(plan: RunPlan) -> pd.DataFrame:
    """The records of a run that is whole."""
    records = read_records(plan.folder)
    assert set(records["status"]) <= {"ok", "skipped"}, records[records["status"] == "failed"]["reason"].tolist()
    assert (records["status"] == "ok").sum() >= 7
    drawn = {path.name for path in (plan.folder / "figures").iterdir()}
    figures = registry.experiment(plan.name).figures
    assert figures and drawn == {f"{name}.{kind}" for name in figures for kind in ("png", "svg")}
    return records


@pytest.mark.slow
@pytest.mark.timeout(1200)  # 06 starts Spark for several teams, one after the other
@pytest.mark.parametrize("number", ["02", pytest.param("06", marks=pytest.mark.serial)])
def test_it_measures_and_draws(number: str, root: Path, tmp_path: Path) -> None:
    if number == "06":
        quick_java()
    plan = plan_of(number, REALLY[number], root, tmp_path / "run")
    execute(plan)
    records = check(plan)
    measured = records[(records["status"] == "ok") & records["images_per_second"].notna()]
    assert measured["images_per_second"].is_unique and len(measured) >= 5, "clocks were read for each of them"


def run_cells(plan: RunPlan) -> None:
    """The notebook's code in this process, with what papermill makes of the parameters."""
    notebook = load_notebook_node(str(plan.notebook))
    names = {"display": lambda *shown: None}
    for cell in parameterize_notebook(notebook, plan.parameters, kernel_name="python3", language="python").cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, plan.notebook.name, "exec"), names)
            pyplot.close("all")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", STORED)
def test_it_asks_for_its_grid_and_draws(
    number: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(number, ["images=24"], root, tmp_path / "run")
    reference = root / "results" / "reference" / plan.name
    monkeypatch.setattr("lockstep.measure.round.measure_job", StoredMeasuring(reference).measure_job)
    monkeypatch.chdir(root)
    run_cells(plan)
    records, stored = check(plan), read_records(reference)
    assert set(records["round"]) == {*range(records["round"].max() + 1)}
    assert not records.duplicated(list(IDENTITY)).any()
    known = records["step_seconds"].isin(stored["step_seconds"]) | records["step_seconds"].isna()
    made_up = records["step_seconds"] == records["global_batch_size"] / 10  # of what nobody has stored yet
    assert (known | made_up).all(), "nothing was measured"


def test_every_notebook_with_figures_is_tried(root: Path) -> None:
    tried = {plan.name for plan in plan_runs([*REALLY, *STORED], root)}
    assert tried == {each.name for each in registry.every() if each.grid is not None}

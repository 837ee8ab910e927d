"""A new experiment is one folder, one notebook and one line: done here in a copy of the tree, and then run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "99_toy"
FOLDER = {
    "__init__.py": '''"""Notebook 99: How fast is a matrix product?"""

from lockstep.experiments.e99_toy.figures import FIGURES
from lockstep.experiments.e99_toy.findings import FINDINGS
from lockstep.experiments.e99_toy.grid import cells
from lockstep.experiments.e99_toy.tables import TABLES
from lockstep.experiments.e99_toy.verdicts import RULES
from lockstep.experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="99_toy",
    question="How fast is a matrix product?",
    grid=cells,
    tables=TABLES,
    figures=FIGURES,
    findings=FINDINGS,
    verdicts=RULES,
)
''',
    "grid.py": '''"""One cell: a large matrix product on one core."""

from lockstep.engine.job import NO_USE_CASE, Job


def cells(chosen):
    job = Job(
        experiment="machine", use_case=NO_USE_CASE, strategy="sequential", input="none", steps=chosen.steps,
        warmup_steps=0, global_batch_size=1, per_worker_batch_size=1,
    )
    return [job]
''',
    "tables.py": '''"""The speed of each round."""


def speed(stored):
    return stored.records[["round", "flops_per_second", "status"]]


TABLES = {"speed": speed}
''',
    "figures.py": '''"""The speed of each round, as points."""

from lockstep.analysis.figures.style import look, new_figure


def speed(stored):
    with look():
        figure = new_figure(4, 3)
        axis = figure.subplots()
        axis.plot(stored.records["round"], stored.records["flops_per_second"] / 1e9, "o")
        axis.set_ylabel("GFLOP per second")
        figure.suptitle("Matrix products on one core")
    return figure


FIGURES = {"speed": speed}
''',
    "findings.py": '''"""What that figure shows."""

from lockstep.analysis.sentences import finding, sentence


@finding
def speed(stored):
    fastest = stored.records["flops_per_second"].max() / 1e9
    return sentence(f"the fastest round reached {fastest:.3g} GFLOP per second")


FINDINGS = {"speed": speed}
''',
    "verdicts.py": '''"""Whether one core is fast enough."""

from lockstep.analysis.verdicts import CONTRADICTED, SUPPORTED, Verdict, Verdicts

RULES = Verdicts()


@RULES.add
def toy_is_fast(claim, stored):
    fast = stored.records["flops_per_second"].max() > float(claim["value"])
    return Verdict(SUPPORTED if fast else CONTRADICTED, "measured", "compared")
''',
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # it starts kernels: an end for a hanging one, not a measure

LINE = ("\n)\n", '\n    "99_toy",\n)\n')
CLAIM = "toy-fast,claim,single-to-multi,nowhere,A core multiplies matrices,1,FLOP/s,other,99_toy,toy_is_fast,\n"
CELLS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("markdown", "# 99 · How fast is a matrix product?", {}),
    (
        "code",
        'measure: bool = False\nresults: str = "results/reference"\ndata_dir: str = ""\nstrict: bool = False\n'
        "images: int = 0\nminutes: float = 1.0\nrounds: int = 1\nsteps: int = 1\n",
        {"tags": ["parameters"]},
    ),
    (
        "code",
        'from lockstep.experiments.opening import open_experiment\n\nrun = open_experiment("99", globals())',
        {},
    ),
    ("code", 'display(run.finding("speed"), run.figure("speed"))\nrun.table("speed")', {}),
    ("code", "run.verdicts()", {}),
)


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the toy moved in."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("lib", "data/published", "notebooks/profiles"):
        # With what Python has compiled, which fits files of the same size and time: no process need compile it again.
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(root / name, copy / name)
    experiments = copy / "lib" / "lockstep" / "experiments"
    (experiments / f"e{NAME}").mkdir()
    for name, text in FOLDER.items():
        (experiments / f"e{NAME}" / name).write_text(text)
    registry = experiments / "registry.py"
    registry.write_text(registry.read_text().replace(*LINE, 1))
    cells = []
    for kind, text, metadata in CELLS:
        cell: dict[str, object] = {"cell_type": kind, "metadata": metadata, "source": text.splitlines(keepends=True)}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    (copy / "notebooks" / f"{NAME}.ipynb").write_text(json.dumps(notebook))
    with (copy / "data" / "published" / "claims.csv").open("a", encoding="utf-8") as ledger:
        ledger.write(CLAIM)
    return copy


def lockstep(tree: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "lockstep.commands.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tree / "lib")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def measured(tree: Path) -> Path:
    lockstep(tree, "run", "99")
    (folder,) = (tree / "results" / "runs").glob(f"*/{NAME}")
    return folder


def test_it_runs_and_draws_and_answers(tree: Path, measured: Path) -> None:
    assert {path.name for path in (measured / "figures").iterdir()} == {"speed.png", "speed.svg"}
    executed = json.loads((measured / "executed.ipynb").read_text())
    shown = json.dumps([cell.get("outputs") for cell in executed["cells"]])
    assert "The fastest round reached" in shown and "image/png" in shown and "supported" in shown


def test_the_report_holds_its_claim(tree: Path, measured: Path) -> None:
    report = lockstep(tree, "report", "--results", str(measured.parent))
    assert "A core multiplies matrices" in report and f"## {NAME}" in report

"""What a soak runs: `lockstep run NN` in a small repository, whose notebooks measure a few cells of their own grids."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 64

_MEASURING = """\
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.registry import experiment
from lockstep.measure.grid import run_grid
from lockstep.records.places import repository_root

found = experiment("{number}")
names = read_parameters(repository_root() / "notebooks" / f"{{found.name}}.ipynb")
grid = found.grid(Parameters(**{{name: globals()[name] for name in names}}))
wanted = {wanted!r}
cells = [job for job in grid if (job.experiment, job.strategy, job.hosts) in wanted and job.variant == "a"]
cells = [job for job in cells if job.device == "cpu" and job.use_case == "Pneumonia"]
assert {{(job.experiment, job.strategy, job.hosts) for job in cells}} == set(wanted), [job.label for job in grid]
assert len(cells) == {rows}
run_grid(cells, notebook=found.name, results=results, parameters={{}}, rounds=rounds, images=images)
"""


@dataclass(frozen=True)
class Small:
    """A notebook's cells that are run, by (experiment, strategy, hosts), and the parameters that make them small."""

    name: str
    wanted: tuple[tuple[str, str, int], ...]
    rows: int  # of a round: a cell each
    parameters: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0  # how often it is drawn; a run of Spark takes several times as long
    faults: int = 20  # that one run is hit by at most


def _each(value: object) -> dict[str, object]:
    return {"Pneumonia": value}


NOTEBOOKS = {
    "02": Small(
        "02_threads_vs_processes",
        (("scaling", "threads", 1), ("scaling", "processes", 1)),
        2,
        {
            "use_cases": [], "scaling_workers": [2], "scaling_batch_size": 8, "small_steps": 3, "warmup_steps": 1,
        },
    ),
    "03": Small(
        "03_pipelined_model_parallelism",
        (("speedup", "gpipe", 1), ("speedup", "processes", 1)),
        2,
        {
            "use_cases": ["Pneumonia"], "global_batch_size": _each(8), "micro_batches": _each(4), "steps": 3,
            "two_cores": _each(["processes"]), "stage_counts": [], "schedules": ["gpipe"], "warmup_steps": 1,
        },
    ),
    "04": Small(
        "04_hybrid_parallelism",
        (("hybrid", "1f1b", 1), ("hybrid", "processes_allreduce", 1)),
        3,
        {
            "use_cases": ["Pneumonia"], "global_batch_size": _each(8), "worker_counts": _each([2]), "steps": 3,
            "others": _each([]), "micro_batches": _each(2), "layer_sizes": _each([]), "warmup_steps": 1,
        },
    ),
    "05": Small(
        "05_mpi_distribution",
        (("headline", "mpi_shared_memory", 1), ("headline", "mpi_allreduce", 2), ("weak", "parameter_server", 1)),
        3,
        {
            "use_cases": [], "steps": {"SimpleBig": 1, "Pneumonia": 3}, "warmup_steps": 1,
            "weak_syncs": _each(["parameter_server"]), "message_bytes": [], "densities": [],
            "per_worker_batch_size": {"SimpleBig": 8, "Pneumonia": 4},
        },
        weight=1.2,
    ),
    "06": Small(
        "06_spark_distribution",
        (("speedup", "spark_allreduce", 1), ("speedup", "sparknet", 1)),
        2,
        {
            "use_cases": ["Pneumonia"], "steps": {"SimpleBig": 1, "Pneumonia": 3}, "warmup_steps": 1,
            "worker_counts": _each([2]), "variants": _each(["spark_allreduce", "sparknet"]), "data_sizes": [32],
            "message_bytes": 4096, "per_worker_batch_size": {"SimpleBig": 8, "Pneumonia": 4},
        },
        weight=0.5,  # it starts two clusters
        faults=8,
    ),
    "07": Small(
        "07_convlstm_batch_size",
        (("learning", "processes", 1), ("speed", "parameter_server", 1)),
        2,
        {
            "networks": ["cnn"], "epochs": 1, "ways": {"cnn": {"processes": [32]}}, "updates": 0, "tuned": "",
            "paired": {}, "ablation": {"pooling": [], "dropout": []}, "strategies": ["parameter_server"],
            "speed_batch_sizes": [32], "speed_images": 64, "profiled": {"networks": [], "batch_size": 32},
        },
    ),
}  # fmt: skip


def build(folder: Path) -> Path:
    """The small repository in `folder`: the notebooks' own parameters, and a cell that measures. Returns its root."""
    (folder / "notebooks" / "profiles").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    profile = {}
    for number, small in NOTEBOOKS.items():
        whole = nbformat.read(ROOT / "notebooks" / f"{small.name}.ipynb", as_version=4)
        own = [cell for cell in whole.cells if "parameters" in cell.metadata.get("tags", [])]
        code = _MEASURING.format(number=number, wanted=small.wanted, rows=small.rows)
        whole.cells = [*own, nbformat.v4.new_code_cell(code)]
        nbformat.write(whole, folder / "notebooks" / f"{small.name}.ipynb")
        profile[small.name] = {"images": IMAGES, **small.parameters}
    (folder / "notebooks" / "profiles" / "soak.yaml").write_text(yaml.safe_dump(profile))
    return folder


def command(python: str, number: str, out: Path, rounds: int) -> list[str]:
    """What runs a notebook into `out`, until so many rounds are stored there."""
    words = ["run", number, "--profile", "soak", "-p", f"rounds={rounds}", "--out", str(out)]
    return [python, "-m", "lockstep.commands.cli", *words]

"""A tiny repository with one notebook, for the tests of the runner."""

from __future__ import annotations

from pathlib import Path

import nbformat

PARAMETERS = """\
# What this notebook may be told.
workers: int = 2
rate: float = 0.5
names: list[str] = ["threads", "ddp"]
limits: dict[str, int] = {"a": 1}
label: str = "x"
quick: bool = False
data_dir: str = ""
measure: bool = False
results: str = "results/reference"
"""


def small_repository(folder: Path, *cells: str, parameters: str = PARAMETERS) -> Path:
    """A repository with the notebook 07_small: its parameters cell, then `cells`. Returns its root."""
    (folder / "notebooks" / "profiles").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "lockstep"\n')
    (folder / "notebooks" / "profiles" / "smoke.yaml").write_text("07_small: {workers: 1, rate: 2}\n")
    write_notebook(folder / "notebooks" / "07_small.ipynb", parameters, *cells)
    return folder.resolve()


def write_notebook(path: Path, parameters: str, *cells: str) -> Path:
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# Does it run?"),
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *(nbformat.v4.new_code_cell(cell) for cell in cells),
    ]
    nbformat.write(notebook, path)
    return path

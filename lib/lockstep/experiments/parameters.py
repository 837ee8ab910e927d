"""The names of a notebook's parameters, read from the notebook itself."""

from __future__ import annotations

import ast
import json
from pathlib import Path


def parameter_names(notebook: Path) -> list[str]:
    """The names that the cell tagged `parameters` assigns, in its order. Raises OSError, ValueError for no notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    tagged = ["".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    lines = ast.parse("\n".join(tagged)).body
    return [line.target.id for line in lines if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]

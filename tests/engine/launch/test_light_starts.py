"""What a process above a rank, and a rank itself, import before they are asked to train: each import is paid by all."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # Bug: Spark's worker, torchrun's script and the driver imported torch, which only torchrun and the rank need.
        ("lockstep.engine.launch.spark.rank_process", {"torch", "pandas", "pyspark"}),
        ("lockstep.engine.launch.spark.driver", {"torch", "pandas", "pyspark"}),
        # Bug: every rank of `lockstep mpi` imported pandas, with which only the first one tells the result.
        ("lockstep.commands.mpi_rank", {"pandas", "scipy", "matplotlib"}),
    ],
)
def test_nothing_is_imported_that_others_need(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"

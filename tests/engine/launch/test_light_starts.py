"""What the processes above a rank, and a rank before it trains, import: every one of them pays for each import."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABOVE_A_RANK = ("spark.rank_process", "spark.driver", "spark.torchrun", "environment", "worker")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # Bug: Spark's worker, torchrun's script and the driver imported torch, which only torchrun and the rank need.
        *((f"lockstep.engine.launch.{name}", {"torch", "pandas", "pyspark"}) for name in ABOVE_A_RANK),
        # Bug: every rank of `lockstep mpi` imported pandas, with which only the first one tells the result.
        ("lockstep.commands.mpi_rank", {"pandas", "scipy", "matplotlib"}),
        # Bug: `lockstep.train` imported torch's pipelining to look for a model's layers: two of its five seconds.
        ("lockstep.api", {"pandas", "torch.distributed.pipelining"}),
    ],
)
def test_nothing_is_imported_that_others_need(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"

"""Verdicts on Table 3's GPUs: without any the paper's tables order them, and a model says from which batch on."""

from __future__ import annotations

import pytest

from fake_distribution import claim
from lockstep.analysis.judging import judge
from lockstep.analysis.stored import no_records
from lockstep.analysis.verdicts import CONTRADICTED, MODEL, PAPER, SUPPORTED, UNDECIDED
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT
from lockstep.predict import gpu_answers


@pytest.mark.parametrize("name", ["table3-mpi-gpu-complexsmall", "table3-mpi-gpu-simplebig", "headline-gpu"])
def test_a_speedup_over_one_gpu_takes_nodes_and_batches(name: str) -> None:
    found = judge(claim(name), no_records(), EXPERIMENT.verdicts)
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and "images per GPU on 32 nodes" in found.measured
    assert "several hosts with CUDA GPUs" in found.reason


@pytest.mark.parametrize("name", ["mpi-gpu-simplebig", "mpi-gpu-complexsmall"])
def test_the_order_of_mpi_and_model_parallelism_is_that_of_the_tables(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judge(claim(name), no_records(), EXPERIMENT.verdicts)
    assert (found.answer, found.grade) == (SUPPORTED, PAPER) and "Table 3" in found.measured
    turned = {("SimpleBig", "MPI"): 7.0, ("ComplexSmall", "MPI"): 7.0}
    published = gpu_answers.printed

    def other(use_case: str, row: str, device: str = "cuda", table: str = "table1") -> float:
        return turned.get((use_case, row)) or published(use_case, row, device, table)

    monkeypatch.setattr(gpu_answers, "printed", other)
    assert judge(claim(name), no_records(), EXPERIMENT.verdicts).answer == CONTRADICTED

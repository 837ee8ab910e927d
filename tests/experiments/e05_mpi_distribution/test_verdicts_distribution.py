"""Verdicts on MPI training: each turns with the records, and says why where they can't answer."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from fake_distribution import NO_CUDA, claim, not_run, records, scaled, without
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    DECIDED,
    MEASURED,
    MODEL,
    NEEDS_HARDWARE,
    NOT_YET,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT
from lockstep.experiments.e05_mpi_distribution.factors import cluster_table

NOTEBOOK = "05_mpi_distribution"
OF_THE_PAPER = {"s2m-local-decides", "s2m-das-16"}
"""Claims that the paper's own numbers answer, whatever was measured."""
GPU = {"s2m-table3-mpi-gpu-complexsmall", "s2m-table3-mpi-gpu-simplebig", "s2m-headline-gpu"}
GPU |= {"s2m-mpi-gpu-simplebig", "s2m-mpi-gpu-complexsmall"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame) -> Verdict:
    return judge(row, Stored(frame), EXPERIMENT.verdicts)


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == NOTEBOOK].to_dict("records")


def test_every_claim_of_the_notebook_has_its_function_and_its_cells(frame: pd.DataFrame) -> None:
    """The grid's pairs hold all that the verdicts compare: nothing is to be "measured in one run"."""
    assert len(own_claims()) == 19 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        found = judged(row, frame)
        assert found.reason and found.answer != NOT_YET, row["id"]


def test_without_records_and_with_too_few_rounds_nothing_measured_is_decided() -> None:
    for row in own_claims():
        if row["id"] in OF_THE_PAPER | GPU:
            continue
        assert judge(row, no_records(), EXPERIMENT.verdicts).answer == NOT_YET, row["id"]
        assert judged(row, records(rounds=4)).answer in {NOT_YET, NEEDS_HARDWARE, UNDECIDED}, row["id"]


def test_a_published_figure_stands_beside_a_number_of_its_unit(frame: pd.DataFrame) -> None:
    numbers = {row["id"].removeprefix("s2m-"): judged(row, frame).numbers for row in own_claims() if row["value"] > 0}
    assert {"table3-mpi-cpu-complexsmall", "table3-mpi-cpu-simplebig", "terngrad-speed", "network-peak"} <= {
        name for name, found in numbers.items() if found
    }
    assert [ratio.value for _, ratio in numbers["table3-mpi-cpu-simplebig"]] == pytest.approx([1.6], rel=0.01)


# --- Table 3 ---


def test_table_3_says_how_many_cores_it_takes_and_how_mpi_stands_to_one_node(frame: pd.DataFrame) -> None:
    found = judged(claim("table3-mpi-cpu-simplebig"), frame)
    assert (found.answer, found.grade) == (UNDECIDED, MODEL) and math.isinf(found.rounds_more)
    expected = "1.54 to 1.88 on the cores of one node or 0.769 to 0.94 on 2 nodes"
    assert "at least 27 cores" in found.reason and expected in found.reason
    assert found.measured.startswith("1.06 [") and found.round_seconds > 0
    small = judged(claim("table3-mpi-cpu-complexsmall"), frame)
    assert "at least 13 cores" in small.reason and "0.631 to 0.771 on 3 nodes" in small.reason


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_ratio_that_no_reading_allows_contradicts_table_3(frame: pd.DataFrame, factor: float) -> None:
    other = scaled(frame, "images_per_second", factor, experiment="bars", strategy="mpi_shared_memory")
    assert judged(claim("table3-mpi-cpu-simplebig"), other).answer == CONTRADICTED


@pytest.mark.parametrize("name", sorted(GPU))
def test_gpu_claims_take_the_reason_of_the_skipped_rows(frame: pd.DataFrame, name: str) -> None:
    found = judged(claim(name.removeprefix("s2m-")), frame)
    assert found.answer in {*DECIDED, UNDECIDED, NEEDS_HARDWARE}
    assert found.answer != NEEDS_HARDWARE or NO_CUDA in found.reason


# --- comparisons ---


def test_mpi_is_best_if_it_is_above_processes_on_the_same_cores(frame: pd.DataFrame) -> None:
    found = judged(claim("mpi-cpu-best"), frame)
    assert (found.answer, found.grade) == (SUPPORTED, MEASURED) and found.measured.count("processes without MPI") == 2
    beaten = scaled(frame, "images_per_second", 1.2, experiment="bars", strategy="processes", use_case="SimpleBig")
    assert judged(claim("mpi-cpu-best"), beaten).answer == CONTRADICTED


def test_an_interval_that_holds_one_decides_nothing(frame: pd.DataFrame) -> None:
    """1.06 x 1.8 is 1.91: equal but for the rounds' noise."""
    level = scaled(frame, "images_per_second", 1.91 / 1.8, experiment="bars", strategy="processes")
    found = judged(claim("mpi-cpu-best"), level)
    assert found.answer == UNDECIDED and found.rounds_more > 0


def test_without_processes_mpi_is_not_called_best(frame: pd.DataFrame) -> None:
    alone = without(frame, experiment="bars", strategy="processes", use_case="SimpleBig")
    assert judged(claim("mpi-cpu-best"), alone).answer == NOT_YET
    failed = not_run(frame, "failed", "rank 1 raised", experiment="bars", strategy="processes")
    found = judged(claim("mpi-cpu-best"), failed)
    assert found.answer == NOT_YET and "failed: rank 1 raised" in found.reason


# --- the headline ---


def test_the_papers_own_tables_leave_no_constant_factor() -> None:
    factors = cluster_table().set_index(["one node", "use_case"])["factor"].round(2)
    assert factors.to_dict() == {
        ("CPU multi-process", "ComplexSmall"): 2.10, ("CPU multi-process", "SimpleBig"): 1.71,
        ("GPU single-process", "ComplexSmall"): 2.63, ("GPU single-process", "SimpleBig"): 9.43,
        ("model", "ComplexSmall"): 0.61, ("model", "SimpleBig"): 1.47,
    }  # fmt: skip


def test_the_headline_stays_undecided_with_its_reasons(frame: pd.DataFrame) -> None:
    for stored in (Stored(frame), no_records()):
        found = judge(claim("local-decides"), stored, EXPERIMENT.verdicts)
        assert (found.answer, found.grade) == (UNDECIDED, PAPER) and math.isinf(found.rounds_more)
        assert "9.43" in found.reason and "share this machine's cores" in found.reason
    shown = judged(claim("local-decides"), frame).measured
    assert "MPI (a process of threads per host) 0.94" in shown and "MPI (shared memory) 1.1" in shown
    assert shown.count("on 2 hosts") == 2


def test_orders_that_do_not_differ_are_called_no_difference(frame: pd.DataFrame) -> None:
    level = scaled(frame, "images_per_second", 1.55 / 1.5, experiment="headline", strategy="host_threads", hosts=2)
    assert judged(claim("local-decides"), level).measured.count("(no difference)") == 1

"""Verdicts on hybrids: each turns with the records, and no row of the CPU stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_pipelines import NO_CUDA, claim, hybrid_records, on_gpus, resources
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import (
    BOUND,
    CONTRADICTED,
    MODEL,
    NEEDS_HARDWARE,
    PAPER,
    SUPPORTED,
    UNDECIDED,
    Verdict,
)
from lockstep.experiments.e04_hybrid_parallelism.verdicts import RULES


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return hybrid_records()


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == "04_hybrid_parallelism"].to_dict("records")


def judged(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judge(row, Stored(frame, {} if traces is None else {"resources": traces}), RULES)


TRACES = {"hybrid-threads", "hybrid-cpu-use", "hybrid-ram"}


@pytest.mark.parametrize("missing", ["GPUs", "records"])
def test_without_gpus_each_claim_has_an_answer_with_its_grade_or_names_the_hardware(
    frame: pd.DataFrame, missing: str
) -> None:
    assert len(own_claims()) == 7 and "pending" not in {row["verdict"] for row in own_claims()}
    stored = Stored(frame) if missing == "GPUs" else no_records()
    for row in own_claims():
        found = judge(row, stored, RULES)
        if row["id"].removeprefix("s2m-") in TRACES:
            assert found.answer == NEEDS_HARDWARE and "four CUDA GPUs" in found.reason, row["id"]
            assert missing != "GPUs" or NO_CUDA in found.reason
        else:
            assert found.answer in (SUPPORTED, CONTRADICTED) and found.grade in (PAPER, BOUND, MODEL), row["id"]
            assert "CUDA GPUs" in found.reason, row["id"]


def test_two_gpus_bound_the_hybrid_and_the_tables_order_it(frame: pd.DataFrame) -> None:
    found = judged(claim("table2-gpu-hybrid-simplebig"), frame)
    assert (found.answer, found.grade) == (CONTRADICTED, BOUND) and "at least 4 GPUs" in found.reason
    found = judged(claim("hybrid-between"), frame)
    assert (found.answer, found.grade) == (SUPPORTED, PAPER) and "3.85 (data and model, Table 2)" in found.measured


def test_counted_memory_tells_how_much_smaller_batches_are(frame: pd.DataFrame) -> None:
    found = judged(claim("hybrid-gpu-memory"), frame)
    assert (found.answer, found.grade) == (SUPPORTED, MODEL) and "GPUs of 8, 11, 16, 24 GB" in found.reason


def hybrids_on_gpus(frame: pd.DataFrame, hybrid: float) -> pd.DataFrame:
    gains = {"sequential": 1.0, "processes_allreduce": 1.5, "gpipe": 1.8, "hybrid": hybrid}
    return on_gpus(frame, "hybrid", gains)


@pytest.mark.parametrize(("hybrid", "word"), [(1.65, SUPPORTED), (1.3, CONTRADICTED), (2.0, CONTRADICTED)])
def test_the_hybrid_lies_between_the_other_two(frame: pd.DataFrame, hybrid: float, word: str) -> None:
    found = judged(claim("hybrid-between"), hybrids_on_gpus(frame, hybrid))
    assert found.answer == word and "hybrid over data: " in found.measured


@pytest.mark.parametrize(("value", "word"), [(1.65, SUPPORTED), (3.85, CONTRADICTED)])
def test_the_hybrids_speedup_is_of_replicas_of_a_pipeline(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judged(claim("table2-gpu-hybrid-simplebig") | {"value": value}, hybrids_on_gpus(frame, 1.65))
    assert found.answer == word and found.measured.startswith("1.65 ")


def test_cpu_use_is_of_the_cores_that_ranks_were_given(frame: pd.DataFrame) -> None:
    traces = resources("hybrid", ["gpipe"], device="cuda")
    found = judged(claim("hybrid-cpu-use") | {"value": 25.0}, hybrids_on_gpus(frame, 1.65), traces)
    assert found.answer == SUPPORTED and "% of 4 cores" in found.measured


def test_memory_of_the_host_with_the_hybrid(frame: pd.DataFrame) -> None:
    there = hybrids_on_gpus(frame, 1.65).assign(peak_pss_bytes=2.0**30)
    found = judged(claim("hybrid-ram"), there)
    assert found.answer == SUPPORTED and "below 1 + 10%" in found.reason
    more = there.assign(peak_pss_bytes=there["peak_pss_bytes"].where(there["sync"] == "local", 1.5 * 2**30))
    assert judged(claim("hybrid-ram"), more).answer == CONTRADICTED
    swinging = there.assign(peak_pss_bytes=2.0**30 * (1 + 0.3 * ((there["round"] + (there["sync"] == "local")) % 2)))
    found = judged(claim("hybrid-ram"), swinging)
    assert found.answer == UNDECIDED and found.rounds_more >= 1

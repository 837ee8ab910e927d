"""Verdicts on hybrids: each turns with the records, and no row of the CPU stands in for a GPU."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_pipelines import NO_CUDA, claim, hybrid_records, on_gpus, resources
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e04_hybrid_parallelism.verdicts import RULES


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return hybrid_records()


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == "04_hybrid_parallelism"].to_dict("records")


def judged(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judge(row, Stored(frame, {} if traces is None else {"resources": traces}), RULES)


def test_every_claim_has_its_function_and_gpus_are_missing_here(frame: pd.DataFrame) -> None:
    assert len(own_claims()) == 7 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        assert judged(row, frame) == Verdict(NEEDS_HARDWARE, "", NO_CUDA), row["id"]
        assert judge(row, no_records(), RULES).answer == NOT_YET, row["id"]


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
    assert found.answer == SUPPORTED and found.reason.startswith("no more: ")
    more = there.assign(peak_pss_bytes=there["peak_pss_bytes"].where(there["sync"] == "local", 1.5 * 2**30))
    assert judged(claim("hybrid-ram"), more).answer == CONTRADICTED
    found = judged(claim("hybrid-gpu-memory"), there)
    assert found.answer == NOT_YET and "no row holds the memory of a GPU" in found.reason

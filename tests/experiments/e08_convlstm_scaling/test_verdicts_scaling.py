"""Verdicts on scaling and FLOP: each turns with the records, and arithmetic needs none."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import without
from fake_scaling import records
from lockstep.analysis import judging
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e08_convlstm_scaling import EXPERIMENT

NAMES = (
    "table3_time_ratio", "table3_accuracy", "speedup_five_nodes", "flops_equation", "flops_total", "scaling_accuracy",
)  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judge(claim: dict[str, Any], frame: pd.DataFrame) -> Verdict:
    return judging.judge(claim, Stored(frame), EXPERIMENT.verdicts)


def claim(verdict: str, value: float = float("nan"), statement: str = "") -> dict[str, Any]:
    return {"id": "x", "verdict": verdict, "value": value, "use_case": "Pneumonia", "statement": statement, "note": "",
            "notebook": EXPERIMENT.name, "unit": ""}  # fmt: skip


def on_many_cores(frame: pd.DataFrame) -> pd.DataFrame:
    """As if the machine had a core for every rank."""
    return frame.assign(reason=frame["reason"].str.replace("workers share cores", "", regex=False))


def test_every_measured_claim_of_the_notebook_has_a_function(frame: pd.DataFrame) -> None:
    assert set(NAMES) <= set(EXPERIMENT.verdicts)
    for row in read_claims().to_dict("records"):
        if row["notebook"] == EXPERIMENT.name and row["verdict"] in NAMES:
            found = judge(row, frame)
            assert found.answer != NOT_YET and found.reason, row["id"]


def test_without_records_only_arithmetic_is_decided() -> None:
    for name in ("table3_time_ratio", "table3_accuracy", "speedup_five_nodes", "scaling_accuracy"):
        assert judge(claim(name, 1.2, "5 nodes over 6 nodes"), no_records().records).answer == NOT_YET
    assert judge(claim("flops_equation", 3.2e15), no_records().records).answer == SUPPORTED


@pytest.mark.parametrize("value", [3.2e15, 1.28e12, 5.12e12, 2_560_000])
def test_the_rows_of_table_4_follow_from_their_operands(value: float) -> None:
    found = judge(claim("flops_equation", value), no_records().records)
    assert found.answer == SUPPORTED and "Table 2's network computes" in found.reason
    assert found.measured.startswith(f"{value:.7g} FLOP = 2 x ")


def test_a_number_that_stands_nowhere_is_not_judged() -> None:
    assert judge(claim("flops_equation", 1.0), no_records().records).answer == NOT_YET
    assert judge(claim("flops_total", 1.0), no_records().records).answer == NOT_YET


@pytest.mark.parametrize(
    ("value", "word", "times"),
    [(3.2e15, SUPPORTED, "0.998"), (1.28256e16, CONTRADICTED, "4 times"), (1.28e19, CONTRADICTED, "3992.02")],
)
def test_only_the_single_nodes_total_is_the_sum(value: float, word: str, times: str) -> None:
    found = judge(claim("flops_total", value), no_records().records)
    assert found.answer == word and found.measured.startswith(times)


def test_five_nodes_need_five_cores(frame: pd.DataFrame) -> None:
    found = judge(claim("speedup_five_nodes", 6.59), frame)
    assert found.answer == NEEDS_HARDWARE and "1.65 times the ideal of its 4 workers" in found.reason
    assert "2 workers with a core each, batch 128" in found.measured and found.numbers


def test_with_cores_enough_the_speedup_is_judged(frame: pd.DataFrame) -> None:
    many = on_many_cores(frame)
    found = judge(claim("speedup_five_nodes", 6.59), many)
    assert found.answer == CONTRADICTED and "4 workers with a core each" in found.measured
    ours = found.numbers[0][1].value
    assert judge(claim("speedup_five_nodes", ours), many).answer == SUPPORTED


def test_table_3_is_not_measurable_where_workers_take_turns(frame: pd.DataFrame) -> None:
    found = judge(
        claim("table3_time_ratio", 1.202, "Time on 5 nodes (17.2157 s) over that on 6 nodes (14.321 s)"), frame
    )
    assert found.answer == NEEDS_HARDWARE and found.reason.startswith("5 workers need a core each; the most")


def test_table_3_is_judged_where_its_nodes_were_measured(frame: pd.DataFrame) -> None:
    many = on_many_cores(frame)
    text = "Time on 5 nodes over that on 5 nodes"
    assert judge(claim("table3_time_ratio", 1.0, text), many).answer == SUPPORTED
    assert judge(claim("table3_time_ratio", 2.0, text), many).answer == CONTRADICTED


def test_100_percent_stands_beside_the_mean_over_seeds(frame: pd.DataFrame) -> None:
    found = judge(claim("table3_accuracy", 100.0), frame)
    assert found.answer == CONTRADICTED and "4 workers" in found.measured and found.measured.startswith("79.4")
    assert judge(claim("table3_accuracy", 79.4), frame).answer == SUPPORTED
    assert judge(claim("table3_accuracy", 79.4), records(rounds=4)).answer == NOT_YET


@pytest.mark.parametrize("name", ["table3_accuracy", "scaling_accuracy"])
def test_accuracy_is_judged_on_the_papers_network_and_epochs_only(frame: pd.DataFrame, name: str) -> None:
    learnt = frame["experiment"] == "learning"
    short, other = frame.copy(), frame.copy()
    short.loc[learnt, "epochs"] = 3
    found = judge(claim(name, 100.0), short)
    assert found.answer == NOT_YET and found.reason == "trained for 3 epochs; the paper's are 10"
    other.loc[learnt, "network"] = "cnn"
    assert judge(claim(name, 100.0), other).answer == NOT_YET


def test_the_stand_in_says_nothing_about_accuracy(frame: pd.DataFrame) -> None:
    synthetic = frame.assign(data_source="synthetic")
    assert judge(claim("table3_accuracy", 100.0), synthetic).answer == NEEDS_HARDWARE
    assert judge(claim("scaling_accuracy"), synthetic).answer == NEEDS_HARDWARE


def test_more_workers_are_compared_with_one_by_seed(frame: pd.DataFrame) -> None:
    found = judge(claim("scaling_accuracy"), frame)
    assert found.answer == CONTRADICTED and "0 of 2 intervals are above 0" in found.reason
    better = frame.copy()
    better.loc[(better["experiment"] == "learning") & (better["workers"] == 4), "test_accuracy"] += 0.1
    assert judge(claim("scaling_accuracy"), better).answer == SUPPORTED
    alone = without(without(frame, experiment="learning", workers=4), experiment="learning", workers=2)
    assert judge(claim("scaling_accuracy"), alone).answer == NOT_YET

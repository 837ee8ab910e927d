"""Verdicts on training over Spark: each turns with the records, and says why where they can't answer."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import claim, not_run, scaled, without
from fake_spark import NO_JAVA, records
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e06_spark_distribution.verdicts import ONE_MACHINE, RULES

NOTEBOOK = "06_spark_distribution"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame) -> Verdict:
    return judge(row, Stored(frame), RULES)


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == NOTEBOOK].to_dict("records")


def sparknet(frame: pd.DataFrame, factor: float, **conditions: Any) -> pd.DataFrame:
    """Records in which the paper-style variant is that many times as fast."""
    return scaled(frame, "images_per_second", factor, strategy="sparknet", **conditions)


def test_every_claim_of_the_notebook_has_its_function(frame: pd.DataFrame) -> None:
    assert len(own_claims()) == 6 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        found = judged(row, frame)
        assert found.reason and found.measured and found.answer in (SUPPORTED, CONTRADICTED), row["id"]


def test_without_records_and_with_too_few_rounds_nothing_is_decided() -> None:
    for row in own_claims():
        assert judge(row, no_records(), RULES).answer == NOT_YET, row["id"]
        assert judged(row, records(rounds=4)).answer == NOT_YET, row["id"]


def test_without_java_nothing_is_measurable(frame: pd.DataFrame) -> None:
    skipped = not_run(not_run(frame, "skipped", NO_JAVA, launcher="spark"), "skipped", NO_JAVA, launcher="spark_driver")
    for row in own_claims():
        assert judged(row, skipped) == Verdict(NEEDS_HARDWARE, "", NO_JAVA), row["id"]


def test_a_published_figure_stands_beside_sparknets_speedup(frame: pd.DataFrame) -> None:
    numbers = {row["id"]: [ratio.value for _, ratio in judged(row, frame).numbers] for row in own_claims()}
    assert {name.removeprefix("s2m-"): found for name, found in numbers.items() if found} == {
        "table3-spark-cpu-complexsmall": pytest.approx([0.8]),
        "table3-spark-cpu-simplebig": pytest.approx([0.53]),
        "spark-slows-simplebig": pytest.approx([0.53]),
    }


def test_table_3_is_compared_with_the_most_workers(frame: pd.DataFrame) -> None:
    found = judged(claim("table3-spark-cpu-simplebig"), frame)
    assert found.answer == SUPPORTED and found.measured == (
        "0.53 [0.53, 0.53] at batch 64 (base: 32) on 2 cores (SparkNet: gradients every step, images as RDD)"
    )
    assert judged(claim("table3-spark-cpu-complexsmall"), frame).answer == CONTRADICTED
    quick = sparknet(frame, 1.14 / 0.8, use_case="ComplexSmall")
    assert judged(claim("table3-spark-cpu-complexsmall"), quick).answer == SUPPORTED
    assert judged(claim("table3-spark-cpu-simplebig"), sparknet(frame, 2, use_case="SimpleBig")).answer == CONTRADICTED


def test_spark_slows_simple_big_down_if_one_core_is_faster(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-slows-simplebig"), frame)
    assert found.answer == SUPPORTED
    assert found.measured == "1.89 [1.89, 1.89] times SparkNet's images/s by sequential training, 2 workers"
    quick = judged(claim("spark-slows-simplebig"), sparknet(frame, 3, use_case="SimpleBig"))
    assert quick.answer == CONTRADICTED and "other way round" in quick.reason


def test_two_equal_cells_on_spark_are_the_noise(frame: pd.DataFrame) -> None:
    """They differ by 1 %: sequential training that is 0.5 % above SparkNet is no difference."""
    level = sparknet(frame, 1 / 1.005 / 0.53, use_case="SimpleBig", workers=2)
    found = judged(claim("spark-slows-simplebig"), level)
    assert found.answer == CONTRADICTED and "A/A pair" in found.reason
    quiet = without(level, strategy="spark_allreduce", variant="b")
    assert "A/A pair" in judged(claim("spark-slows-simplebig"), quiet).reason, "the sequential pair in its place"
    assert judged(claim("spark-slows-simplebig"), without(quiet, variant="b")).answer == SUPPORTED


def test_one_node_is_the_faster_one_without_spark(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-slower-than-node"), frame)
    assert found.answer == SUPPORTED and found.reason.endswith(ONE_MACHINE)
    text = "times SparkNet's images/s by"
    assert f"SimpleBig: 3.58 [3.58, 3.58] {text} mpi_shared_memory (the faster of 2), 2 workers each" in found.measured
    assert f"ComplexSmall: 2.1 [2.1, 2.1] {text} mpi_allreduce, 2 workers each" in found.measured


def test_spark_is_not_slower_if_one_use_case_says_otherwise(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-slower-than-node"), sparknet(frame, 3, use_case="ComplexSmall"))
    assert found.answer == CONTRADICTED and "other way round" in found.reason


def test_a_node_with_other_cores_is_no_fair_comparison(frame: pd.DataFrame) -> None:
    node = frame["strategy"].str.startswith("mpi_") & (frame["workers"] == 2)
    unequal = frame.assign(cores_per_worker=frame["cores_per_worker"].where(~node, 2))
    found = judged(claim("spark-slower-than-node"), unequal)
    assert found.answer == NOT_YET and "no fair comparison" in found.reason


def test_more_data_is_judged_by_the_images_that_spark_holds(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-more-data-worse"), frame)
    assert found.answer == SUPPORTED
    text = "times the images/s with 300 images as with 4800"
    assert found.measured == (
        f"images as RDD: 1.5 [1.5, 1.5] {text}; images as files: 1 [1, 1] {text}; without Spark: 1 [1, 1] {text}"
    )
    assert "images as files: no difference" in found.reason and "without Spark: no difference" in found.reason
    level = sparknet(frame, 1.6, experiment="data", images=4800)
    assert judged(claim("spark-more-data-worse"), level).answer == CONTRADICTED
    slow = scaled(level, "images_per_second", 0.5, strategy="sparknet_files", images=4800)
    assert judged(claim("spark-more-data-worse"), slow).answer == CONTRADICTED, "files do not decide"


def test_one_size_shows_nothing_of_more_data(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-more-data-worse"), frame.assign(images=300))
    assert (found.answer, found.measured, found.reason) == (NOT_YET, "", "measured with 300 images only")
    alone = judged(claim("spark-more-data-worse"), without(frame, experiment="data", strategy="mpi_allreduce"))
    assert alone.answer == SUPPORTED and "without Spark: no records of data mpi_allreduce" in alone.reason


def test_sizes_that_the_set_does_not_have_change_nothing(frame: pd.DataFrame) -> None:
    small = judged(claim("spark-more-data-worse"), frame.assign(images=frame["images"].clip(upper=1200)))
    assert small.answer == SUPPORTED and "as with 1200" in small.measured


def test_a_few_nodes_gain_while_they_seldom_exchange(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-few-nodes"), frame)
    assert found.answer == SUPPORTED and found.measured == (
        "SimpleBig, gain: 1.7 [1.7, 1.7] times sequential training, parameters every 10 steps, 2 workers; "
        "SimpleBig, loss: 3.09 [3.09, 3.09] times the images/s of exchanging in every step, 2 workers"
    )


@pytest.mark.parametrize(("strategy", "factor"), [("sparknet_tau", 0.5), ("sparknet_files", 4.0)])
def test_without_the_gain_or_the_loss_the_claim_is_refuted(frame: pd.DataFrame, strategy: str, factor: float) -> None:
    changed = scaled(frame, "images_per_second", factor, experiment="speedup", strategy=strategy)
    found = judged(claim("spark-few-nodes"), changed)
    assert found.answer == CONTRADICTED and "other way round" in found.reason


def test_other_workers_are_no_loss(frame: pd.DataFrame) -> None:
    found = judged(claim("spark-few-nodes"), without(frame, experiment="speedup", strategy="sparknet_files", workers=2))
    assert found.answer == NOT_YET and "different numbers of workers" in found.reason

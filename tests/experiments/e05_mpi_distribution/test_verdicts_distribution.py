"""Verdicts on MPI training: each turns with the records, and says why where they can't answer."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import GRADIENT, NO_CLUSTER, NO_CUDA, claim, not_run, records, resources, scaled, without
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.statistics import Estimate
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict, above_one
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT

NOTEBOOK = "05_mpi_distribution"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judge(row, Stored(frame, {} if traces is None else {"resources": traces}), EXPERIMENT.verdicts)


def own_claims() -> list[dict[str, Any]]:
    claims = read_claims()
    return claims[claims["notebook"] == NOTEBOOK].to_dict("records")


def test_every_claim_of_the_notebook_has_its_function(frame: pd.DataFrame) -> None:
    assert len(own_claims()) == 22 and "pending" not in {row["verdict"] for row in own_claims()}
    for row in own_claims():
        found = judged(row, frame, resources())
        assert found.reason and found.answer != NOT_YET, row["id"]


def test_without_records_and_with_too_few_rounds_nothing_is_decided() -> None:
    for row in own_claims():
        assert judge(row, no_records(), EXPERIMENT.verdicts).answer == NOT_YET, row["id"]
        assert judged(row, records(rounds=4), resources(rounds=4)).answer in {NOT_YET, NEEDS_HARDWARE}, row["id"]


def test_a_published_figure_stands_beside_a_number_of_its_unit(frame: pd.DataFrame) -> None:
    numbers = {row["id"]: judged(row, frame, resources()).numbers for row in own_claims() if row["value"] > 0}
    with_numbers = {name.removeprefix("s2m-") for name, found in numbers.items() if found}
    assert with_numbers == {
        "table3-mpi-cpu-complexsmall", "table3-mpi-cpu-simplebig", "terngrad-speed", "sparse-binary-compression",
        "das-2", "network-peak",
    }  # fmt: skip
    assert {name: round(ratio.value) for name, ratio in numbers["s2m-network-peak"]} == {
        use_case: round(sent / 1024) for use_case, sent in GRADIENT.items()
    }


# --- Table 3 ---


def test_the_best_strategy_that_exchanges_gradients_stands_beside_table_3(frame: pd.DataFrame) -> None:
    """Local SGD and Algorithm 1 are faster, and do not exchange gradients in every step."""
    found = judged(claim("table3-mpi-cpu-simplebig"), frame)
    assert found.answer == NEEDS_HARDWARE and "2 cores can't give 26.62 times" in found.reason
    assert found.measured == (
        "1.8 [1.8, 1.8] at batch 64 (base: 32) on 2 cores "
        "(the fastest of 6: shared memory per node, all-reduce between nodes)"
    )


def test_the_only_strategy_is_not_called_the_fastest(frame: pd.DataFrame) -> None:
    one = frame[(frame["experiment"] != "weak") | frame["strategy"].isin(["sequential", "allreduce", "local_sgd"])]
    assert judged(claim("table3-mpi-cpu-simplebig"), one).measured.endswith("on 2 cores (all-reduce)")


def test_a_server_is_a_core_too(frame: pd.DataFrame) -> None:
    served = scaled(frame, "images_per_second", 3.0, experiment="weak", strategy="parameter_server")
    assert "on 3 cores" in judged(claim("table3-mpi-cpu-simplebig"), served).measured


@pytest.mark.parametrize(("value", "word"), [(1.9, SUPPORTED), (1.5, CONTRADICTED)])
def test_a_speedup_that_the_cores_can_give_is_judged(frame: pd.DataFrame, value: float, word: str) -> None:
    assert judged(claim("table3-mpi-cpu-simplebig") | {"value": value}, frame).answer == word


GPU = ["table3-mpi-gpu-complexsmall", "table3-mpi-gpu-simplebig", "headline-gpu", "mpi-gpu-simplebig",
       "mpi-gpu-complexsmall"]  # fmt: skip


@pytest.mark.parametrize("name", GPU)
def test_gpu_claims_take_the_reason_of_the_skipped_rows(frame: pd.DataFrame, name: str) -> None:
    assert judged(claim(name), frame) == Verdict(NEEDS_HARDWARE, "", NO_CUDA)


def on_gpus(frame: pd.DataFrame) -> pd.DataFrame:
    """Sequential training on one GPU, and all-reduce over two that is 1.75 times as fast."""
    weak = frame[(frame["experiment"] == "weak") & (frame["device"] == "cpu")]
    parts = []
    for name, factor in (("sequential", 10.0), ("allreduce", 10.0 * 1.75 / 1.6)):
        part = weak[weak["strategy"] == name].assign(device="cuda")
        parts.append(part.assign(images_per_second=factor * part["images_per_second"]))
    return pd.concat([without(frame, device="cuda"), *parts], ignore_index=True)


@pytest.mark.parametrize(("value", "word"), [(1.75, SUPPORTED), (11.79, CONTRADICTED)])
def test_a_gpu_speedup_is_over_one_gpu(frame: pd.DataFrame, value: float, word: str) -> None:
    found = judged(claim("headline-gpu") | {"value": value}, on_gpus(frame))
    assert found.answer == word and found.measured.startswith("1.75 ") and "cores" not in found.measured


def test_mpi_over_gpus_has_no_model_parallelism_to_be_compared_with_yet(frame: pd.DataFrame) -> None:
    found = judged(claim("mpi-gpu-simplebig"), on_gpus(frame))
    assert found.answer == NOT_YET and "model parallelism" in found.reason


# --- comparisons ---


def test_mpi_is_best_if_it_is_above_all_others_on_the_same_cores(frame: pd.DataFrame) -> None:
    found = judged(claim("mpi-cpu-best"), frame)
    assert found.answer == SUPPORTED
    assert "SimpleBig: above host_threads, processes, ddp; " in found.reason
    assert "ComplexSmall: above host_threads, processes; " in found.reason
    assert "processes: 1.06 [1.06, 1.06] times the images/s of processes, by mpi_shared_memory" in found.measured


@pytest.mark.parametrize(
    ("factor", "rival", "experiment", "why"),
    [
        (1.2, "host_threads", "headline", "the difference is the other way round"),
        (1.1, "processes", "headline", "the difference is the other way round"),
        (1.05, "processes", "headline", "the median lies within the A/A pair's interval"),
        (1.19, "ddp", "bars", "the median lies within the A/A pair's interval"),
    ],
)
def test_mpi_is_not_best_if_one_of_them_beats_or_equals_it(
    frame: pd.DataFrame, factor: float, rival: str, experiment: str, why: str
) -> None:
    """1.19 x 1.6 is 1.904, and 1.05 x 1.8 is 1.89: within what the A/A pair differs by from MPI's 1.91 and 1.9."""
    changed = scaled(
        frame, "images_per_second", factor, strategy=rival, experiment=experiment, use_case="SimpleBig", workers=2
    )
    found = judged(claim("mpi-cpu-best"), changed)
    assert found.answer == CONTRADICTED
    assert f"SimpleBig: beaten or equalled by {rival}: " in found.reason and why in found.reason
    assert found.reason.count("beaten or equalled") == 1


def test_mpi_is_not_called_the_best_without_its_strongest_rival(frame: pd.DataFrame) -> None:
    alone = without(frame, experiment="headline", strategy="processes")
    found = judged(claim("mpi-cpu-best"), alone)
    assert (found.answer, found.reason) == (NOT_YET, "not compared with processes: no such rows")
    assert "times the images/s of host_threads" in found.measured
    beaten = scaled(alone, "images_per_second", 1.2, experiment="headline", strategy="host_threads")
    assert judged(claim("mpi-cpu-best"), beaten).answer == CONTRADICTED, "one that beats it is enough"


def test_what_mpi_was_compared_with_may_have_failed(frame: pd.DataFrame) -> None:
    failed = not_run(frame, "failed", "rank 1 raised", experiment="headline", strategy="processes")
    found = judged(claim("mpi-cpu-best"), failed)
    assert found.answer == NOT_YET and "not compared with processes: " in found.reason
    assert "failed: rank 1 raised" in found.reason


def test_rivals_on_another_number_of_cores_are_none(frame: pd.DataFrame) -> None:
    own = (frame["experiment"] == "headline") & (frame["strategy"] == "processes")
    found = judged(claim("mpi-cpu-best"), frame.assign(workers=frame["workers"].where(~own, 3)))
    assert (found.answer, found.reason) == (NOT_YET, "not compared with processes: no such rows")


def test_the_local_order_predicts_that_of_several_hosts(frame: pd.DataFrame) -> None:
    found = judged(claim("local-decides"), frame)
    assert found.answer == SUPPORTED
    told = "3 of 3 pairs differ on 1 host, 3 of these the same way on 2 hosts; Kendall's tau of the medians 1"
    assert found.measured == f"ComplexSmall: {told}; SimpleBig: {told}"


@pytest.mark.parametrize(("factor", "why", "tau"), [(1.1, "turns round", "0.33"), (1.55 / 1.5, "is gone", "0.67")])
def test_a_pair_that_changes_its_order_refutes_that_the_node_decides(
    frame: pd.DataFrame, factor: float, why: str, tau: str
) -> None:
    """Threads against all-reduce: 1.6 to 1.7 on one host, then 1.65 to 1.55, or exactly equal, on two."""
    changed = frame.copy()
    hit = {"experiment": "headline", "hosts": 2, "use_case": "SimpleBig"}
    if why == "is gone":  # the very same numbers, so that rounding leaves no difference
        for number in range(5):
            same = {**hit, "round": number}
            rows = [_at(changed, **same, strategy=name, variant="a") for name in ("host_threads", "mpi_allreduce")]
            changed.loc[rows[0], "images_per_second"] = changed.loc[rows[1], "images_per_second"]
    else:
        changed = scaled(frame, "images_per_second", factor, **hit, strategy="host_threads")
    found = judged(claim("local-decides"), changed)
    assert found.answer == CONTRADICTED
    assert f"the difference between host_threads and mpi_allreduce {why}" in found.reason
    assert found.measured.endswith(f"2 of these the same way on 2 hosts; Kendall's tau of the medians {tau}")


def _at(frame: pd.DataFrame, **conditions: Any) -> Any:
    hit = pd.Series(True, index=frame.index)
    for name, value in conditions.items():
        hit &= frame[name] == value
    (index,) = frame.index[hit]
    return index


def test_equal_local_strategies_predict_nothing(frame: pd.DataFrame) -> None:
    """All as fast as the second half of the A/A pair: 1 % above the first, which is noise."""
    level = frame.copy()
    for use_case in ("ComplexSmall", "SimpleBig"):
        for number in range(5):
            place = {"experiment": "headline", "hosts": 1, "use_case": use_case, "round": number}
            same = level.loc[_at(level, **place, variant="b"), "images_per_second"]
            for name in ("host_threads", "mpi_shared_memory"):
                level.loc[_at(level, **place, strategy=name), "images_per_second"] = same
    found = judged(claim("local-decides"), level)
    assert found.answer == NEEDS_HARDWARE and "to predict from" in found.reason
    assert found.measured.startswith("ComplexSmall: 0 of 3 pairs differ on 1 host")


def test_without_a_cluster_the_order_on_several_hosts_is_not_measurable(frame: pd.DataFrame) -> None:
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="headline", hosts=2)
    assert judged(claim("local-decides"), skipped) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)
    one = without(frame, experiment="headline", hosts=2)
    found = judged(claim("local-decides"), one)
    assert found.answer == NOT_YET and "on one host only" in found.reason


def test_two_hosts_can_be_slower_than_one_node(frame: pd.DataFrame) -> None:
    """1.9 / 1.7 in `timeline`; sequential training and slow servers of one host are no case of it."""
    found = judged(claim("ddl-can-be-slower"), frame)
    assert found.answer == SUPPORTED and found.measured == (
        "1.12 [1.12, 1.12] times as many images/s in 1 node by shared memory as on 2 hosts by all-reduce over a "
        "10 Gbit/s link, 2 workers each"
    )
    quick = scaled(frame, "images_per_second", 1.2, experiment="timeline", strategy="mpi_allreduce")
    quick = scaled(quick, "images_per_second", 0.1, strategy="parameter_server")
    found = judged(claim("ddl-can-be-slower"), quick)
    assert found.answer == CONTRADICTED and "other way round" in found.reason


@pytest.mark.parametrize(("column", "count"), [("cores_per_worker", 2), ("workers", 3)])
def test_one_node_and_two_hosts_are_compared_at_equal_workers_and_cores(
    frame: pd.DataFrame, column: str, count: int
) -> None:
    unequal = frame.assign(**{column: frame[column].where(frame["hosts"] == 1, count)})
    found = judged(claim("ddl-can-be-slower"), unequal)
    assert found.answer == NOT_YET and "no fair comparison" in found.reason


def test_one_host_alone_does_not_show_that_several_are_slower(frame: pd.DataFrame) -> None:
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="timeline", strategy="mpi_allreduce")
    assert judged(claim("ddl-can-be-slower"), skipped) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)
    assert judged(claim("ddl-can-be-slower"), without(frame, experiment="timeline")).answer == NOT_YET


# --- rules ---


def test_no_difference_names_a_pair_only_where_there_is_one() -> None:
    same, near_one = Estimate(1.0, 0.99, 1.01, 5), Estimate(1.01, 1.005, 1.02, 5)
    aa = Estimate(1.0, 0.97, 1.03, 5)
    assert above_one(same, None, "x").reason == above_one(same, aa, "x").reason == "no difference: the interval holds 1"
    assert "A/A pair" in above_one(near_one, aa, "x").reason
    assert above_one(near_one, None, "x").answer == SUPPORTED

"""Verdicts on the network and on the CPU that waits for it: each turns with the records and the traces."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import NO_CLUSTER, claim, not_run, records, resources, scaled, without
from lockstep.analysis.judging import judge
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import CONTRADICTED, NEEDS_HARDWARE, NOT_YET, SUPPORTED, Verdict
from lockstep.experiments.e05_mpi_distribution import EXPERIMENT


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def judged(row: dict[str, Any], frame: pd.DataFrame, traces: pd.DataFrame | None = None) -> Verdict:
    return judge(row, Stored(frame, {} if traces is None else {"resources": traces}), EXPERIMENT.verdicts)


def test_the_network_is_no_bottleneck_below_a_tenth_of_the_step(frame: pd.DataFrame) -> None:
    found = judged(claim("network-no-bottleneck"), frame)
    told = "5 [5, 5] % of a step in exchange, 10 Gbit/s link"
    assert (found.answer, found.measured) == (SUPPORTED, f"ComplexSmall: {told}; SimpleBig: {told}")
    one = {"strategy": "mpi_allreduce", "use_case": "SimpleBig", "experiment": "timeline"}
    slow = scaled(frame, "exchange_seconds", 2.1, **one)
    assert judged(claim("network-no-bottleneck"), slow).answer == CONTRADICTED
    assert judged(claim("network-no-bottleneck"), scaled(frame, "wait_seconds", 20.0, **one)) == found, "a slow rank's"
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="timeline", strategy="mpi_allreduce")
    assert judged(claim("network-no-bottleneck"), skipped) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)


def test_the_peak_of_the_network_is_compared_per_step(frame: pd.DataFrame) -> None:
    assert judged(claim("network-peak"), frame).answer == CONTRADICTED
    small = frame.assign(link_bytes_busiest=35 * 1024.0)
    found = judged(claim("network-peak"), small)
    assert found.answer == SUPPORTED and "35 [35, 35] KiB per step, 10 Gbit/s link" in found.measured
    assert judged(claim("network-peak"), without(frame, strategy="mpi_allreduce")).answer == NOT_YET


def test_more_workers_send_more(frame: pd.DataFrame) -> None:
    asked = claim("finer-split-more-traffic")
    found = judged(asked, frame)
    assert found.answer == SUPPORTED and found.reason == "the interval excludes 1"
    assert "2 [2, 2] times the bytes through all links, 3 workers over 2" in found.measured
    assert "1.5 [1.5, 1.5] times the bytes through all links, 4 workers over 3" in found.measured
    flat = scaled(frame, "link_bytes_sent", 0.5, experiment="traffic", workers=4)
    assert judged(asked, flat).answer == CONTRADICTED
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="traffic")
    assert judged(asked, skipped) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)
    alone = frame[(frame["experiment"] != "traffic") | (frame["workers"] == 2)]
    assert judged(asked, alone).answer == NOT_YET


# --- Figure 5 ---


@pytest.mark.parametrize(
    ("name", "traced", "word"),
    [
        ("cpu-inactive", {"cpu_percent": 60.0}, SUPPORTED),
        ("cpu-inactive", {"cpu_percent": 150.0}, CONTRADICTED),
        ("low-iowait", {"io_wait_percent": 1.0}, SUPPORTED),
        ("low-iowait", {"io_wait_percent": 5.0}, CONTRADICTED),
        ("low-iowait", {"io_wait_percent": float("nan")}, NEEDS_HARDWARE),
    ],
)
def test_traces_decide_about_cpu_and_io(frame: pd.DataFrame, name: str, traced: dict[str, Any], word: str) -> None:
    found = judged(claim(name), frame, resources(**traced))
    assert found.answer == word
    assert ("waits by looking" in found.reason) == (name == "cpu-inactive")
    if name == "cpu-inactive":
        assert found.reason.count("keeps cores busy") == 1, "not once per use case"
        told = f"{(traced['cpu_percent'] + 1.5) / 2:.3g}"
        assert f"SimpleBig: {told} [{told}, {told}] % of 2 cores in use" in found.measured


@pytest.mark.parametrize("name", ["cpu-inactive", "low-iowait"])
def test_no_trace_no_verdict(frame: pd.DataFrame, name: str) -> None:
    assert judged(claim(name), frame, None) == Verdict(NOT_YET, "", "no resource traces were stored")
    other = resources()
    found = judged(claim(name), frame, other[other["strategy"] == "sequential"])
    assert found.answer == NOT_YET and "no resource trace of SimpleBig with mpi_allreduce" in found.reason
    skipped = not_run(frame, "skipped", NO_CLUSTER, experiment="timeline", strategy="mpi_allreduce")
    assert judged(claim(name), skipped, resources()) == Verdict(NEEDS_HARDWARE, "", NO_CLUSTER)

"""What notebook 05 aims at: each target reads its own cells, can be missed, and says why where there is no number."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fake_distribution import NO_UNITS, not_run, records, scaled, without
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import TOO_FEW, target_table
from lockstep.analysis.verdicts import NEEDS_HARDWARE, NOT_YET, UNDECIDED
from lockstep.experiments.e05_mpi_distribution.targets import TARGETS
from lockstep.experiments.report import targets_table

OVER_DDP = "shared memory through engines over DDP, 2 workers, float32"
OVER_DDP_BFLOAT = "shared memory through engines over DDP, 2 workers, bfloat16"
AT_EVERY = "shared memory through engines over DDP at every number of workers"
ENGINES = "a step through engines over one under mpiexec"
START = "seconds until the engines are ready"
EFFICIENCY = "efficiency of 2 workers on 2 cores"
SLICES = "an exchange over 1 Gbit/s by 4 workers and a server over one by a slice on each of 4 workers"
WIRE = "time on the wire over what the alpha-beta model of the link predicts, messages of 1 MiB and more"
BETWEEN = "bytes between 2 hosts of 2 ranks: shared memory per host over MPI's all-reduce"
DIRECT = "bytes between 2 hosts of 2 ranks: shared memory per host over an all-reduce of every rank with every other"


def found(frame: pd.DataFrame) -> dict[str, Any]:
    return {row["target"]: row for _, row in target_table(TARGETS, Stored(frame)).iterrows()}


@pytest.fixture(scope="module")
def spread() -> pd.DataFrame:
    return records()


@pytest.fixture(scope="module")
def three() -> pd.DataFrame:
    """With two workers, and with three."""
    return records(worker_counts=(2, 3))


def test_the_targets_are_those_that_were_set(spread: pd.DataFrame) -> None:
    assert [(target.aim, target.threshold) for target in TARGETS] == [
        ("≥", 1.10), ("≥", 1.18), ("≥", 1.0), ("≤", 1.02), ("≤", 10.0), ("≥", 0.93), ("≥", 1.5), ("1 ±", 0.1),
        ("≤", 0.55), ("≤", 0.55),
    ]  # fmt: skip
    assert list(targets_table(TARGETS, Stored(spread))["aim"])[2:5] == ["≥ 1", "≤ 1.02", "≤ 10"]
    assert list(targets_table(TARGETS, Stored(spread))["aim"])[7:] == ["1 ± 0.1", "≤ 0.55", "≤ 0.55"]


def test_every_target_reads_its_own_cells(spread: pd.DataFrame) -> None:
    rows = found(spread)
    expected = {
        OVER_DDP: 1.9 / 1.6, AT_EVERY: 1.9 / 1.6, ENGINES: 1.91 / 1.9, START: 6.0, EFFICIENCY: 0.95, SLICES: 5.2,
        WIRE: 1.04, BETWEEN: 0.51, DIRECT: 0.5,
    }  # fmt: skip
    assert {name: rows[name]["ratio"] for name in expected} == pytest.approx(expected, rel=0.02)
    assert {name: row["reached"] for name, row in rows.items() if name in expected} == dict.fromkeys(expected, "yes")
    bfloat = rows[OVER_DDP_BFLOAT]
    assert (bfloat["reached"], bfloat["reason"]) == (NEEDS_HARDWARE, NO_UNITS)


@pytest.mark.parametrize(
    ("name", "measure", "factor", "rows"),
    [
        (OVER_DDP, "images_per_second", 1.15, {"experiment": "bars", "strategy": "ddp"}),
        (AT_EVERY, "images_per_second", 1.25, {"experiment": "bars", "strategy": "ddp"}),
        (ENGINES, "step_seconds", 1.05, {"experiment": "bars", "strategy": "engines_shared_memory"}),
        (START, "launch_seconds", 2.0, {"launcher": "engines"}),
        (EFFICIENCY, "images_per_second", 1.05, {"experiment": "bars", "strategy": "sequential"}),
        (SLICES, "step_seconds", 0.2, {"experiment": "servers_wire", "strategy": "parameter_server"}),
        (WIRE, "exchange_seconds", 1.1, {"experiment": "wire", "strategy": "mpi_allreduce"}),
        (BETWEEN, "link_bytes_sent", 0.9, {"experiment": "between_hosts", "strategy": "mpi_allreduce"}),
        (DIRECT, "link_bytes_sent", 0.9, {"experiment": "between_hosts", "strategy": "sockets"}),
    ],
)
def test_every_target_can_be_missed(
    spread: pd.DataFrame, name: str, measure: str, factor: float, rows: dict[str, Any]
) -> None:
    assert found(scaled(spread, measure, factor, **rows))[name]["reached"] == "no"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (AT_EVERY, {"experiment": "bars", "strategy": "ddp"}),
        (SLICES, {"experiment": "servers_wire", "strategy": "parameter_server"}),
        (BETWEEN, {"experiment": "between_hosts"}),
        (DIRECT, {"experiment": "between_hosts", "strategy": "sockets"}),
        (START, {"launcher": "engines"}),
    ],
)
def test_a_target_says_why_it_has_no_number(spread: pd.DataFrame, name: str, rows: dict[str, Any]) -> None:
    row = found(not_run(spread, "skipped", "needs root", **rows))[name]
    assert row["reached"] == NEEDS_HARDWARE and row["reason"].endswith("needs root") and pd.isna(row["ratio"])
    row = found(not_run(spread, "failed", "rank 1 raised", **rows))[name]
    assert row["reached"] == NOT_YET and row["reason"].endswith("rank 1 raised")


def test_the_worst_number_of_workers_decides_and_is_named(spread: pd.DataFrame, three: pd.DataFrame) -> None:
    slow = scaled(three, "images_per_second", 1.1, experiment="bars", strategy="ddp", workers=3)
    row = found(slow)[AT_EVERY]
    assert row["reason"] == "at 3 workers, the worst of 2, 3"
    shown = targets_table(TARGETS, Stored(slow)).set_index("what").loc[AT_EVERY, "reached"]
    assert shown == "yes: at 3 workers, the worst of 2, 3"
    assert found(spread)[AT_EVERY]["reason"] == "at 2 workers, the only number measured"


def test_an_interval_that_holds_the_aim_reaches_nothing(spread: pd.DataFrame) -> None:
    level = scaled(spread, "images_per_second", 1.19 / 1.1, experiment="bars", strategy="ddp")
    assert found(level)[OVER_DDP]["reached"] == UNDECIDED


def test_the_worst_exchange_decides_about_the_wire_and_is_named(spread: pd.DataFrame) -> None:
    slow = {"experiment": "wire", "strategy": "mpi_allreduce", "message_bytes": 4194304}
    row = found(scaled(spread, "exchange_seconds", 1.15, **slow))[WIRE]
    assert row["reason"] == "the worst of 3: mpi_allreduce, 4096 KiB" and row["ratio"] > 1.1
    unknown = found(without(spread, strategy="ping_pong"))[WIRE]
    assert unknown["reached"] == NOT_YET and "no ping-pong" in unknown["reason"]


def test_short_messages_do_not_tell_about_the_wire(spread: pd.DataFrame) -> None:
    short = scaled(spread, "exchange_seconds", 3.0, experiment="wire", strategy="mpi_allreduce", message_bytes=4096)
    assert found(short)[WIRE]["ratio"] == pytest.approx(1.04, rel=0.02)


@pytest.mark.parametrize("transport", ["rma", "sockets"])
def test_other_protocols_than_the_calibrating_ones_are_not_judged(spread: pd.DataFrame, transport: str) -> None:
    own = spread[(spread["experiment"] == "wire") & (spread["strategy"] == "mpi_allreduce")]
    other = own.assign(strategy=transport, transport=transport, exchange_seconds=3 * own["exchange_seconds"])
    row = found(pd.concat([spread, other], ignore_index=True))[WIRE]
    assert row["reason"].startswith("the worst of 3: ") and row["ratio"] == pytest.approx(1.04, rel=0.02)


def test_a_team_that_stayed_warm_started_once(spread: pd.DataFrame) -> None:
    """Its rows of all rounds say the same seconds: that is one start, and no eight."""
    warm = spread.assign(launch_seconds=spread["launch_seconds"].where(spread["launch_seconds"].isna(), 6.0))
    row = found(warm)[START]
    assert (row["reached"], row["rounds"], row["ratio"]) == (TOO_FEW, 1, 6.0)

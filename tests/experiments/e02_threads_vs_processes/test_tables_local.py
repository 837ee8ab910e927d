"""Tables of notebook 02: each definition with a worked example."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fake_records import records
from lockstep.analysis.tables import PHASES
from lockstep.experiments.e02_threads_vs_processes.tables import (
    exchange_table,
    gil_table,
    input_table,
    memory_table,
    phase_table,
    scaling_table,
    speedup_table,
)

PLAIN = {"device": "cpu", "precision": "float32", "variant": "a"}


def row_of(table: pd.DataFrame, **conditions: object) -> pd.Series:
    for name, value in conditions.items():
        table = table[table[name] == value]
    assert len(table) == 1, f"{len(table)} rows for {conditions}"
    return table.iloc[0]


def test_memory_per_worker_is_the_whole_over_the_workers() -> None:
    row = row_of(memory_table(records()), use_case="SimpleBig", strategy="processes", **PLAIN)
    assert row["pss_per_worker_bytes"] * 2 == row["peak_pss_bytes"]
    assert row["peak_pss_bytes"] == pytest.approx(3.0 * 2**30, rel=0.01)


def test_input_table_worked() -> None:
    frame = records(experiments=("input",)).copy()
    for kind, step in (("jpeg", 0.6), ("memory", 0.5)):
        hit = frame["input"] == kind
        frame.loc[hit, "step_seconds"], frame.loc[hit, "images_per_second"] = step, 32 / step
    frame["decode_seconds"] = 0.07
    table = input_table(frame)
    busy, free = row_of(table, cores_per_worker=1), row_of(table, cores_per_worker=2)
    assert busy["ratio"] == pytest.approx(0.5 / 0.6)
    assert busy["of_bound"] == pytest.approx((0.5 + 0.07) / 0.6)
    assert math.isnan(free["of_bound"])  # a free core decodes: the bound is another one


def test_exchange_table_compares_reduce_and_update() -> None:
    table = exchange_table(records())
    assert row_of(table, strategy="processes")["times_base"] == 1.0
    gloo = row_of(table, strategy="processes_allreduce")
    assert gloo["times_base"] == pytest.approx(4.5, rel=0.03) and gloo["seconds"] == pytest.approx(0.27, rel=0.03)


def test_gil_table_compares_the_same_workers_and_threads() -> None:
    table = gil_table(records())
    few, many = (row_of(table, experiment=name, workers=2) for name in ("scaling", "kernels"))
    assert few["processes_over_threads"] == pytest.approx(1.8 / 1.4, rel=0.02) and few["difference"]
    assert many["processes_over_threads"] == pytest.approx(1.9 / 1.8, rel=0.02)
    assert many["global_batch_size"] > few["global_batch_size"]
    assert not row_of(table, workers=1)["difference"], "with one worker both launchers do the same"


def test_scaling_table_gives_the_cores_but_no_more_than_there_are() -> None:
    table = scaling_table(records(), most_cores=2)
    assert set(table["cores"]) == {2} and set(table["base_cores"]) == {2}
    assert row_of(table, strategy="processes", workers=1)["speedup"] == 1.0
    assert row_of(table, strategy="processes", workers=2)["speedup"] == pytest.approx(1.8 / 1.7, rel=0.02)


def test_phase_table_has_every_phase() -> None:
    row = row_of(phase_table(records()), use_case="SimpleBig", strategy="threads", variant="a")
    assert sum(row[name] for name in PHASES) == pytest.approx(row["step_seconds"], rel=0.02)


def test_rows_stand_in_the_order_of_strategies_whatever_was_measured_first() -> None:
    frame = records()
    assert frame.loc[frame["status"] == "ok", "strategy"].iloc[0] == "processes"
    table = speedup_table(frame)
    big = table[(table["use_case"] == "SimpleBig") & (table["status"] == "ok")]
    names = ["sequential", "intra_op", "intra_op", "threads", "threads", "processes", "processes", "ddp"]
    assert list(big["strategy"]) == names and list(big["variant"]) == ["a", "a", "b", "a", "b", "a", "b", "a"]
    assert list(table["device"].iloc[: len(big)]) == ["cpu"] * len(big), "what needs other hardware comes last"

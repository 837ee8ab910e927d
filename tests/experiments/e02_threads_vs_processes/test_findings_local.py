"""Notebook 02's findings, on made-up records, so that the answer flips, and on the stored reference."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from fake_records import records, resources
from lockstep.analysis.statistics import ratio_with_interval
from lockstep.analysis.stored import Stored
from lockstep.experiments.registry import experiment

LOCAL = experiment("02")


@pytest.fixture(scope="module")
def measured() -> Stored:
    return Stored(records(), {"resources": resources()})


def changed(stored: Stored, column: str, factor: float, **where: object) -> Stored:
    """The same records with one column of some cells multiplied."""
    records = stored.records.copy()
    rows = pd.Series(True, index=records.index)
    for name, value in where.items():
        rows &= records[name] == value
    assert rows.any()
    records.loc[rows, column] *= factor
    return Stored(records, stored.tables)


def said(stored: Stored, name: str) -> str:
    return LOCAL.findings[name](stored)


@pytest.mark.parametrize("name", LOCAL.findings)
def test_findings_are_sentences_with_numbers(measured: Stored, name: str) -> None:
    text = said(measured, name)
    assert text[0].isupper() and text.endswith(".") and "nan" not in text
    assert re.search(r"\d \[|\d %|\[\d", text), "a finding states a number with its interval"


def test_the_speedup_is_that_of_the_records(measured: Stored) -> None:
    cell = {"experiment": "table1", "use_case": "SimpleBig", "device": "cpu", "precision": "float32", "variant": "a"}
    processes = cell | {"strategy": "processes"}
    ratio = ratio_with_interval(measured.records, processes, cell | {"strategy": "sequential"}, "images_per_second")
    assert f"AlexNet {ratio.value:.3g} times as fast as one core" in said(measured, "speedup")


def test_processes_that_win_are_said_to_win_and_processes_that_lose_to_lose(measured: Stored) -> None:
    where = {"experiment": "table1", "strategy": "processes", "use_case": "SimpleBig", "precision": "float32"}
    fast, slow = (changed(measured, "images_per_second", factor, **where) for factor in (4.0, 0.25))
    assert re.search(r"processes are [\d.]+ times as fast as threads", said(fast, "speedup"))
    assert "processes are slower than threads" in said(slow, "speedup")


def test_one_process_trains_and_several_train(measured: Stored) -> None:
    alone = changed(measured, "workers", 0.5, experiment="table1", strategy="processes")
    assert "One process trains AlexNet" in said(alone, "speedup")
    assert "Two processes train AlexNet" in said(measured, "speedup")


def test_memory_that_is_less_is_said_to_be_less(measured: Stored) -> None:
    where = {"experiment": "table1", "strategy": "processes", "use_case": "SimpleBig", "precision": "float32"}
    assert "processes need less than threads" in said(changed(measured, "peak_pss_bytes", 0.2, **where), "memory")
    assert "processes need more than threads" in said(changed(measured, "peak_pss_bytes", 5.0, **where), "memory")


def test_an_interpreter_that_costs_much_is_said_to_cost(measured: Stored) -> None:
    where = {"experiment": "scaling", "strategy": "processes", "workers": 2}
    assert "costs at most that" in said(changed(measured, "images_per_second", 3.0, **where), "scaling")
    assert "costs nothing that shows" in said(changed(measured, "images_per_second", 0.3, **where), "scaling")


def test_decoding_that_costs_is_said_to_slow_training(measured: Stored) -> None:
    slow = changed(measured, "images_per_second", 0.2, experiment="input", input="jpeg", cores_per_worker=2)
    assert "with a core free for decoding, training from JPEG photos is slower" in said(slow, "input").lower().replace(
        "jpeg", "JPEG"
    )


@pytest.mark.parametrize("name", [name for name in LOCAL.findings if name != "phases"])  # of all rounds of a cell
def test_two_rounds_are_no_finding(name: str) -> None:
    text = said(Stored(records(2), {"resources": resources(2)}), name)
    assert "two rounds stored" in text and "times as fast as one core" not in text


@pytest.mark.parametrize("name", ["speedup", "memory", "scaling", "input"])
def test_a_finding_tells_two_machines_apart_where_they_differ(name: str) -> None:
    """A second machine on which processes, decoding and their memory are far from the first one's."""
    first = records()
    other = first.assign(session=1, round=first["round"] + first["round"].max() + 1)
    far = (other["strategy"] == "processes") | ((other["input"] == "memory") & (other["experiment"] == "input"))
    other.loc[far, ["images_per_second", "peak_pss_bytes"]] *= 0.5
    told = said(Stored(pd.concat([first, other], ignore_index=True)), name)
    assert re.search(r"\(sessions differ: session 0: \d.*?; session 1: \d.*?\)", told), told

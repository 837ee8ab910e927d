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
    told = said(measured, "speedup")
    assert f"AlexNet (16 images per step) {ratio.value:.3g} times as fast as one core" in told
    inside = ratio_with_interval(measured.records, cell | {"strategy": "intra_op"}, processes, "images_per_second")
    assert f"threads inside operators are slower than processes, {inside.value:.3g} times as fast" in told
    assert re.search(
        r"; one process with threads inside operators reaches 1\.(69|7)\d* times one core's speed \[", told
    )


def test_threads_inside_operators_that_win_are_said_to_win(measured: Stored) -> None:
    where = {"experiment": "table1", "strategy": "intra_op", "use_case": "SimpleBig"}
    told = said(changed(measured, "images_per_second", 2.0, **where), "speedup")
    assert re.search(r"threads inside operators are 1\.[78]\d* times as fast as processes \[", told)
    gone = Stored(measured.records[measured.records["strategy"] != "intra_op"], measured.tables)
    assert "too few rounds yet for threads inside operators beside processes and threads inside operators" in said(
        gone, "speedup"
    )


def rare(stored: Stored, rounds: int, **where: object) -> Stored:
    """The same records with so many rounds of some cells."""
    rows = pd.Series(True, index=stored.records.index)
    for name, value in where.items():
        rows &= stored.records[name] == value
    kept = sorted(stored.records.loc[rows, "round"].unique())[:rounds]
    return Stored(stored.records[~rows | stored.records["round"].isin(kept)], stored.tables)


def test_what_has_too_few_rounds_does_not_silence_the_rest(measured: Stored) -> None:
    few = said(rare(measured, 3, experiment="kernels"), "interpreter")
    assert "16 images per step on two workers, processes are" in few and "yet for 256 images per step on two w" in few
    few = said(rare(measured, 2, experiment="table1", strategy="threads", use_case="SimpleBig"), "memory")
    assert "To train AlexNet: processes need 1.5" in few and "too few rounds yet for threads beside one core" in few
    few = said(rare(measured, 1, experiment="input", cores_per_worker=1), "input")
    assert "too few rounds yet for no core free for decoding" in few and "With a core free for decoding, " in few
    traces = measured.tables["resources"]
    seldom = (traces["strategy"] == "threads") & (traces["round"] % 100 > 1)
    few = said(Stored(measured.records, {"resources": traces[~seldom]}), "resources")
    assert "rocesses that train AlexNet have" in few and "too few rounds yet for threads that train " in few


def test_a_cost_that_may_be_noise_is_still_bounded(measured: Stored) -> None:
    alone = Stored(measured.records[measured.records["variant"] == "a"], measured.tables)
    told = said(alone, "interpreter")
    assert "processes ran at 1.2" in told and "whether that exceeds the noise of two equal runs is still op" in told
    assert "costs at most that" in told


def test_processes_that_win_are_said_to_win_and_processes_that_lose_to_lose(measured: Stored) -> None:
    where = {"experiment": "table1", "strategy": "processes", "use_case": "SimpleBig", "precision": "float32"}
    fast, slow = (changed(measured, "images_per_second", factor, **where) for factor in (4.0, 0.25))
    assert re.search(r"processes are [\d.]+ times as fast as replica threads", said(fast, "speedup"))
    assert "processes are slower than replica threads" in said(slow, "speedup")


def test_one_process_trains_and_several_train(measured: Stored) -> None:
    alone = changed(measured, "workers", 0.5, experiment="table1", strategy="processes")
    assert "; one process trains AlexNet" in said(alone, "speedup")
    assert "; two processes train AlexNet" in said(measured, "speedup")


def test_memory_that_is_less_is_said_to_be_less(measured: Stored) -> None:
    where = {"experiment": "table1", "strategy": "processes", "use_case": "SimpleBig", "precision": "float32"}
    less, more = (said(changed(measured, "peak_pss_bytes", factor, **where), "memory") for factor in (0.2, 5.0))
    assert "processes need less memory than threads" in less and "processes need more memory than threads" in more


def test_the_answer_speaks_of_memory_and_of_ddp(measured: Stored) -> None:
    """The notebook's opening asks of memory and DDP, and its answer was silent on both."""
    told = LOCAL.answer(measured)
    assert told.startswith(said(measured, "speedup").split("; one process")[0]), "as the figure beside it"
    assert re.search(r"o train AlexNet, (the memory of )?processes (need|and of threads)", told)
    assert "training AlexNet, processes that share memory are 1." in told and "as those of PyTorch's DDP [" in told
    slow = changed(measured, "images_per_second", 0.25, strategy="processes", experiment="table1")
    assert "processes that share memory are slower than those of PyTorch's DDP" in LOCAL.answer(slow)
    assert "too few rounds yet for DDP for AlexNet" in LOCAL.answer(rare(measured, 2, strategy="ddp"))


def test_what_nobody_measured_does_not_silence_the_answer(measured: Stored) -> None:
    records = measured.records
    assert "DDP" not in LOCAL.answer(Stored(records[records["strategy"] != "ddp"])), "this grid has none"
    bare = LOCAL.answer(Stored(records[~records["strategy"].isin(["threads", "ddp"])]))
    assert "two processes train AlexNet" in bare and "Memory and DDP: not known yet (" in bare


def test_an_interpreter_that_costs_much_is_said_to_cost(measured: Stored) -> None:
    where = {"experiment": "scaling", "strategy": "processes", "workers": 2}
    assert "costs at most that" in said(changed(measured, "images_per_second", 3.0, **where), "interpreter")
    slower = said(changed(measured, "images_per_second", 0.3, **where), "interpreter").split("; ")[0]
    assert "processes are slower than threads" in slower and "costs" not in slower


def test_decoding_that_costs_is_said_to_slow_training(measured: Stored) -> None:
    slow = changed(measured, "images_per_second", 0.2, experiment="input", input="jpeg", cores_per_worker=2)
    assert "with a core free for decoding, training from JPEG photos is slower" in said(slow, "input").lower().replace(
        "jpeg", "JPEG"
    )


@pytest.mark.parametrize("name", sorted({*LOCAL.findings} - {"phases", "scaling"}))  # they need less
def test_two_rounds_are_no_finding(name: str) -> None:
    text = said(Stored(records(2), {"resources": resources(2)}), name)
    assert "two rounds stored" in text and "times as fast as one core" not in text


def test_a_curve_needs_three_numbers_of_workers(measured: Stored) -> None:
    """With two of them neither a figure nor a finding makes one, and both say so."""
    told = said(measured, "scaling")
    assert "with 1 and 2 workers, which makes no curve" in told and "scaling_workers=[1,2,4]" in told
    assert LOCAL.figures["scaling"](measured).nothing.endswith("two numbers of workers make no curve.")  # type: ignore[attr-defined]
    rows = measured.records[measured.records["experiment"] == "scaling"]
    more = rows[rows["workers"] == 2].assign(workers=4, cores_per_worker=1)
    faster = more.assign(images_per_second=4 * more["images_per_second"])
    wide = Stored(pd.concat([measured.records, faster], ignore_index=True))
    assert "the highest speedup is that of four workers" in said(wide, "scaling").lower()
    assert not LOCAL.figures["scaling"](wide).nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["speedup", "interpreter", "input"])
def test_a_finding_tells_two_machines_apart_where_they_differ(name: str) -> None:
    """A second machine on which processes, decoding and their memory are far from the first one's."""
    first = records()
    other = first.assign(session=1, round=first["round"] + first["round"].max() + 1)
    far = (other["strategy"] == "processes") | ((other["input"] == "memory") & (other["experiment"] == "input"))
    other.loc[far, ["images_per_second", "peak_pss_bytes"]] *= 0.5
    told = said(Stored(pd.concat([first, other], ignore_index=True)), name)
    assert re.search(r"\(sessions differ: session 0: \d.*?; session 1: \d.*?\)", told), told

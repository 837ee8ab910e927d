"""The README's table of strategies: each need with the strategy that leads in the records, and what it gave."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fake_distribution
import fake_pipelines
from lockstep.analysis.confidence import Estimate
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.targets import Reading, Target
from lockstep.experiments import advice
from lockstep.experiments.advice import ADVICE, Advice, advice_table
from lockstep.experiments.catalogue import Notebook
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import largest_table
from lockstep.experiments.registry import experiment
from lockstep.experiments.report import Answered

NOTEBOOK = "02_threads_vs_processes"


def row(need: str, target: str | Callable[[Stored], str]) -> Advice:
    return Advice(need, f"`{target if isinstance(target, str) else 'read'}`", "02", target, "times as fast")


def table(monkeypatch: pytest.MonkeyPatch, rows: list[Advice], **ratios: Estimate | None) -> str:
    """The table of these rows where the targets of notebook 02 read these numbers."""

    def reads(ratio: Estimate | None) -> Callable[[Stored], Reading]:
        return lambda stored: Reading(ratio, "" if ratio else "not measured yet")

    targets = [Target(name, 1.0, reads(ratio)) for name, ratio in ratios.items()]
    stored: Any = no_records()
    stored.records.loc[0] = 0  # nothing is read of it, but there is a row
    found = Answered(Notebook(NOTEBOOK), lambda: stored, [], targets)
    monkeypatch.setattr(advice, "ADVICE", tuple(rows))
    monkeypatch.setattr(advice, "read_all", lambda root: [found])
    return advice_table(Path())


def test_of_two_ways_for_one_need_the_one_that_leads_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("cores", "a"), row("cores", "b"), row("data", "a")]
    slow, fast = Estimate(1.5, 1.4, 1.6, 5), Estimate(1.9, 1.8, 2.0, 5)
    text = table(monkeypatch, rows, a=slow, b=fast)
    assert text.count("| cores |") == 1 and "| cores | `b` | 1.9 [1.8, 2] times as fast (" in text
    assert "| cores | `a` | 1.9 [1.8, 2]" in table(monkeypatch, rows, a=fast, b=slow)
    seldom = Estimate(3.0, 0.0, float("inf"), 1)
    assert "| cores | `a` | 1.5 [" in table(monkeypatch, rows, a=slow, b=seldom), "no interval leads nothing"
    assert "| cores | `a` | not measured yet (" in table(monkeypatch, rows, a=None, b=None)


def test_what_may_be_no_gain_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("cores", "a")]
    assert "[0.9, 1.3] times as fast (may be no gain) (" in table(monkeypatch, rows, a=Estimate(1.1, 0.9, 1.3, 5))
    assert "may be no gain" not in table(monkeypatch, rows, a=Estimate(1.1, 1.01, 1.3, 5))
    wide = table(monkeypatch, rows, a=Estimate(2.5, 0.001, 4e6, 5))
    assert "| 2.5 times as fast (no interval yet: it may be no gain) (" in wide and "e+06" not in wide


def test_a_row_may_read_its_number_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "| 1.48 times as fast (" in table(monkeypatch, [row("room", lambda stored: "1.48")])
    assert "| not measured yet (" in table(monkeypatch, [row("room", lambda stored: "")])
    with pytest.raises(ValueError, match="no target 'nothing'"):
        table(monkeypatch, [row("cores", "nothing")])


def test_several_machines_are_told_by_what_links_measured() -> None:
    (row,) = [each for each in ADVICE if each.need == "several machines"]
    assert callable(row.target) and row.target(no_records()) == ""
    found = re.fullmatch(r"([\d.]+) \[[\d.]+, [\d.]+\]", row.target(Stored(fake_distribution.records())))
    assert found is not None and float(found[1]) == pytest.approx(0.7, rel=0.02)


def test_room_is_that_of_two_ranks() -> None:
    (row,) = [each for each in ADVICE if each.need == "a model too large for one worker"]
    assert callable(row.target) and row.target(no_records()) == ""
    stored = Stored(fake_pipelines.records(), fake_pipelines.tables())
    table = largest_table(stored.table("stages"))
    own = table[(table["pipeline_ranks"] == 2) & (table["schedule"] == "interleaved_1f1b")]
    assert row.target(stored) == f"{own['times'].max():.3g}" and len(set(table["pipeline_ranks"])) > 1


def test_the_room_is_that_of_the_schedule_which_the_command_names() -> None:
    """Bug: it gave interleaved 1F1B's number beside a command that takes 1F1B."""
    (row,) = [each for each in ADVICE if each.need == "a model too large for one worker"]
    assert 'schedule="interleaved_1f1b", stages_per_rank=2' in row.strategy and callable(row.target)
    tables = fake_pipelines.tables()
    stages = tables["stages"]
    others = tables | {"stages": stages[stages["schedule"] != "interleaved_1f1b"]}
    assert row.target(Stored(fake_pipelines.records(), others)) == ""


def test_every_row_names_a_target_of_its_notebook() -> None:
    for each in ADVICE:
        names = [target.name for target in experiment(each.notebook).targets]
        assert not isinstance(each.target, str) or each.target in names, each.need

"""A run folder that holds hardly anything: what is drawn, told and tabled says what is missing, and nothing raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import pyplot

from lockstep.analysis.stored import Stored
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import every
from stored_reference import stored_reference

MEASURING = [own for own in every() if own.grid is not None]
FAILED = "the worker was killed by SIGKILL"


def with_one_round(stored: Stored) -> Stored:
    """The first round that holds any row that is ok."""
    first = stored.records.loc[stored.records["status"] == "ok", "round"].min()
    tables = {name: table[table["round"] == first] for name, table in stored.tables.items()}
    none = stored.traces.iloc[:0]
    return Stored(stored.records[stored.records["round"] == first].copy(), tables, traces=none)


def all_failed(stored: Stored) -> Stored:
    """The first three rounds, in which every cell failed."""
    rows = stored.records[stored.records["round"] < stored.records["round"].min() + 3]
    measured = [name for name in rows.columns if name.endswith(("_second", "_seconds", "_accuracy", "_loss", "_bytes"))]
    rows = rows.assign(status="failed", reason=FAILED, **dict.fromkeys(measured, float("nan")))
    return Stored(rows, {}, traces=stored.traces.iloc[:0])


@pytest.mark.parametrize("poor", [with_one_round, all_failed], ids=["one round", "all failed"])
@pytest.mark.parametrize("own", MEASURING, ids=lambda own: own.number)
def test_findings_tables_and_targets_of_poor_records(own: Experiment, poor: object, root: Path) -> None:
    assert callable(poor) and own.answer is not None
    stored = poor(stored_reference(root / "results" / "reference" / own.name))
    for name, say in {**own.findings, "answer": own.answer}.items():
        text = say(stored)
        assert text and text[0].isupper() and text.endswith(".") and "nan" not in text.split(), (name, text)
    for compute in own.tables.values():
        compute(stored.shown)
    for target in own.targets:
        found = target.read(stored.shown)
        assert found.ratio is not None or found.word


@pytest.mark.parametrize("own", MEASURING, ids=lambda own: own.number)
def test_figures_of_a_run_in_which_all_failed(own: Experiment, root: Path) -> None:
    stored = all_failed(stored_reference(root / "results" / "reference" / own.name))
    for recipe in own.figures.values():
        assert recipe(stored.shown).get_axes() is not None
    pyplot.close("all")

"""An answer does not hang on which rounds were measured: odd and even ones alone do not contradict each other."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, read_stored
from lockstep.analysis.verdicts import DECIDED
from lockstep.engine.job import LEARNING
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import every

MEASURING = [own for own in every() if own.grid is not None]


def half(stored: Stored, odd: bool) -> Stored:
    """Every other round of each cell; of what learns, every other seed."""
    learns = stored.records["experiment"].isin(LEARNING)
    number = stored.records["round"].where(~learns, stored.records["seed"])
    kept = stored.records[number % 2 == int(odd)]
    traces = stored.traces[stored.traces["round"] % 2 == int(odd)]
    rounds = {*kept["round"], *traces["round"]}
    tables = {name: frame[frame["round"].isin(rounds)] for name, frame in stored.tables.items() if "round" in frame}
    return Stored(kept, tables, stored.assumptions, traces)


@pytest.mark.parametrize("own", MEASURING, ids=lambda own: own.name)
def test_halves_of_the_rounds_do_not_contradict_each_other(own: Experiment, root: Path) -> None:
    stored = read_stored(root / "results" / "reference" / own.name)
    claims = read_claims()
    differing = {}
    for claim in claims[claims["notebook"] == own.name].to_dict("records"):
        answers = {judge(claim, half(stored, odd), own.verdicts).answer for odd in (True, False)}
        if answers == set(DECIDED):
            differing[claim["id"]] = answers
    assert not differing


def test_a_half_has_half_of_the_rounds() -> None:
    frame = pd.DataFrame({"experiment": "speed", "round": range(10), "seed": 0})
    learnt = pd.DataFrame({"experiment": "learning", "round": range(10, 20), "seed": range(10)})
    both = Stored(pd.concat([frame, learnt]))
    assert [len(half(both, odd).records) for odd in (True, False)] == [10, 10]

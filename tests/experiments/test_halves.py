"""An answer does not hang on which rounds were measured: two halves of them alone do not contradict each other.

Odd and even rounds would be no fair halves: the planner measures comparisons in turns, so that one of two stands in
odd rounds alone. Each comparison's rounds are dealt out in an order of their own instead, which a hash gives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pandas as pd
import pytest

from lockstep.analysis.cells import cells
from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import DECIDED
from lockstep.engine.job import Job
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import every
from lockstep.records import COLUMNS, make_row, repeated_by_seed
from stored_reference import stored_reference

pytestmark = pytest.mark.slow

MEASURING = [own for own in every() if own.grid is not None]


def dealt(numbers: Iterable[int], second: bool) -> list[int]:
    """Every other one of some numbers, in the order of their hashes."""
    shuffled = sorted(set(numbers), key=lambda number: blake2b(f"half {number}".encode()).digest())
    return shuffled[int(second) :: 2]


def half(stored: Stored, second: bool) -> Stored:
    """Half of the rounds of each comparison, which is what stood together in a round; of what learns or is
    simulated, half of the seeds of all cells alike."""
    records = stored.records
    learns = repeated_by_seed(records)
    beside: dict[int, set[int]] = defaultdict(set)
    for number, (_, rows) in enumerate(cells(records[~learns])):
        for own in rows["round"]:
            beside[own].add(number)
    comparisons: dict[frozenset[int], list[int]] = defaultdict(list)
    for own, numbers in beside.items():
        comparisons[frozenset(numbers)].append(own)
    rounds = [own for each in comparisons.values() for own in dealt(each, second)]
    seeds = dealt(records.loc[learns, "seed"], second)
    kept = records[records["round"].isin(rounds).where(~learns, records["seed"].isin(seeds))]
    traced = dealt(stored.traces["round"], second)
    traces = stored.traces[stored.traces["round"].isin(traced)]
    known = {*kept["round"], *traced}
    tables = {name: frame[frame["round"].isin(known)] for name, frame in stored.tables.items() if "round" in frame}
    return replace(stored, records=kept, tables=tables, traces=traces)


@pytest.mark.parametrize("own", MEASURING, ids=lambda own: own.name)
def test_halves_of_the_rounds_do_not_contradict_each_other(own: Experiment, root: Path) -> None:
    stored = stored_reference(root / "results" / "reference" / own.name)
    halves = [half(stored, second) for second in (False, True)]
    claims = read_claims()
    differing = {}
    for claim in claims[claims["notebook"] == own.name].to_dict("records"):
        answers = {judge(claim, each, own.verdicts).answer for each in halves}
        if answers == set(DECIDED):
            differing[claim["id"]] = answers
    assert not differing


def measured_in_turns(rounds: int) -> Stored:
    """Two comparisons in turns: threads beside one core in even rounds, processes beside it in odd ones; and seeds."""
    rows = []
    for number in range(rounds):
        for name in ("sequential", ("threads", "processes")[number % 2]):
            workers = 1 if name == "sequential" else 2
            rows.append(make_row(Job.of(name, workers=workers, round=number), {"images_per_second": 1.0}))
    learnt = [Job.of("sequential", experiment="learning", use_case=use_case, epochs=1, seed=seed, round=rounds + seed)
              for use_case in ("Pneumonia", "FireSmoke") for seed in range(10)]  # fmt: skip
    return Stored(pd.DataFrame([*rows, *(make_row(job, {}) for job in learnt)], columns=list(COLUMNS)))


def test_each_half_holds_every_comparison_and_every_seed_stands_in_one() -> None:
    stored = measured_in_turns(24)
    halves = [half(stored, second).records for second in (False, True)]
    assert sorted([*halves[0].index, *halves[1].index]) == list(stored.records.index), "nothing twice, nothing lost"
    for each in halves:
        assert each["strategy"].value_counts().to_dict() == {"sequential": 12 + 10, "threads": 6, "processes": 6}
        assert each.groupby("round")["strategy"].nunique().loc[:23].eq(2).all(), "a pair stays together"
        learnt = each[each["experiment"] == "learning"]
        assert learnt.groupby("use_case")["seed"].apply(frozenset).nunique() == 1 and learnt["seed"].nunique() == 5

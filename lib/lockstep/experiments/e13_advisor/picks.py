"""Would following the advice have been right? Each model and global batch is a choice among ways that were measured.

The pick is the way predicted quickest, with the shortest middle. Beside it stands what `lockstep advise` recommends:
the simplest way whose range overlaps that one's (`simplest_of_the_best`), with ranges of the errors on other models.
Both are judged where the fastest way is decided: beside every other one, by more than two runs of one and the same cell
differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.advisor.advice import Way
from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.errors import KindError
from lockstep.advisor.from_records import predictable_rows
from lockstep.advisor.predict import simplest_of_the_best
from lockstep.advisor.steps import Predictor
from lockstep.analysis.cells import cells
from lockstep.analysis.noise import aa_noise
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.sentences import counted, listed, way_name
from lockstep.analysis.statistics import Estimate, interval_of, is_difference, per_round
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e13_advisor.checking import Advisor, advisors, other_processors, predictions
from lockstep.experiments.e13_advisor.errors_file import known_errors
from lockstep.experiments.e13_advisor.grid import CALIBRATION, HELD_OUT

NEAR = 0.05
"""A pick that the fastest exceeds by this much is as good; where equal cells differ by more, by that much."""
FAR = 0.2
"""A recommended way that takes this much longer is told: the simplest way was not the right one."""
_SPEED = "images_per_second"


def allowed_loss(stored: Stored) -> float:
    noise = aa_noise(on_one_processor(stored)[0])
    return max(NEAR, math.expm1(noise)) if math.isfinite(noise) else NEAR


def quickest_first(table: pd.DataFrame) -> str:
    """In how many choices the way predicted quickest is the one whose median speed was the highest."""
    hits = int((table["pick"] == table["best"]).sum())
    where = f"all {counted(hits, 'choice')}" if hits == len(table) else f"{hits} of {counted(len(table), 'choice')}"
    same = f", each time {called(table['pick'].iloc[0])}," if table["pick"].nunique() == 1 < len(table) else ""
    return f"in {where} the way predicted quickest{same} also has the highest median speed"


def quickest_elsewhere(stored: Stored) -> str:
    """On which processor that is, and the same count on each other one; "" where there is one alone."""
    told = []
    for name, own in other_processors(stored).items():
        table = picks(own)
        told += [f"on {name} in {int((table['pick'] == table['best']).sum())} of {len(table)}"] if len(table) else []
    return f" on {on_one_processor(stored)[1]} ({listed(told)})" if told else ""


def called(way: str) -> str:
    """A way of the table below, in words."""
    strategy, _, workers = way.partition(" x ")
    return f"{counted(int(workers or 1), 'worker')} by {way_name(strategy)}"


def advised_takes(table: pd.DataFrame) -> str:
    """How long the recommended way takes beside the fastest one, on average over choices and at most."""
    mean, most = (f"{1 + loss:.3g} times" for loss in (table["advised_loss"].mean(), table["advised_loss"].max()))
    slow = int((table["advised_loss"] > FAR).sum())
    often = f", over {1 + FAR:.3g} times in {slow} of {counted(len(table), 'choice')}" if slow else ""
    return f"the recommended way takes {mean} as long as the fastest on average, {most} at most{often}"


def advised_costs(stored: Stored) -> str:
    """`advised_takes`, and the most on any other processor; "" where the recommended way is everywhere the fastest."""
    table = picks(stored)
    tables = [picks(own) for own in other_processors(stored).values()]
    most = pd.Series([own["advised_loss"].max() for own in tables if len(own)], dtype=float).max()  # NaN: of none
    elsewhere = f" (on other processors at most {1 + most:.3g})" if most > 0 else ""
    slower = len(table) and table["advised_loss"].max() > 0  # NaN: of none
    return f"; {advised_takes(table)}{elsewhere}" if slower or elsewhere else ""


@once
def picks(stored: Stored) -> pd.DataFrame:
    """A row per model and global batch with two ways or more: ways (number), names (of all), best, pick and advised
    (strategy and workers), slower (the names of those that the best is shown to exceed), loss (how much faster the
    fastest is than the pick, with low and high), decided (all others are slower) and good (bool); advised_loss and
    advised_good, the same of the recommended way."""
    records = on_one_processor(stored)[0]
    rows = predictable_rows(records)
    rows = rows[rows["experiment"].isin([CALIBRATION, HELD_OUT]) & (rows["hosts"] == 1)]
    table, noise, most, known = [], aa_noise(records), allowed_loss(stored), predictions(stored)
    order = {name: place for place, name in enumerate(rows["use_case"].unique())}
    groups = sorted(rows.groupby(["use_case", "global_batch_size"]), key=lambda each: (order[each[0][0]], each[0][1]))
    for (use_case, batch), own in groups:
        advisor = advisors(stored).get(str(use_case))
        if advisor is None:
            continue
        ways = [(cell, per_round(own, cell, _SPEED)) for cell, _ in cells(own) if _predicted(advisor, cell)]
        if len(ways) < 2:
            continue
        row = {"use_case": use_case, "global_batch_size": int(batch), "ways": len(ways)}
        errors = known_errors(known[known["use_case"] != use_case] if len(known) else known)
        table.append(row | _picked(advisor, ways, noise, most) | _advised(advisor, ways, errors, most))
    return pd.DataFrame(table)


Ways = list[tuple[dict[str, Any], pd.Series]]
"""Cells, and the images per second of each in every round."""


def _predicted(advisor: Advisor, cell: Mapping[str, Any]) -> bool:
    """Whether what was calibrated is enough to predict a cell: not of a run that has hardly begun."""
    try:
        advisor.predictor.terms(*advisor.asked(cell))
    except CalibrationError:
        return False
    return True


def _picked(advisor: Advisor, ways: Ways, noise: float, most: float) -> dict[str, Any]:
    best = max(range(len(ways)), key=lambda way: ways[way][1].median())
    expected = [sum(advisor.predictor.terms(*advisor.asked(cell)).values()) for cell, _ in ways]
    pick = min(range(len(ways)), key=expected.__getitem__)
    over = [_ratio(ways[best][1], speeds) for _, speeds in ways]
    slower = [
        _named(ways[way][0])
        for way, ratio in enumerate(over)
        if way != best and ratio is not None and is_difference(ratio, noise)
    ]
    found = over[pick]
    value, low, high = (1.0, 1.0, 1.0) if pick == best else found.columns if found else (math.nan,) * 3
    row = {"best": _named(ways[best][0]), "pick": _named(ways[pick][0]), "decided": len(slower) == len(ways) - 1}
    row |= {"names": [_named(cell) for cell, _ in ways], "slower": slower}
    return row | {"loss": value - 1, "low": low - 1, "high": high - 1, "good": bool(value - 1 <= most)}


def _advised(advisor: Advisor, ways: Ways, errors: Mapping[str, KindError], most: float) -> dict[str, Any]:
    """What the advisor recommends among these ways, by the very function that it uses, and what that costs."""
    predictor = advisor.with_errors(errors)
    offered = [_way(advisor, predictor, cell) for cell, _ in ways]
    chosen = simplest_of_the_best(sorted(offered, key=lambda way: way.step_seconds.middle))
    place = next(place for place, way in enumerate(offered) if way is chosen)
    best = max(range(len(ways)), key=lambda way: ways[way][1].median())
    found = _ratio(ways[best][1], ways[place][1])
    loss = 0.0 if place == best else found.value - 1 if found else math.nan
    return {"advised": _named(ways[place][0]), "advised_loss": loss, "advised_good": bool(loss <= most)}


def _way(advisor: Advisor, predictor: Predictor, cell: Mapping[str, Any]) -> Way:
    """A cell of the grid, as the advisor offers it."""
    sync, workers, hosts, batch, threads, link = advisor.asked(cell)
    step, size = predictor.step_seconds(sync, workers, hosts, batch, threads, link), int(cell["global_batch_size"])
    kind, terms = advisor.kind(cell), predictor.terms(sync, workers, hosts, batch, threads, link)
    return Way(sync, workers, hosts, threads, size, batch, kind, step, step.inverse(size), terms, 0.0, 0.0, True)


def _ratio(one: pd.Series, other: pd.Series) -> Estimate | None:
    """Of two ways' speeds, paired by round; None where no round holds both."""
    both = (one / other).dropna()
    return interval_of(both) if len(both) else None


def _named(cell: dict[str, Any]) -> str:
    return f"{cell['strategy']} x {cell['workers']}" if cell["workers"] > 1 else str(cell["strategy"])

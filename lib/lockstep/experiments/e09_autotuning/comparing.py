"""What is computed of a whole pool once a run has ended, and kept beside it: pruners, forecasts, importances.

replays            each pruner with settings chosen on one half of the pool, replayed on the other
best_so_far        how far a study is from the best of its settings, by the epochs that it has trained
curve_forecasts    how far forecasts are from the ends of curves, by the epochs that they have seen
importances        which entries of the space explain the scores (PED-ANOVA), over subsamples of the trials

Minutes of computing, so notebooks read these tables. Each of their rows says in `pool` of how many settings it is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

import lockstep
from lockstep.analysis.seeds import wilson
from lockstep.analysis.stored import Stored
from lockstep.experiments.e09_autotuning.choice import shown_studies
from lockstep.experiments.e09_autotuning.importance import importances
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool, pool_in
from lockstep.measure.progress import say
from lockstep.records import read_traced_table, write_computed_table
from lockstep.tuning.choosing import CANDIDATES, Choice, choose_then_report
from lockstep.tuning.forecasting import FORECASTERS, make_forecaster
from lockstep.tuning.frontier import frontier
from lockstep.tuning.pool import CurvePool, effective_number, halves
from lockstep.tuning.pruners import make_pruner
from lockstep.tuning.replay import Replayed, forecasts_for, replay, trains_in_each_study

REPLAYS, BEST_SO_FAR, CURVE_FORECASTS, IMPORTANCES = "replays", "best_so_far", "curve_forecasts", "importances"
LEAST_SETTINGS = 12
"""Of a pool of which anything is said."""
ORDERS, CHOOSING_ORDERS = 500, 60
"""Of studies that are reported, and of those on which the settings of pruners are chosen."""
FEW_ORDERS = 10
"""Of studies in each of which a network is trained."""
WORKERS = (1, 2, 8)
STUDIES = (10, 30, 60)
"""Trials of a study; those are compared that a half of the pool holds, of longer ones with a fifth of it to spare:
orders of 60 settings out of 61 hardly differ."""
BASE = "Median"
DRAWN = ("none", "Median", "SuccessiveHalving 4", "LSTM", "halving on LSTM forecasts")
"""Of which the course of a study is drawn."""
DRAWN_ORDERS = 200
SEEN = (1, 2, 4, 8, 12, 16)
FOLDS = 5
FINISHED = 15
"""Curves that a forecast is recalibrated on: as in the middle of a study."""
Array = NDArray[np.float64]
Row = dict[str, Any]


def compare(stored: Stored, folder: Path) -> None:
    """Writes the tables, if the pool has grown since they were written. Raises WriteError."""
    own = pool_in(stored)
    if own is None or len(own.whole) < LEAST_SETTINGS or not studies(len(own.whole)):
        return
    known, made_of = stored.table(CURVE_FORECASTS), fingerprint(own)  # the last one that is written
    if len(known) and known["made_of"].iloc[0] == made_of:
        return
    pool = CurvePool(own.values(), own.epoch_seconds, own.held_out)
    tables: dict[str, Callable[[], Iterable[Row]]] = {
        REPLAYS: lambda: replay_rows(pool),
        BEST_SO_FAR: lambda: best_so_far_rows(pool, *stored_texts(folder)),
        IMPORTANCES: lambda: importances(own),
        CURVE_FORECASTS: lambda: forecast_rows(pool.values),
    }
    for name, rows in tables.items():
        say(f"computing {name} of a pool of {len(pool)} settings")
        write_computed_table(folder, name, pd.DataFrame(rows()).assign(pool=len(pool), made_of=made_of))


def fingerprint(pool: StoredPool) -> str:
    """What the tables are made of: curves, their space, what is compared, and the version of this library."""
    numbers = (ORDERS, CHOOSING_ORDERS, STUDIES, WORKERS)
    said = (pool.trials["space"].iloc[0], sorted(CANDIDATES.items()), *numbers, lockstep.__version__)
    return hashlib.sha256(pool.values().tobytes() + repr(said).encode()).hexdigest()[:16]


def replay_rows(pool: CurvePool) -> Iterator[Row]:
    """A row per compared pruner, number of trials and of workers."""
    for trials in studies(len(pool)):
        for workers in WORKERS:
            quick = {name: texts for name, texts in CANDIDATES.items() if not trains_in_each_study(texts[0])}
            chosen, reported = choose_then_report(
                pool, quick, workers, trials, range(ORDERS), choosing_seeds=range(CHOOSING_ORDERS)
            )
            yield from _compared(chosen, reported, effective_number(len(pool) // 2, trials, ORDERS).of_these)
        yield from _trained_in_each(pool, trials)


def _trained_in_each(pool: CurvePool, trials: int) -> Iterator[Row]:
    """Rows of the pruners whose network is trained anew in every study, which takes seconds: chosen and reported on a
    few orders by one worker, without intervals, and in no figure."""
    slow = {name: texts for name, texts in CANDIDATES.items() if trains_in_each_study(texts[0])}
    chosen, reported = choose_then_report(pool, slow, 1, trials, range(FEW_ORDERS)) if slow else ({}, pd.DataFrame())
    for name, choice in chosen.items():
        found = reported[reported["compared"] == name]
        row: Row = {"compared": name, "text": choice.text, "trials": trials, "workers": 1, "studies": FEW_ORDERS}
        row |= {"kept": found["kept_best"].mean(), "on_frontier": False, "reached": int(choice.reached)}
        row |= {"effective": effective_number(len(pool) // 2, trials, FEW_ORDERS).of_these}
        yield row | {name: found[name].mean() for name in ("share_of_epochs", "regret", "seconds")}


def studies(settings: int) -> list[int]:
    """The numbers of trials that a half of so many settings holds, of longer studies with a fifth to spare."""
    half = settings // 2
    return [trials for trials in STUDIES if trials <= (half if trials == STUDIES[0] else 0.8 * half)]


def _compared(chosen: dict[str, Choice], reported: pd.DataFrame, effective: float) -> Iterator[Row]:
    """Intervals are of as many independent studies as the orders amount to, not of the orders: `effective`."""
    for row in frontier(reported).to_dict("records"):
        name = row["compared"]
        one = reported[reported["compared"] == name]
        told: Row = {"trials": int(one["trials"].iloc[0]), "workers": int(one["workers"].iloc[0])}
        told |= {"effective": effective, "regret": one["regret"].mean(), "seconds": one["seconds"].mean()}
        told |= of_independent(one["share_of_epochs"], effective, ("share_low", "share_high"))
        told |= of_independent(one["kept_best"].astype(float), effective, ("kept_low", "kept_high"))
        base = reported[reported["compared"] == BASE].set_index("seed")
        for quantity in ("share_of_epochs", "kept_best"):
            more = one.set_index("seed")[quantity].astype(float) - base[quantity].astype(float)
            told[f"{quantity}_more"] = more.mean()
            told |= of_independent(more, effective, (f"{quantity}_more_low", f"{quantity}_more_high"), least=-1.0)
        yield {**row, **told, "text": chosen[name].text, "reached": int(chosen[name].reached)}


def of_independent(values: pd.Series, studies: float, names: tuple[str, str], least: float = 0.0) -> dict[str, float]:
    """A 95 % interval of the mean of so many independent values that scatter as these do, between `least` and 1: by
    Student's distribution, and of two studies' degrees of freedom where there are fewer."""
    half = float(stdtrit(max(studies, 2.0) - 1.0, 0.975)) * float(values.std(ddof=1)) / math.sqrt(studies)
    mean = float(values.mean())
    return dict(zip(names, (max(least, mean - half), min(1.0, mean + half)), strict=True))


def best_so_far_rows(pool: CurvePool, trials: int, texts: dict[str, str]) -> Iterator[Row]:
    """compared, spent (epochs over those of the whole study), regret (of the best finished setting until then, mean
    over orders): studies of so many trials by one worker, on the half of the pool that reports."""
    half, grid = halves(pool, 0)[1], np.linspace(0, 1, 41)[1:]
    for name, text in texts.items():
        asked = forecasts_for(text, None, half)
        lost = [
            regret_until(half, replay(half, make_pruner(text, half.epochs, seed, asked), 1, trials, seed), grid)
            for seed in range(DRAWN_ORDERS)
        ]
        for spent, regret in zip(grid, np.mean(lost, axis=0), strict=True):
            yield {"compared": name, "text": text, "trials": trials, "spent": spent, "regret": regret}


def regret_until(pool: CurvePool, found: Replayed, grid: Array) -> Array:
    """How much lower the best finished setting ends than the best of all that were drawn, when so many epochs of the
    whole study's have been trained; the best one's whole score before any is finished."""
    ends = pool.values[found.settings, -1]
    best = np.maximum.accumulate(np.where(found.finished, ends, 0.0))
    spent = np.cumsum(found.stopped) / (len(ends) * pool.epochs)
    known = np.searchsorted(spent, grid, side="right") - 1
    return np.nanmax(ends) - np.where(known < 0, 0.0, best[np.maximum(known, 0)])


def forecast_rows(values: Array) -> Iterator[Row]:
    """forecaster, epoch (seen), error (mean absolute, of the score), relative to best so far's error, and covered (the
    share of curves that ended within the 90 % interval), with intervals. Each curve's forecast is recalibrated on
    FINISHED other ones."""
    ends = values[:, -1]
    seen = [epoch for epoch in SEEN if epoch < values.shape[1]]
    errors: dict[str, Array] = {}
    for name in sorted(FORECASTERS, key=lambda each: each != "best"):  # what the others are held against comes first
        said = forecasts_of(name, values, seen)
        errors[name] = np.abs(said[..., 0] - ends[:, None])
        held = (said[..., 1] <= ends[:, None]) & (ends[:, None] <= said[..., 2])
        for place, epoch in enumerate(seen):
            low, high = wilson(int(held[:, place].sum()), len(ends))
            ratio = ratio_of_means(errors[name][:, place], errors["best"][:, place])
            row = {"forecaster": name, "epoch": epoch, "curves": len(ends), "error": errors[name][:, place].mean()}
            row |= {"covered": held[:, place].mean(), "covered_low": low, "covered_high": high}
            yield row | dict(zip(("relative", "relative_low", "relative_high"), ratio, strict=True))


def forecasts_of(name: str, values: Array, seen: Sequence[int]) -> Array:
    """[settings, seen, 3]: mean, low and high of each curve's end, by folds, so that no forecaster has met it."""
    found = np.full((len(values), len(seen), 3), np.nan)
    order = np.random.default_rng(0).permutation(len(values))
    for fold in np.array_split(order, FOLDS):
        others = [place for place in order if place not in set(fold)][:FINISHED]
        forecaster = make_forecaster(name)
        forecaster.fit([values[place] for place in others], seed=0)
        for place in fold:
            for column, epochs in enumerate(seen):
                said = forecaster.predict(values[place, :epochs], values.shape[1] - epochs)
                found[place, column] = said.mean, said.low, said.high
    return found


def ratio_of_means(ours: Array, base: Array) -> tuple[float, float, float]:
    """The ratio of two mean errors of the same curves, with a 95 % bootstrap interval over curves."""
    drawn = np.random.default_rng(0).integers(len(ours), size=(2000, len(ours)))
    ratios = ours[drawn].mean(axis=1) / base[drawn].mean(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(ours.mean() / base.mean()), float(low), float(high)


def stored_texts(folder: Path) -> tuple[int, dict[str, str]]:
    """The trials of the studies that are shown, and the text chosen for each of DRAWN, with one worker."""
    table = read_traced_table(folder, REPLAYS)
    if table is None or table.empty:
        return 0, {}
    own = shown_studies(table[(table["workers"] == 1) & table["share_low"].notna()])
    known = dict(zip(own["compared"], own["text"], strict=True))
    return int(own["trials"].iloc[0]), {name: known[name] for name in DRAWN if name in known}

"""The statistics of every comparison: one function per definition, each with a worked example in its test.

Rounds are paired: within a round all variants ran interleaved, so a ratio is taken per round, and its median
over rounds stands with a bootstrap 95 % interval (Hoefler & Belli, SC'15). `lockstep.analysis.tables` builds the
notebooks' tables from these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MIN_ROUNDS = 5
"""Fewer rounds than the measurement protocol asks for support no difference and no verdict."""

Conditions = Mapping[str, Any]
BASELINE: Conditions = {"strategy": "sequential", "variant": "a"}
"""The papers' baseline: one thread on one core, decoding included."""


class AnalysisError(ValueError):
    """Records that can't answer a question; the message names the rows, what is wrong and the fix."""


@dataclass(frozen=True)
class Ratio:
    """The median over `rounds` paired ratios, and its bootstrap 95 % interval. Dimensionless."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap_interval(
    values: Sequence[float] | np.ndarray | pd.Series,
    statistic: Callable[..., Any] = np.median,
    seed: int = 0,
    n: int = 10_000,
) -> tuple[float, float]:
    """The 2.5 % and 97.5 % quantiles of `statistic` over `n` resamples with replacement of `values` (m numbers).

    `statistic` takes an (n, m) array and `axis=1`, as NumPy's functions do. Seeded, so that a figure drawn
    twice is the same. Raises AnalysisError for no values or values that are not finite.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size == 0 or not np.isfinite(sample).all():
        raise AnalysisError(f"no interval of {sample.tolist()}: give at least one value, all of them finite")
    low, high = np.quantile(statistic(sample[_resamples(seed, n, sample.size)], axis=1), [0.025, 0.975])
    return float(low), float(high)


@functools.lru_cache(maxsize=16)
def _resamples(seed: int, n: int, size: int) -> np.ndarray:
    """`n` choices with replacement of `size` positions; a run has few numbers of rounds, so few are ever drawn."""
    return np.random.default_rng(seed).integers(0, size, size=(n, size))


def median_or_nan(values: pd.Series) -> float:
    """The median of the values that are there; NaN where there are none."""
    known = values.astype(float).dropna()
    return float(known.median()) if len(known) else float("nan")


def interval_of(ratios: pd.Series) -> Ratio:
    """Median and interval of paired ratios, one per round."""
    low, high = bootstrap_interval(ratios.to_numpy(dtype=float))
    return Ratio(float(np.median(ratios)), low, high, len(ratios))


def select(records: pd.DataFrame, conditions: Conditions, status: str | None = "ok") -> pd.DataFrame:
    """The rows whose columns equal `conditions` (a list: any of them). Raises AnalysisError for an unknown column."""
    return records.iloc[_fit(records, conditions, status)]


def _fit(records: pd.DataFrame, conditions: Conditions, status: str | None) -> np.ndarray:
    """Positions of the rows that `select` gives. A cell has some seventy conditions, so each of them looks only at
    the rows that those before it have kept."""
    unknown = set(conditions) - set(records.columns)
    if unknown:
        raise AnalysisError(f"records have no column {sorted(unknown)}; there are: {', '.join(records.columns)}")
    wanted = dict(conditions) if status is None else {**conditions, "status": status}
    left = np.arange(len(records))
    for name, value in wanted.items():
        if not len(left):
            break
        values = records[name].to_numpy()[left]
        fits = np.isin(values, list(value)) if isinstance(value, list | tuple | set) else values == value
        left = left[np.asarray(fits, dtype=bool)]
    return left


def per_round(records: pd.DataFrame, conditions: Conditions, measure: str) -> pd.Series:
    """`measure` of the chosen rows, one value per round, indexed by round; rounds without a value are left out.

    Raises AnalysisError if a round holds several such rows: the conditions then mix unlike cells.
    """
    fits = _fit(records, conditions, "ok")
    kept = records[["round", measure]].iloc[fits].dropna(subset=measure)
    if kept["round"].duplicated().any():
        rows = records.iloc[fits]
        names = [name for name in records.columns[: records.columns.get_loc("round")] if rows[name].nunique() > 1]
        names += ["variant"] if "variant" in rows and rows["variant"].nunique() > 1 else []
        raise AnalysisError(
            f"{dict(conditions)} holds several rows per round; they differ in {', '.join(names) or 'nothing'}: "
            "add a condition on that column, or remove the rows written twice"
        )
    return kept.set_index("round")[measure].astype(float).sort_index()


def best_strategy(records: pd.DataFrame, conditions: Conditions) -> str | None:
    """The strategy with the highest median images/s among the ok rows that fit; None if there are none."""
    rows = select(records, conditions)
    medians = rows.groupby("strategy", sort=False)["images_per_second"].median().dropna()
    return None if medians.empty else str(medians.idxmax())


def paired_ratios(records: pd.DataFrame, numerator: Conditions, denominator: Conditions, measure: str) -> pd.Series:
    """measure(numerator) / measure(denominator) per round, indexed by round; rounds that lack one half are left out.

    Raises AnalysisError if no round holds both.
    """
    above, below = per_round(records, numerator, measure), per_round(records, denominator, measure)
    ratios = (above / below).dropna()
    if ratios.empty:
        raise AnalysisError(
            f"no round holds {measure} of both {dict(numerator)} ({len(above)} rounds) and {dict(denominator)} "
            f"({len(below)} rounds): measure them in one run"
        )
    return ratios


def ratio_with_interval(records: pd.DataFrame, numerator: Conditions, denominator: Conditions, measure: str) -> Ratio:
    """Median and 95 % interval of `paired_ratios`."""
    return interval_of(paired_ratios(records, numerator, denominator, measure))


def amdahl(workers: float, serial: float) -> float:
    """Amdahl's speedup, 1 / (serial + (1 - serial) / workers); serial = 0 is the ideal, `workers`."""
    return 1.0 / (serial + (1.0 - serial) / workers)


def efficiency(measured: float, workers: float, serial: float = 0.0) -> float:
    """measured speedup / amdahl(workers, serial): against the ideal, or against a fitted serial fraction."""
    return measured / amdahl(workers, serial)


def amdahl_fit(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """The serial fraction s in [0, 1] of 1/S = s + (1 - s)/p, by least squares on y = s x.

    x = 1 - 1/p and y = 1/S - 1/p, so s = sum(x y) / sum(x x). Raises AnalysisError without a p above 1.
    """
    inverse = 1.0 / np.asarray(workers, dtype=float)
    x, y = 1.0 - inverse, 1.0 / np.asarray(speedups, dtype=float) - inverse
    if not np.any(x > 0):
        raise AnalysisError(f"workers={list(workers)}: Amdahl's law needs a point with more than one worker")
    return float(np.clip((x * y).sum() / (x * x).sum(), 0.0, 1.0))


def aa_interval(records: pd.DataFrame, conditions: Conditions = BASELINE, measure: str = "images_per_second") -> Ratio:
    """The A/A pair's ratio b / a: two runs of one and the same cell, so its interval is what noise alone gives.

    Raises AnalysisError if no round holds both variants.
    """
    return ratio_with_interval(records, {**conditions, "variant": "b"}, {**conditions, "variant": "a"}, measure)


def aa_or_none(
    records: pd.DataFrame, conditions: Conditions = BASELINE, measure: str = "images_per_second"
) -> Ratio | None:
    """`aa_interval`, or None where the records hold no such pair."""
    try:
        return aa_interval(records, conditions, measure)
    except AnalysisError:
        return None


def is_difference(ratio: Ratio, aa: Ratio | None = None) -> bool:
    """Whether a ratio may be called a difference from 1.

    Not if its interval holds 1, if its median lies within the A/A pair's interval, or if it rests on fewer than
    MIN_ROUNDS rounds. Which half of the pair is above the other is chance: its interval counts both ways round.
    """
    if ratio.rounds < MIN_ROUNDS or ratio.low <= 1.0 <= ratio.high:
        return False
    return aa is None or not min(aa.low, 1 / aa.high) <= ratio.median <= max(aa.high, 1 / aa.low)


def roughness(trace: pd.DataFrame, column: str) -> float:
    """How unsteady a trace is: mean |change from sample to sample| / mean, dimensionless. NaN for under 3 samples.

    The first sample is the start-up ramp's and is left out.
    """
    values = trace.sort_values("seconds")[column].astype(float).to_numpy()[1:]
    if len(values) < 2 or not values.mean():
        return float("nan")
    return float(np.abs(np.diff(values)).mean() / values.mean())

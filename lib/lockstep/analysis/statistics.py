"""The comparisons that everything rests on: one function per definition, each with a worked example in its test.

Rounds are paired: within a round the compared cells stood back to back, so a ratio is taken per round. The geometric
mean over rounds stands with an interval that holds whenever we look (`lockstep.analysis.confidence`).
`lockstep.analysis.tables` builds the notebooks' tables from these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate, estimate, estimated, highest
from lockstep.records.reading import contended, repeated_by_seed

__all__ = ["MIN_ROUNDS", "AnalysisError", "Estimate"]

Conditions = Mapping[str, Any]
BASELINE: Conditions = {"strategy": "sequential", "variant": "a"}
"""The papers' baseline: one thread on one core, decoding included."""
SESSION = "session"


def median_or_nan(values: pd.Series) -> float:
    """The median of the values that are there; NaN where there are none."""
    numbers = values.to_numpy(dtype=float)
    known = numbers[~np.isnan(numbers)]
    return float(np.median(known)) if len(known) else float("nan")


def interval_of(ratios: pd.Series) -> Estimate:
    """Geometric mean and interval of ratios, rates or times, one per round; raises AnalysisError if one is not above 0.

    Rounds of one session are alike, those of another machine or day need not be. Over several sessions the mean and its
    standard error are those of a random-effects model (`over_sessions`), whether the sessions seem to differ or not.
    """
    return over_sessions(ratios, logarithmic=True)


def mean_of(values: pd.Series) -> Estimate:
    """Arithmetic mean and interval of a quantity that may be 0 or negative, one value per round; as `interval_of`."""
    return over_sessions(values, logarithmic=False)


def over_sessions(values: pd.Series, logarithmic: bool = True) -> Estimate:
    """One estimate of all sessions: the random-effects mean of DerSimonian and Laird ("Meta-analysis in clinical
    trials", 1986) with an anytime-valid interval.

    A session with n of the N rounds has a mean m and the weight 1 / (s² / n + t²): s² is the variance of all rounds and
    t² that between sessions by the method of moments, 0 where sessions differ by no more than their rounds. The
    interval is the anytime-valid one of N rounds around the weighted mean, with 1 / sqrt(sum of weights) in place of
    s / sqrt(N). So it is that of all rounds together where sessions are alike, never narrower, and it grows evenly as
    they part: no test switches it. It holds for the mean of the sessions that were measured. Of all machines there are,
    two say next to nothing: Student's t with one degree of freedom, which Hartung and Knapp (2001) would take, asks for
    13 standard errors.

    `apart` holds each session's own estimate where they differ (`sessions_differ`), to be told beside it.
    """
    pooled = estimate(values, logarithmic=logarithmic)
    if SESSION not in values.index.names or not pooled.deviation > 0:  # NaN: too few rounds
        return pooled
    _, session, sizes = np.unique(values.index.get_level_values(SESSION), return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return pooled
    means = np.bincount(session, np.log(values) if logarithmic else values) / sizes
    own = pooled.deviation**2 / sizes
    weights = 1 / (own + _between_sessions(means, own))
    deviation = math.sqrt(pooled.rounds / weights.sum())
    found = estimated(float(np.average(means, weights=weights)), deviation, pooled.rounds, logarithmic)
    alone = by_session(values, logarithmic)
    return replace(found, apart=tuple(alone.items())) if sessions_differ(alone) else found


def _between_sessions(means: np.ndarray, variances: np.ndarray) -> float:
    """The variance between sessions by the method of moments, from their means and the variances of these."""
    weights = 1 / variances
    total = weights.sum()
    beyond = (weights * (means - np.average(means, weights=weights)) ** 2).sum() - (len(means) - 1)
    return max(0.0, float(beyond / (total - (weights**2).sum() / total)))


def by_session(values: pd.Series, logarithmic: bool = True) -> dict[int, Estimate]:
    """The estimate of each session that has rounds enough for one."""
    if SESSION not in values.index.names:
        return {}
    session, known = values.index.get_level_values(SESSION), values.to_numpy(dtype=float)
    parts = {int(name): known[session == name] for name in session.unique()}
    return {name: estimate(part, logarithmic=logarithmic) for name, part in parts.items() if len(part) >= MIN_ROUNDS}


def sessions_differ(sessions: Mapping[int, Estimate]) -> bool:
    """Whether sessions must be told one by one: two of their intervals have nothing in common, or their means differ by
    more than their rounds explain (Cochran's Q at 5 %). It changes no interval and no answer."""
    if len(sessions) < 2:
        return False
    found = list(sessions.values())
    if max(each.low for each in found) > min(each.high for each in found):
        return True
    variances = np.array([each.deviation**2 / each.rounds for each in found])
    if not variances.all():  # rounds without any noise, as made-up ones are; their interval is their mean
        return False
    means = np.array([math.log(each.value) if each.logarithmic else each.value for each in found])
    mean = np.average(means, weights=1 / variances)
    from scipy.special import chdtrc  # most of the time that importing this file would take

    return bool(chdtrc(len(found) - 1, (((means - mean) ** 2) / variances).sum()) < 0.05)


def sessions_column(found: Estimate | None, name: str) -> dict[str, str]:
    """What each session gave as a column of a table, where they differ; no column otherwise."""
    return {f"{name}_sessions": found.differing.strip()} if found is not None and found.apart else {}


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
    """`measure` of the chosen rows, one value per round, indexed by session and round; rounds without one are left out,
    and where there are quiet ones those that others disturbed. Of cells that train until they have learnt the index
    holds the seed in place of the round.

    Raises AnalysisError if a round holds several such rows: the conditions then mix unlike cells.
    """
    return _calm(_all_rounds(records, conditions, measure), records)


def _calm(values: pd.Series, records: pd.DataFrame) -> pd.Series:
    """Without the rounds that others disturbed, as long as others are left. Nobody changes what a seed gives."""
    if values.name == "seed" or not (marked := contended(records)).any():
        return values
    disturbed = records["round"].to_numpy()[marked]
    calm = values[~values.index.get_level_values("round").isin(disturbed)]
    return calm if len(calm) else values


def _all_rounds(records: pd.DataFrame, conditions: Conditions, measure: str) -> pd.Series:
    """As `per_round`, disturbed rounds included; its name is what pairs it: `round` or `seed`."""
    fits = _fit(records, conditions, "ok")
    key = _pairing({name: records[name].iloc[fits] for name in ("experiment", "source")})
    kept = fits[records[measure].iloc[fits].notna().to_numpy()]
    session, number = (records[name].to_numpy(dtype="int64")[kept] for name in (SESSION, key))
    if len(np.unique(number)) < len(number):
        rows = records.iloc[fits]
        names = [name for name in records.columns[: records.columns.get_loc("round")] if rows[name].nunique() > 1]
        names += ["variant"] if "variant" in rows and rows["variant"].nunique() > 1 else []
        raise AnalysisError(
            f"{dict(conditions)} holds several rows per {key}; they differ in {', '.join(names) or 'nothing'}: "
            "add a condition on that column, or remove the rows written twice"
        )
    if key == "seed":  # what is learnt does not depend on the day or the machine
        session = np.zeros_like(session)
    order = np.lexsort((number, session))
    index = pd.MultiIndex.from_arrays([session[order], number[order]], names=[SESSION, "round"])
    return pd.Series(records[measure].iloc[kept[order]].to_numpy(dtype=float), index, name=key)


def _pairing(rows: Mapping[str, pd.Series]) -> str:
    """What pairs the rows of two cells: the round in which both stood back to back; the seed, where they learn."""
    return "seed" if len(rows["source"]) and repeated_by_seed(rows).all() else "round"


def paired_ratios(records: pd.DataFrame, numerator: Conditions, denominator: Conditions, measure: str) -> pd.Series:
    """measure(numerator) / measure(denominator) per round, indexed as `per_round`, without rounds that lack one half.

    Raises AnalysisError if no round holds both.
    """
    above, below = _all_rounds(records, numerator, measure), _all_rounds(records, denominator, measure)
    ratios = _calm((above / below).dropna().rename(above.name), records)
    if ratios.empty:
        raise AnalysisError(
            f"no round holds {measure} of both {_words(numerator)} ({len(above)} rounds) and {_words(denominator)} "
            f"({len(below)} rounds): measure them in one run"
        )
    return ratios


def _words(conditions: Conditions) -> str:
    """A cell as a reader would name it: `SimpleBig threads cpu table1, workers 2`."""
    texts = [value for value in conditions.values() if isinstance(value, str)]
    numbers = [f"{name} {value}" for name, value in conditions.items() if not isinstance(value, str)]
    return ", ".join([" ".join(texts), *numbers] if texts else numbers)


def ratio_with_interval(
    records: pd.DataFrame, numerator: Conditions, denominator: Conditions, measure: str
) -> Estimate:
    """Geometric mean and 95 % interval of `paired_ratios`."""
    return interval_of(paired_ratios(records, numerator, denominator, measure))


def ratio_or_reason(
    records: pd.DataFrame, numerator: Conditions, denominator: Conditions, measure: str
) -> tuple[Estimate | None, str]:
    """`ratio_with_interval`, and where no round holds both sides, None and the reason."""
    try:
        return ratio_with_interval(records, numerator, denominator, measure), ""
    except AnalysisError as error:
        return None, str(error)


def ratio_by_way_of(
    records: pd.DataFrame, sides: tuple[Conditions, Conditions], third: Conditions, measure: str, always: bool
) -> Estimate | None:
    """The ratio of two cells in rounds that hold both; where these are too few for an interval (or `always`), the
    quotient of their ratios to a third cell. None where neither was measured."""
    pairs = (sides, (sides[0], third), (sides[1], third))
    direct, above, below = (ratio_or_reason(records, *pair, measure)[0] for pair in pairs)
    if above is None or below is None or (not always and direct is not None and direct.rounds >= MIN_ROUNDS):
        return direct
    detour = above.over(below)
    return direct if direct is not None and detour.open and not always else detour


def highest_ratio(
    records: pd.DataFrame, numerators: Sequence[Conditions], denominator: Conditions, measure: str
) -> tuple[Estimate, int]:
    """The highest of several cells' ratios over one, and the place in `numerators` of the one with the largest mean.

    All are chosen and judged on the same rounds, for which the interval pays (`lockstep.analysis.confidence.highest`).
    Cells without a round beside the denominator are left out; raises AnalysisError if all are.
    """
    below, found = _all_rounds(records, denominator, measure), {}
    for place, numerator in enumerate(numerators):
        above = _all_rounds(records, numerator, measure)
        ratios = _calm((above / below).dropna().rename(above.name), records)
        if len(ratios):
            found[place] = interval_of(ratios)
    if not found:
        names = " or ".join(_words(numerator) for numerator in numerators) or "any cell"
        base = _words(denominator)
        raise AnalysisError(f"no round holds {measure} of {names} and of {base}: measure them in one run")
    return highest(list(found.values())), max(found, key=lambda place: found[place].value)


def each_strategy(records: pd.DataFrame, conditions: Conditions) -> list[dict[str, Any]]:
    """`conditions` for each strategy alone that has ok rows, in the order of the records."""
    return [{**conditions, "strategy": str(name)} for name in dict.fromkeys(select(records, conditions)["strategy"])]


def amdahl(workers: float, serial: float) -> float:
    """Amdahl's speedup, 1 / (serial + (1 - serial) / workers); serial = 0 is the ideal, `workers`."""
    return 1.0 / (serial + (1.0 - serial) / workers)


def amdahl_fit(workers: Sequence[float], speedups: Sequence[float]) -> float:
    """The serial fraction s in [0, 1] of 1/S = s + (1 - s)/p, by least squares on y = s x.

    x = 1 - 1/p and y = 1/S - 1/p, so s = sum(x y) / sum(x x). Raises AnalysisError without a p above 1.
    """
    inverse = 1.0 / np.asarray(workers, dtype=float)
    x, y = 1.0 - inverse, 1.0 / np.asarray(speedups, dtype=float) - inverse
    if not np.any(x > 0):
        raise AnalysisError(f"workers={list(workers)}: Amdahl's law needs a point with more than one worker")
    return float(np.clip((x * y).sum() / (x * x).sum(), 0.0, 1.0))


def is_difference(ratio: Estimate, noise: float = 0.0) -> bool:
    """Whether a ratio may be called a difference from 1: its whole interval lies beyond what two runs of one and the
    same cell differ by (`lockstep.analysis.noise`)."""
    return ratio.rounds >= MIN_ROUNDS and (ratio.low > math.exp(noise) or ratio.high < math.exp(-noise))


def roughness(trace: pd.DataFrame, column: str) -> float:
    """How unsteady a trace is: mean |change from sample to sample| / mean, dimensionless. NaN for under 3 samples.

    The first sample is the start-up ramp's and is left out.
    """
    values = trace.sort_values("seconds")[column].astype(float).to_numpy()[1:]
    if len(values) < 2 or not values.mean():
        return float("nan")
    return float(np.abs(np.diff(values)).mean() / values.mean())

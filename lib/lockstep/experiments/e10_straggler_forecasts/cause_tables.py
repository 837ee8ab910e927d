"""Tables of what makes workers slow: input that comes slowly, gradients that vanish, images that must be decoded."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.seeds import mean_columns
from lockstep.analysis.statistics import interval_of, mean_of
from lockstep.analysis.stored import Stored, once
from lockstep.engine.forecasts.scores import peers_median

DENORMAL = -38
"""The first of the powers of ten below which float32 has denormal numbers alone."""


def timed(stored: Stored, name: str) -> pd.DataFrame:
    """A traced table of what was measured, without the rounds that others disturbed if there are any others."""
    quiet = stored.quiet.table(name)
    return quiet if len(quiet) else stored.table(name)


def loading_ratio(stored: Stored, above: str, under: str, delays: str) -> pd.Series:
    """The ratio of two columns of `slow_loading`, by seed. Raises AnalysisError where there is none."""
    table = stored.table("slow_loading")
    own = table[table["delays"] == delays] if len(table) else table
    if own.empty:
        raise AnalysisError(f"{delays} was not simulated")
    return (own[above] / own[under]).set_axis(own["seed"]).dropna()


@once
def slow_loading_table(stored: Stored) -> pd.DataFrame:
    """A row for each part of the work that is input: input_share, slow_share (of tasks that loaded slowly),
    stragglers_of_slow and stragglers_of_others (means over seeds), worker_slowdown and step_slowdown (over the same
    work without delays) and waiting (their ratio: what all lose beyond the slow worker's own time), with intervals."""
    table, rows = stored.table("slow_loading"), []
    for delays, own in table.groupby("delays", sort=False) if len(table) else ():
        row = {"delays": delays} | {name: float(own[name].mean()) for name in _LOADING}
        worker, step = (own[f"{name}_seconds"] / own[f"usual_{name}_seconds"] for name in ("worker", "step"))
        for name, values in (("worker_slowdown", worker), ("step_slowdown", step), ("waiting", step / worker)):
            row |= mean_columns(interval_of(values.set_axis(own["seed"])), name)
        rows.append(row)
    return pd.DataFrame(rows)


_LOADING = ("slow_share", "stragglers_of_slow", "stragglers_of_others")


def waiting(stored: Stored, delays: str) -> Estimate:
    """How much more a step is slowed down than its mean worker. Raises AnalysisError where nothing was simulated."""
    step = loading_ratio(stored, "step_seconds", "usual_step_seconds", delays)
    return interval_of(step / loading_ratio(stored, "worker_seconds", "usual_worker_seconds", delays))


def stragglers_of_slow(stored: Stored, delays: str) -> Estimate:
    """The share of stragglers among tasks that loaded slowly. Raises AnalysisError where nothing was simulated."""
    table = stored.table("slow_loading")
    own = table[table["delays"] == delays] if len(table) else table
    known = own.dropna(subset="stragglers_of_slow") if len(own) else own
    if not len(known):
        raise AnalysisError(f"{delays} was not simulated")
    return mean_of(known.set_index("seed")["stragglers_of_slow"])


@once
def denormals_table(stored: Stored) -> pd.DataFrame:
    """A row per size of gradients, flushed or not: exponent, flushed, milliseconds (median), slowdown over gradients of
    ordinary size in the same round, with its interval."""
    table, rows = timed(stored, "denormals"), []
    for (exponent, flushed), own in table.groupby(["exponent", "flushed"], sort=False) if len(table) else ():
        row: dict[str, Any] = {"exponent": int(exponent), "flushed": bool(flushed)}
        row["milliseconds"] = 1e3 * float(own["seconds"].median())
        slowdown = _slowdown(stored, table, int(exponent), int(flushed))
        rows.append(row | mean_columns(interval_of(slowdown) if len(slowdown) else None, "slowdown"))
    return pd.DataFrame(rows)


def _slowdown(stored: Stored, table: pd.DataFrame, exponent: int, flushed: int) -> pd.Series:
    own = table[table["flushed"] == flushed].drop_duplicates(["round", "exponent"])
    seconds = own.pivot_table(index="round", columns="exponent", values="seconds")
    if not {0, exponent} <= set(seconds.columns):
        return pd.Series(dtype=float)
    ratios = (seconds[exponent] / seconds[0]).dropna()
    return stored.by_round(ratios.reset_index(), ratios)


def slowdown_values(stored: Stored, exponent: int, flushed: bool) -> pd.Series:
    """How many times as long a backward pass takes as with gradients of usual size, by session and round."""
    table = timed(stored, "denormals")
    return _slowdown(stored, table, exponent, int(flushed)) if len(table) else pd.Series(dtype=float)


def slowdown(stored: Stored, exponent: int, flushed: bool) -> Estimate:
    """The same as one estimate. Raises AnalysisError for none."""
    found = slowdown_values(stored, exponent, flushed)
    if not len(found):
        raise AnalysisError("no backward pass was timed")
    return interval_of(found)


@once
def network_rounds(stored: Stored) -> pd.DataFrame:
    """A row per name, depth and round: first_gradient, last_gradient, passed_on (first over last; medians over
    workers), denormal_share, slowdown (not flushed over flushed) and behind (the slowest worker over the median of its
    peers, not flushed)."""
    table, rows = timed(stored, "gradients"), []
    for keys, own in table.groupby(["name", "depth", "round"], sort=False) if len(table) else ():
        seconds = own["seconds"].to_numpy()[None]
        row = dict(zip(("name", "depth", "round"), keys, strict=True))
        row |= {name: float(own[name].median()) for name in ("first_gradient", "last_gradient")}
        row["passed_on"] = float((own["first_gradient"] / own["last_gradient"]).median())
        row["denormal_share"] = float(own["denormal_share"].mean())
        row["slowdown"] = float(own["seconds"].sum() / own["flushed_seconds"].sum())
        rows.append(row | {"behind": float((seconds / peers_median(seconds)).max())})
    return pd.DataFrame(rows)


def of_network(stored: Stored, column: str, network: str, depth: int) -> pd.Series:
    """A column of `network_rounds`, by session and round. Raises AnalysisError where that network was not timed."""
    table = network_rounds(stored)
    own = table[(table["name"] == network) & (table["depth"] == depth)] if len(table) else table
    if own.empty:
        raise AnalysisError(f"no network {network} of depth {depth} was timed")
    return stored.by_round(own, own[column])


@once
def gradients_table(stored: Stored) -> pd.DataFrame:
    """A row per network and depth: medians over rounds of `network_rounds`, slowdown and behind with intervals."""
    table, rows = network_rounds(stored), []
    for (network, depth), own in table.groupby(["name", "depth"], sort=False) if len(table) else ():
        row = {"name": network, "depth": int(depth)}
        row |= {name: float(f"{own[name].median():.3g}") for name in ("first_gradient", "passed_on", "denormal_share")}
        for name in ("slowdown", "behind"):
            found = mean_columns(interval_of(stored.by_round(own, own[name])), name)
            row |= {column: value if isinstance(value, str) else round(value, 3) for column, value in found.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def decoding_share(stored: Stored, use_case: str, way: str) -> pd.Series:
    """Decoding in per cent of the input's time, by session and round. Raises AnalysisError where it was not timed."""
    table = timed(stored, "input_parts")
    own = table[(table["use_case"] == use_case) & (table["way"] == way)] if len(table) else table
    if own.empty:
        raise AnalysisError(f"the input of {use_case} was not timed")
    parts = own.pivot_table(index="round", columns="part", values="milliseconds")
    share = 100 * parts["decode"] / parts.sum(axis=1)
    return stored.by_round(share.reset_index(), share)


@once
def input_parts_table(stored: Stored) -> pd.DataFrame:
    """A row per use case and way of decoding: megapixels, milliseconds of each part (medians), and decoding's share in
    per cent with its interval."""
    table, rows = timed(stored, "input_parts"), []
    for (use_case, way), own in table.groupby(["use_case", "way"], sort=False) if len(table) else ():
        parts = own.groupby("part", sort=False)["milliseconds"].median()
        row = {"use_case": use_case, "way": way, "megapixels": float(own["megapixels"].median()), **parts.to_dict()}
        rows.append(row | mean_columns(interval_of(decoding_share(stored, use_case, way)), "decoding_percent"))
    return pd.DataFrame(rows)

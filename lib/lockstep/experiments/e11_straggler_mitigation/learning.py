"""Time until a small network on X-rays has reached a loss: each policy at its own best share and learning rate.

Policies that leave work out, or never wait, make smaller and faster updates, which alone would look like mitigation
where the batch was too large. So every policy has the share of images and the learning rate with which it is fastest,
one for all kinds of delays: nobody knows beforehand which kind will come. They are chosen on seeds of one parity and
judged on the others, and the other way round, so that all seeds judge and none judges its own choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.confidence import Estimate, highest
from lockstep.analysis.seeds import mean_columns, percent_columns
from lockstep.analysis.statistics import AnalysisError, interval_of
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    DPRO_SHARES,
    DROP_ONE,
    LEARNERS,
    NEVER_WAIT,
    NEVER_WAITING,
    OURS,
    WAIT,
    WAYS,
)
from lockstep.experiments.e11_straggler_mitigation.rows import (
    NO_DELAYS,
    TIME_TO_LOSS,
    kind_name,
    kinds_of,
    mean_over_seeds,
    over_kinds,
    ratio_over_seeds,
    rows_of,
    wide,
)

_SETTING = ["per_worker_batch_size", "learning_rate"]


def runs_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of training with a column `time`: seconds until the loss was reached, infinite where it was not."""
    return rows.assign(time=rows["seconds_to_loss"].astype(float).fillna(np.inf))


def best_setting(runs: pd.DataFrame) -> tuple[float, float] | None:
    """The share and the learning rate with which the fewest of these runs missed the loss and, of those, the geometric
    mean of the times is least. Judged on the seeds and kinds that were run with every setting; None without any."""
    if runs.empty:
        return None
    table = runs.pivot(index=["delays", "seed"], columns=_SETTING, values="time").dropna()
    if table.empty:
        return None
    reached = table.where(np.isfinite(table))
    order = pd.DataFrame({"missed": reached.isna().sum(), "time": np.log(reached).mean().fillna(np.inf)})
    size, rate = order.sort_values(["missed", "time"], kind="stable").index[0]
    return float(size), float(rate)


def at_best(runs: pd.DataFrame, kinds: Sequence[str]) -> pd.DataFrame:
    """The runs of one policy under these kinds of delays, each with the setting that was best on the seeds of the other
    parity."""
    own = runs[runs["delays"].isin(kinds)]
    found = [own.iloc[:0]]
    for parity in (0, 1):
        judged = own["seed"] % 2 == parity
        if (best := best_setting(own[~judged])) is not None:
            fits = (own[_SETTING[0]] == best[0]) & (own[_SETTING[1]] == best[1])
            found.append(own[judged & fits])
    return pd.concat(found)


def with_undelayed(runs: pd.DataFrame, contender: str) -> pd.DataFrame:
    """A policy's runs at its best setting under delays, and its undelayed runs with the same."""
    own = runs[runs["contender"] == contender]
    delayed = at_best(own, kinds_of(own))
    chosen = delayed[["seed", *_SETTING]].drop_duplicates()
    return pd.concat([delayed, own[own["delays"] == NO_DELAYS].merge(chosen, on=["seed", *_SETTING])])


def undelayed_base(runs: pd.DataFrame) -> pd.DataFrame:
    """By seed, the runs of waiting for all without delays at its best setting, as far as they reached the loss."""
    base = at_best(runs[runs["contender"] == WAIT], [NO_DELAYS]).set_index("seed")
    return base[np.isfinite(base["time"])]


def best_beside_waiting(runs: pd.DataFrame, contenders: Iterable[str]) -> pd.DataFrame:
    """By policy and delays, each policy at its best setting: time to the loss over that of waiting for all without any
    delays (`times`) and under the same ones (`over_waiting`), and test accuracy there (%). `missed`: seeds without the
    loss."""
    base, table = undelayed_base(runs)["time"], []
    waiting = with_undelayed(runs, WAIT).set_index(["delays", "seed"])["time"]
    for contender in contenders:
        for delays, own in with_undelayed(runs, contender).groupby("delays", sort=False):
            time = own.set_index("seed")["time"]
            beside = own.set_index(["delays", "seed"])["time"]
            row: dict[str, Any] = {"contender": contender, "delays": delays}
            row |= mean_columns(ratio_over_seeds((time / base.reindex(time.index)).dropna()), "times")
            row |= mean_columns(ratio_over_seeds(beside / waiting.reindex(beside.index)), "over_waiting")
            row |= percent_columns(mean_over_seeds(own["accuracy"].astype(float)), "accuracy")
            table.append(row | {"seeds": len(own), "missed": int((~np.isfinite(time)).sum())})
    return pd.DataFrame(table)


@once
def at_their_best(stored: Stored) -> pd.DataFrame:
    """Runs of every policy at its best setting, with `ratio`, `samples_ratio` and `rate_ratio`: time, images, and
    seconds per image, over those of waiting for all without delays with the same seed at *its* best."""
    runs = runs_of(rows_of(stored, TIME_TO_LOSS))
    base = undelayed_base(runs)
    table = pd.concat([runs.iloc[:0], *(with_undelayed(runs, contender) for contender in LEARNERS)])
    ratio = table["time"] / table["seed"].map(base["time"])
    images = table["samples"] / table["seed"].map(base["samples"])
    return table.assign(ratio=ratio, samples_ratio=images, rate_ratio=ratio / images)


def ratios(stored: Stored, contender: str, column: str = "ratio") -> pd.DataFrame:
    """Seeds x kinds of delays; infinite where the loss was not reached."""
    table = at_their_best(stored)
    return wide(table[(table["contender"] == contender) & (table["delays"] != NO_DELAYS)], column, "delays")


def mixed(stored: Stored, contender: str, column: str = "ratio") -> pd.Series:
    """The geometric mean over all kinds of each seed."""
    table = ratios(stored, contender, column)
    wanted = kinds_of(rows_of(stored, TIME_TO_LOSS))
    return over_kinds(table[wanted]) if wanted and set(wanted) <= set(table) else pd.Series(dtype=float)


def mix(stored: Stored, contender: str) -> Estimate | None:
    """The mean over kinds and seeds; None where a loss was not reached."""
    return ratio_over_seeds(mixed(stored, contender))


def undelayed(stored: Stored, contender: str) -> Estimate | None:
    """What a policy costs where nothing is delayed: its time over that of waiting for all."""
    table = at_their_best(stored)
    own = table[(table["contender"] == contender) & (table["delays"] == NO_DELAYS)]
    return ratio_over_seeds(own.set_index("seed")["ratio"].dropna())


def over(stored: Stored, above: str, below: str, delays: str = "") -> Estimate:
    """Time to loss of one policy over another's, paired by seed: under one kind of delays, or the geometric mean over
    all. Raises AnalysisError where one of them did not reach the loss or was not run."""
    if delays:
        tables = [ratios(stored, name) for name in (above, below)]
        if any(delays not in table for table in tables):
            raise AnalysisError(f"{above} or {below} has no even and odd seed under {kind_name(delays)}")
        upper, lower = (table[delays] for table in tables)
    else:
        upper, lower = mixed(stored, above), mixed(stored, below)
    return paired(upper, lower, above if above == below else f"{above} or {below}")


class Missed(AnalysisError):
    """A loss was not reached with every seed, so that there is no ratio of the times to it."""


def paired(upper: pd.Series, lower: pd.Series, names: str) -> Estimate:
    """The ratio of two series by seed. Raises Missed where a loss was not reached, AnalysisError where no seed is
    shared."""
    both = (upper / lower).dropna()
    if both.empty:
        raise AnalysisError(f"{names} was not run under all kinds of delays with an even and an odd seed")
    if not (np.isfinite(upper[both.index]).all() and np.isfinite(lower[both.index]).all()):
        raise Missed(f"{names} did not reach the loss with every seed")
    return interval_of(both)


def over_the_best(stored: Stored, contender: str, rivals: Sequence[str], delays: str = "") -> Estimate:
    """A policy's time over the best of its rivals', with an interval that pays for the choice. Those that miss the loss
    are no rivals; raises AnalysisError where the policy itself misses it, or nobody is left."""
    over(stored, contender, contender, delays)
    found = []
    for rival in rivals:
        try:
            found.append(over(stored, contender, rival, delays))
        except AnalysisError:
            continue
    return highest(found)


@once
def times_by_kind(stored: Stored) -> pd.DataFrame:
    """Policies x kinds: geometric mean over seeds of the ratio to the undelayed; infinite where a seed missed the loss,
    NaN where nothing was run."""
    kinds = kinds_of(rows_of(stored, TIME_TO_LOSS))
    found = {}
    for contender in LEARNERS:
        table = ratios(stored, contender)
        means = {delays: np.log(table[delays].dropna()) for delays in kinds if delays in table}
        found[contender] = {delays: float(np.exp(each.mean())) for delays, each in means.items() if len(each)}
    return pd.DataFrame(found).T.reindex(columns=kinds).dropna(how="all")


SHOWN_BY_KIND = (WAIT, DROP_ONE, DPRO_SHARES, OURS, NEVER_WAIT)


@once
def intervals_by_kind(stored: Stored) -> pd.DataFrame:
    """A row per kind of delays and policy of SHOWN_BY_KIND, with its interval over seeds: time to the loss over that of
    waiting for all without delays (`times`), and over that of asynchronous training under the same (`over_async`)."""
    rows = []
    for delays in kinds_of(rows_of(stored, TIME_TO_LOSS)):
        for contender in SHOWN_BY_KIND:
            table = ratios(stored, contender)
            if delays not in table:
                continue
            row: dict[str, Any] = {"delays": delays, "kind": kind_name(delays), "contender": contender}
            row |= mean_columns(ratio_over_seeds(table[delays].dropna()), "times")
            try:
                row |= mean_columns(over(stored, contender, NEVER_WAIT, delays), "over_async")
            except AnalysisError:
                row |= mean_columns(None, "over_async")
            rows.append(row)
    return pd.DataFrame(rows)


@once
def regret_table(stored: Stored) -> pd.DataFrame:
    """Policies x kinds: by how much longer a policy takes than the best one of that kind; 0 is the best."""
    table = times_by_kind(stored)
    return table / table.min() - 1


@once
def time_table(stored: Stored) -> pd.DataFrame:
    """A row per policy: its time to the loss over that of waiting for all without delays, as the geometric mean over
    kinds (`mix`) and without delays; of the mix also images and seconds per image, whose product is the time; the
    largest regret; the settings that were chosen; the kinds, and how many of its runs, in which the loss was missed."""
    table, known = [], at_their_best(stored)
    regrets = regret_table(stored)
    for contender in LEARNERS:
        own = known[known["contender"] == contender]
        if own.empty:
            continue
        row: dict[str, Any] = {"contender": contender, "way": WAYS[contender]}
        row |= mean_columns(mix(stored, contender), "mix")
        row |= mean_columns(undelayed(stored, contender), "no_delays")
        for name in ("samples_ratio", "rate_ratio"):
            row |= {name: mean_columns(ratio_over_seeds(mixed(stored, contender, name)), name)[name]}
        row["largest_regret"] = float(regrets.loc[contender].max()) if contender in regrets.index else np.nan
        row |= {"accuracy": float(own["accuracy"].mean()), "settings": _settings(own)}
        missed = own[~np.isfinite(own["time"])].groupby("delays", sort=False).size()
        row["missed"] = ", ".join(f"{kind_name(str(delays))} ({count})" for delays, count in missed.items())
        table.append(row | {"seeds": int(own["seed"].nunique())})
    return pd.DataFrame(table)


def _settings(own: pd.DataFrame) -> str:
    chosen = own[_SETTING].drop_duplicates().sort_values(_SETTING).to_numpy(dtype=float)
    return " or ".join(f"{size:g} images at rate {rate:g}" for size, rate in chosen)


def synchronous() -> list[str]:
    """The policies that ours is compared with: all that wait, our own deadline left out."""
    return [name for name in LEARNERS if name not in (OURS, *NEVER_WAITING)]

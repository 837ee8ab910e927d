"""What notebook 07's figures of time show, in sentences computed from its records."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.sentences import briefly, counted, finding, listed, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import sessions_in
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e07_convlstm_batch_size.answer import CALLED, time_text
from lockstep.experiments.e07_convlstm_batch_size.tables import timed_frameworks, timed_prices, timed_ways
from lockstep.experiments.e07_convlstm_batch_size.tables.speed import framework_operator_table


def _ratio(row: dict[str, Any], name: str, what: str = "") -> str:
    """A ratio of a row with its interval, or with the rounds that it lacks."""
    rounds = int(row["rounds"])
    if rounds < MIN_ROUNDS:
        few = f"({counted(rounds, 'round')}, no interval yet)"
        return " ".join(part for part in (f"{row[name]:.3g} times", what, few) if part)
    ratio = Estimate(row[name], row["low"], row["high"], rounds)
    told = f"{times(ratio, what)}{sessions_in(row, name)}"
    if ratio.low <= 1 <= ratio.high:
        return f"{told} (no difference can be told)"
    return told if row["difference"] else f"{told} (not shown to exceed the noise of two equal runs)"


def _known(table: pd.DataFrame, name: str, what: str) -> pd.DataFrame:
    known = table[table[name].notna() & (table["rounds"] > 0)] if len(table) else table
    if known.empty:
        raise NotNow("", f"{what} was not timed")
    return known


@finding
def time(stored: Stored) -> str:
    """The way of several workers with the highest mean speedup, and what a larger batch saves."""
    table = _known(timed_ways(stored), "speedup", "a speedup")
    own = table[(table["framework"] == "torch") & (table["variant"] == "a") & (table["workers"] > 1)]
    parts = []
    for network, rows in own.groupby("network", sort=False):
        best = rows.loc[rows["speedup"].idxmax()].to_dict()
        speed = _ratio(best, "speedup", "as fast as one worker")
        parts.append(f"{CALLED[str(network)]}, {best['strategy'].replace('_', ' ')} with batch "
                     f"{best['global_batch_size']}, {speed}")  # fmt: skip
    fastest = sentence(f"the highest mean speedups are, for {'; for '.join(parts)}") if parts else ""
    return f"{fastest} {time_text(stored)}".strip()


@finding
def frameworks(stored: Stored) -> str:
    """TensorFlow's step over torch's, of each network and batch, first where they differ."""
    table = _known(timed_frameworks(stored), "ratio", "TensorFlow")
    rows = table[table["strategy"] == "sequential"].sort_values("global_batch_size", kind="stable")
    if rows.empty:
        raise NotNow("", "TensorFlow was not timed on one worker")
    known, unknown = "a sequential step of TensorFlow takes", "it is not known yet whether TensorFlow differs: it takes"
    cells: dict[str, list[str]] = {known: [], unknown: []}
    like_torch = "as long as torch's"
    for row in rows.sort_values("difference", ascending=False, kind="stable").to_dict("records"):
        cells[known if row["rounds"] >= MIN_ROUNDS else unknown].append(
            f"{_ratio(row, 'ratio', like_torch)} for {CALLED[row['network']]} at batch {row['global_batch_size']}"
        )
    return " ".join(sentence(f"{words} {'; '.join(own)}") for words, own in cells.items() if own)


@finding
def prices(stored: Stored) -> str:
    """The step with an LSTM, dropout or weight decay over the plain CNN's, of each batch."""
    rows = _known(timed_prices(stored), "ratio", "the price of an LSTM, dropout or weight decay")
    parts = [
        f"with {row['setting'] or 'an LSTM'} at batch {row['global_batch_size']}, {_ratio(row, 'ratio')}"
        for row in rows.sort_values("global_batch_size", kind="stable").to_dict("records")
    ]
    known = rows.loc[rows["rounds"] >= MIN_ROUNDS, "ratio"]
    ends = " to ".join(dict.fromkeys(f"{value:.3g}" for value in (known.min(), known.max())))
    whole = f"with an LSTM, dropout or weight decay a step takes {ends} times as long as the plain CNN's"
    return " ".join(map(sentence, [*([whole] if len(known) else []), briefly("; ".join(parts))]))


@finding
def operators(stored: Stored) -> str:
    """The share of convolution in each framework's step."""
    table = framework_operator_table(stored.records, stored.table("operators"))
    own = table[table["operators"] == "convolution"].dropna(subset="share") if len(table) else table
    if own.empty:
        raise NotNow("", "no step was profiled")
    called = {"torch": "torch", "tensorflow": "TensorFlow"}
    parts = [
        f"{100 * row['share']:.0f} % of what {called[row['framework']]}'s profiler sees "
        f"({counted(int(row['rounds']), 'profile')})"
        for row in own.to_dict("records")
    ]
    return sentence(f"convolutions take {listed(parts)}")

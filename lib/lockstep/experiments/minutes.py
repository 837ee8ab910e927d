"""What so many minutes of measuring give, from records alone: how many pairs of cells had an interval by then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lockstep.analysis.cells import CELL
from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.stored import read_stored
from lockstep.experiments.catalogue import catalogue
from lockstep.experiments.report import markdown_table
from lockstep.records import CONTENDED, repeated_by_seed

MINUTES = (10.0, 30.0, 240.0)
Pair = tuple[tuple[object, ...], ...]


def minutes_until_known(records: pd.DataFrame) -> tuple[dict[Pair, float], float]:
    """Each pair of cells that stood back to back -> after how many minutes of measuring it had as many quiet rounds of
    one session as an interval needs, infinite if it never had; and the minutes in all. Rounds that others disturbed
    count as time spent and as nothing else."""
    found: dict[Pair, float] = {}
    rounds: Counter[tuple[Pair, int]] = Counter()
    spent = 0.0
    timed = records[~repeated_by_seed(records)]
    for _, rows in timed.groupby("round", sort=True):
        spent += float(rows["measuring_seconds"].sum()) / 60
        if len(rows) != 2 or (rows["status"] != "ok").any():
            continue
        pair = tuple(sorted(rows[CELL].itertuples(index=False, name=None), key=repr))
        found.setdefault(pair, float("inf"))
        if not rows["reason"].astype(str).str.contains(CONTENDED).any():
            key = (pair, int(rows["session"].iloc[0]))
            rounds[key] += 1
            if rounds[key] == MIN_ROUNDS:
                found[pair] = min(found[pair], spent)
    return found, spent


def minutes_table(results_root: Path, minutes: Sequence[float] = MINUTES) -> str:
    """A row per notebook, as Markdown: the pairs of cells that were begun, and how many had an interval after so many
    minutes; empty where nobody has measured that long."""
    rows = []
    for notebook in catalogue():
        folder = Path(results_root) / notebook.name
        if not (folder / "records.csv").is_file():
            continue
        known, spent = minutes_until_known(read_stored(folder).records)
        if not known:
            continue
        row = {"Notebook": notebook.number, "Pairs begun": str(len(known))}
        for most in minutes:
            reached = sum(needed <= most for needed in known.values())
            row[f"{most:g} minutes"] = str(reached) if spent >= most else ""
        rows.append(row | {"All that is stored": f"{sum(n < float('inf') for n in known.values())} ({spent:.0f} min)"})
    return markdown_table(pd.DataFrame(rows)) if rows else "Nothing is stored yet.\n"

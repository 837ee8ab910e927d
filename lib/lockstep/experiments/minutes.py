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
from lockstep.records import repeated_by_seed
from lockstep.records.reading import contended

MINUTES = (10.0, 30.0, 240.0)
Pair = tuple[tuple[object, ...], ...]


def minutes_until_known(records: pd.DataFrame, traces: pd.DataFrame | None = None) -> tuple[dict[Pair, float], float]:
    """Each pair of cells that stood back to back -> after how many minutes of measuring it had as many quiet rounds as
    an interval needs, over all sessions as in the answers, infinite if it never had; and the minutes in all, of seeds
    and traces too. Rounds that others disturbed count as time spent and as nothing else; a round of the whole grid
    counts for all pairs whose cells it holds."""
    timed = records[~repeated_by_seed(records)]
    good = timed[timed["status"] == "ok"]
    held: dict[int, set[tuple[object, ...]]] = {}
    for number, cell in zip(good["round"], good[CELL].itertuples(index=False, name=None), strict=True):
        held.setdefault(number, set()).add(cell)
    pairs = {tuple(sorted(cells, key=repr)) for cells in held.values() if len(cells) == 2}
    disturbed = set(timed["round"][contended(timed)])
    rounds: Counter[Pair] = Counter()
    found: dict[Pair, float] = dict.fromkeys(sorted(pairs, key=repr), float("inf"))
    spent = 0.0
    both = [frame[["round", "measuring_seconds"]] for frame in (records, traces) if frame is not None and len(frame)]
    for number, seconds in pd.concat(both).groupby("round")["measuring_seconds"].sum().items():
        spent += float(seconds) / 60
        if number in disturbed:
            continue
        for pair in pairs if number in held else ():
            if held[number].issuperset(pair):
                rounds[pair] += 1
                if rounds[pair] == MIN_ROUNDS:
                    found[pair] = spent
    return found, spent


def minutes_table(results_root: Path, minutes: Sequence[float] = MINUTES) -> str:
    """A row per notebook, as Markdown: the pairs of cells that were begun, and how many had an interval after so many
    minutes; empty where nobody has measured that long."""
    rows = []
    for notebook in catalogue():
        folder = Path(results_root) / notebook.name
        if not (folder / "records.csv").is_file():
            continue
        stored = read_stored(folder)
        known, spent = minutes_until_known(stored.records, stored.traces)
        if not known:
            continue
        row = {"Notebook": notebook.number, "Pairs begun": str(len(known))}
        for most in minutes:
            reached = sum(needed <= most for needed in known.values())
            row[f"{most:g} minutes"] = str(reached) if spent >= most else ""
        rows.append(row | {"All that is stored": f"{sum(n < float('inf') for n in known.values())} ({spent:.0f} min)"})
    return markdown_table(pd.DataFrame(rows)) if rows else "Nothing is stored yet.\n"

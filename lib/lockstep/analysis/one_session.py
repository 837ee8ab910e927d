"""Seconds of one session: bars that stand beside each other must come from one machine, or they say what no machine
does.

A pooled median of a way that was measured on a slow machine most often stands beside one that was measured on a fast
one: their quotient is no speedup. Speedups are paired by round (`lockstep.analysis.statistics`); seconds are not.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lockstep.analysis.cells import CELL, cells
from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.sentences import counted, network_name, numbered, processor_name
from lockstep.analysis.statistics import BASELINE
from lockstep.analysis.stored import Stored, once
from lockstep.records.reading import contended

_LETTERS = 100
_UNITS: Mapping[str, str] = {
    "amx": " with AMX", "avx512_bf16": " with AVX-512 BF16", "none": " without bfloat16 units", "": " of other kinds"
}  # fmt: skip
SAME_SPEED = 1.3
"""Sessions of one machine were seen to differ by a fifth in the median of their cells, with what else ran on its host,
and machines that share a name by more than a third; the limit lies between."""
_Cells = list[tuple[dict[str, Any], pd.DataFrame]]


@dataclass(frozen=True)
class _Chosen:
    """Of one use case: the session, its rows, how many cells were measured in others only, and rounds per cell."""

    session: int
    rows: list[pd.DataFrame]
    elsewhere: int
    rounds: list[int]


def in_one_session(
    experiment: str,
    draw: Callable[[Stored, str], Figure],
    drawn: Callable[[_Cells], _Cells] = list,
    about: str = "",
    title: str = "Where a step's time goes",
) -> Callable[[Stored], Figure]:
    """The recipe of a figure of seconds: `draw` gets what `of_one_session` leaves, and the title with its text."""

    def recipe(stored: Stored) -> Figure:
        shown, note = of_one_session(stored, experiment, drawn, about)
        return draw(shown, f"{title}\n{note}".strip())

    return recipe


def table_of_one_session(
    experiment: str, table: Callable[[Stored], pd.DataFrame], drawn: Callable[[_Cells], _Cells] = list, about: str = ""
) -> Callable[[Stored], pd.DataFrame]:
    """A table of seconds of the session that its figure shows, whose remark says which that is."""

    def made(stored: Stored) -> pd.DataFrame:
        shown, note = of_one_session(stored, experiment, drawn, about)
        found = table(shown)
        found.attrs["remark"] = " ".join(note.splitlines()[:-1])  # the last line is about the figure
        return found

    return made


def by_processor(stored: Stored, of: pd.DataFrame, units: bool = False) -> dict[str, pd.DataFrame]:
    """All records of the sessions that the rows `of` are from, by processor, and by what multiplies bfloat16 there if
    `units`; and every profile."""
    kinds: dict[str, list[int]] = {}
    for number in map(int, sorted(of["session"].unique())):
        kind = stored.units.get(number, "")
        name = processor_name(stored.processors.get(number, "")) or "CPUs"
        kinds.setdefault(name + _UNITS.get(kind, f" with {kind}") * units, []).append(number)
    session, always = stored.records["session"], _everywhere(stored.records)
    return {name: stored.records[session.isin(numbers) | always] for name, numbers in kinds.items()}


def _everywhere(records: pd.DataFrame) -> pd.Series:
    """Which rows hold what is the same on every processor: the FLOP that an image takes."""
    return records["experiment"].isin(("profile", "flops"))


def remark_on_seconds(stored: Stored, table: pd.DataFrame | None = None) -> str:
    """What a reader must know of a figure, or of a table, with seconds of a step beside ratios, where several machines
    were measured; "" for other tables."""
    if table is not None:
        beside = "step_seconds" in table and not {"speedup", "ratio", "gain"}.isdisjoint(table)
        if not beside or "processor" in table:
            return ""
    if len(by_speed(stored)) < 2:
        return ""
    return "Seconds are medians over several processors: compare ratios, paired by round, not seconds."


def by_speed(stored: Stored) -> dict[str, pd.DataFrame]:
    """All records of each processor by its short name, and by its sessions, too, where they ran at several speeds:
    virtual machines that compute at different speeds report one name."""
    found = _at_one_speed(stored)
    names = short_names(dict.fromkeys(name for name, _ in found))
    return {names[name] + sessions: rows for (name, sessions), rows in found.items()}


@once
def _at_one_speed(stored: Stored) -> dict[tuple[str, str], pd.DataFrame]:
    """The records of `by_speed` by the processor's name with its units, and its sessions, or ""."""
    everywhere = _everywhere(stored.records)
    timed = _timed(stored.records) & ~everywhere
    found = {}
    for name, rows in by_processor(stored, stored.records[timed], units=True).items():
        groups = _of_one_speed(rows[timed[rows.index]])
        for group in groups:
            told = f" ({numbered('session', group)})" if len(groups) > 1 else ""
            found[name, told] = rows[rows["session"].isin(group) | everywhere[rows.index]]
    return found


def undisturbed_by_speed(stored: Stored, of: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """As `by_speed`, by names with units, of the kinds that the timed rows `of` are from, without those of them that
    others disturbed, where their cell has undisturbed ones."""
    calm = pd.Series(~contended(of), of.index)
    kept = of.index[calm | ~calm.groupby([of[name] for name in _varying(of)], dropna=False).transform("any")]
    lost = of.index.difference(kept)
    kinds = {name + told: rows for (name, told), rows in _at_one_speed(stored).items() if kept.isin(rows.index).any()}
    return {name: rows[~rows.index.isin(lost)] for name, rows in kinds.items()}


def _of_one_speed(timed: pd.DataFrame) -> list[list[int]]:
    """The sessions of one processor in groups whose cells take as long, in the median, as those of one session of the
    group, within SAME_SPEED; most rows first. A session that shares no cell with those of other groups can't be told
    apart from the first. Rounds that others disturbed tell nothing, but in a session that has no other."""
    disturbed = contended(timed)
    timed = timed[~disturbed | ~timed["session"].isin(timed.loc[~disturbed, "session"])]
    speeds = timed.groupby([*_varying(timed), "session"], dropna=False)["images_per_second"].median().unstack("session")
    ratios = pd.DataFrame({own: speeds.div(speeds[own], axis=0).median() for own in speeds})
    alike = (ratios < SAME_SPEED) & (ratios > 1 / SAME_SPEED)
    rows, left, groups = timed["session"].value_counts(), [int(own) for own in speeds], []
    while left:
        fitting = [[other for other in left if alike.loc[other, own]] for own in left]
        groups.append(max(fitting, key=lambda group: rows[group].sum()))
        left = [own for own in left if own not in groups[-1]]
    alone = [own for own in groups[1:] if ratios.drop(index=own)[own].isna().all(axis=None)]
    first = sorted(sum(alone, groups[0]))
    return [first, *(own for own in groups[1:] if own not in alone)]


def on_one_processor(stored: Stored) -> tuple[pd.DataFrame, str]:
    """The records of the processor, at one speed, with the most cells that have an interval, of equals the one with the
    most timed rows, and its name of `by_speed`; all records and "" where there is one alone. What is fitted to seconds
    of several is a model of none, and a cell of two rounds says nothing that holds."""
    kinds = by_speed(stored)
    if len(kinds) < 2:
        return stored.records, ""
    name = max(kinds, key=lambda each: _measured(kinds[each]))
    return kinds[name], name


def _measured(records: pd.DataFrame) -> tuple[int, int]:
    """How many cells have as many undisturbed rounds as an interval needs, and how many timed rows there are."""
    timed = records[_timed(records)]
    rounds = timed[~contended(timed)].groupby(_varying(timed), dropna=False)["round"].nunique()
    return int((rounds >= MIN_ROUNDS).sum()), len(timed)


def _varying(timed: pd.DataFrame) -> list[str]:
    """The columns that tell the cells of these rows apart."""
    return [name for name in CELL if timed[name].nunique(dropna=False) > 1] or CELL[:1]


def _timed(records: pd.DataFrame) -> pd.Series:
    return (records["status"] == "ok") & records["images_per_second"].notna()


def by_short_name(stored: Stored, of: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """As `by_processor` with units, by names that tell the units only where they must."""
    kinds = by_processor(stored, of, units=True)
    return {short: kinds[name] for name, short in short_names(kinds).items()}


def short_names(kinds: Iterable[str]) -> dict[str, str]:
    """Names of `by_processor` with units -> without them where no other processor has the same name."""
    plain = {name: re.split(" with| of other", name)[0] for name in kinds}
    return {name: short if list(plain.values()).count(short) == 1 else name for name, short in plain.items()}


def of_one_session(
    stored: Stored, experiment: str, drawn: Callable[[_Cells], _Cells] = list, about: str = ""
) -> tuple[Stored, str]:
    """What is stored with the rows of this experiment from one session for each use case: the one in which most of its
    cells were measured beside the baseline, of equals the one with the most rounds (a cell's count up to MIN_ROUNDS).
    What was measured nowhere stays. The text says which session that is and what is not shown; "" where there is only
    one. `drawn`: which cells the figure has; `about`: a strategy without which the figure would say nothing, so that a
    session must hold it where one does."""
    own = stored.of(experiment)
    if own.loc[own["status"] == "ok", "session"].nunique() < 2:
        return stored, ""
    found: dict[str, _Cells] = {}
    for cell, rows in drawn(cells(stored.records, experiment)):
        found.setdefault(str(cell["use_case"]), []).append((cell, rows))
    chosen = {name: _chosen(known, about) for name, known in found.items()}
    kept = stored.records["experiment"] != experiment
    for rows in (rows for each in chosen.values() for rows in each.rows):
        kept |= stored.records.index.isin(rows.index)
    return replace(stored, records=stored.records[kept]), _note(stored, chosen)


def _chosen(known: _Cells, about: str) -> _Chosen:
    counts = pd.DataFrame([rows.loc[rows["status"] == "ok", "session"].value_counts() for _, rows in known])
    counts = counts.fillna(0).astype(int).reset_index(drop=True)
    if counts.empty or not len(counts.columns):
        return _Chosen(-1, [rows for _, rows in known], 0, [])
    first = pd.Series([cell["variant"] == "a" for cell, _ in known])
    candidates = counts[first]
    for name in (BASELINE["strategy"], about):
        own = candidates[[cell["strategy"] == name for cell, _ in known if cell["variant"] == "a"]]
        candidates = candidates.loc[:, (own > 0).any()] if (own > 0).any(axis=None) else candidates
    ranked = pd.DataFrame({"cells": (candidates > 0).sum(), "rounds": candidates.clip(upper=MIN_ROUNDS).sum()})
    session = int(ranked.sort_index().sort_values(["cells", "rounds"], kind="stable").index[-1])
    there, anywhere = counts[session] > 0, counts.sum(axis=1) > 0
    rows = [
        rows[rows["session"] == session] if there[place] else rows
        for place, (_, rows) in enumerate(known)
        if there[place] or not anywhere[place]
    ]
    return _Chosen(session, rows, int((anywhere & ~there & first).sum()), counts.loc[there & first, session].tolist())


def _note(stored: Stored, chosen: dict[str, _Chosen]) -> str:
    """Which session, by its machine and day, of each use case where they differ; the figure's sentence is of all."""
    measured = {name: each for name, each in chosen.items() if each.rounds}
    sessions = {each.session for each in measured.values()}
    places = {number: stored.machines.get(number, f"session {number}") for number in sessions}
    if len(sessions) == 1:
        text = f"Rows of one session: {places[sessions.pop()]}"
    else:
        own = [f"{network_name(name)} on {places[each.session]}" for name, each in sorted(measured.items())]
        text = f"Rows of one session each: {'; '.join(own)}"
    rounds = [number for each in measured.values() for number in each.rounds]
    ends = dict.fromkeys((min(rounds), max(rounds)))
    many = f"{' to '.join(map(str, ends))} round{'' if max(rounds) == 1 else 's'} a row"
    missing = sum(each.elsewhere for each in measured.values())
    lacking = f"; {counted(missing, 'row')} measured in other sessions only: not shown" if missing else ""
    lines = textwrap.wrap(f"{text} ({many}{lacking}).", _LETTERS)
    return "\n".join([*lines, "The figure's sentence is about all sessions."])

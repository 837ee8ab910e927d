"""What makes workers slow, by processor where they differ: the mean over two machines is a number that neither has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import Estimate
from lockstep.analysis.sentences import listed, processor_name, times
from lockstep.analysis.statistics import by_session, interval_of
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e10_straggler_forecasts.cause_tables import (
    denormals_table,
    gradients_table,
    of_network,
    slowdown_values,
)

PROCESSOR = "processor"


def names(stored: Stored, sessions: Sequence[int]) -> dict[int, str]:
    """What sessions are called: their processor, Intel Xeon; with their number where two have the same one."""
    short = {session: processor_name(stored.processors.get(session, "")) for session in sessions}
    known = list(short.values())
    return {
        session: name if name and known.count(name) == 1 else f"{name} session {session}".strip()
        for session, name in short.items()
    }


Keyed = Mapping[tuple[Any, ...], pd.Series]
"""Ratios by round, under what they are of."""


def _rows(stored: Stored, keys: Sequence[str], ratios: Keyed, value: str) -> pd.DataFrame:
    """A row for each key, and for each processor where sessions differ under any key: `keys`, processor (or ""),
    `value`, low and high."""
    apart = any(interval_of(own).apart for own in ratios.values() if len(own))
    rows: list[dict[str, Any]] = []
    for key, own in ratios.items():
        alone = by_session(own) if apart else {}
        called = names(stored, list(alone))
        found = {called[session]: one for session, one in alone.items()} or {"": interval_of(own)}
        for processor, one in found.items():
            ends = dict(zip((value, "low", "high"), one.columns, strict=True))
            rows.append(dict(zip(keys, key, strict=True)) | {PROCESSOR: processor} | ends)
    return pd.DataFrame(rows, columns=[*keys, PROCESSOR, value, "low", "high"])


@once
def slowdowns_of_networks(stored: Stored) -> pd.DataFrame:
    """A row per network, depth and processor: name, depth, called, processor, slowdown, low, high."""
    return _called(_of_networks(stored, "slowdown"))


@once
def behind_of_networks(stored: Stored) -> pd.DataFrame:
    """The same of the slowest worker's time over its peers': name, depth, called, processor, behind, low, high."""
    return _called(_of_networks(stored, "behind"))


def _of_networks(stored: Stored, column: str) -> pd.DataFrame:
    known = gradients_table(stored)
    pairs: Iterable[tuple[str, int]] = zip(known["name"], known["depth"], strict=True) if len(known) else ()
    ratios = {(name, int(depth)): of_network(stored, column, name, int(depth)) for name, depth in pairs}
    return _rows(stored, ("name", "depth"), ratios, column)


def _called(table: pd.DataFrame) -> pd.DataFrame:
    said = [
        f"{depth} {name}s" if depth else str(name) for name, depth in zip(table["name"], table["depth"], strict=True)
    ]
    return table.assign(called=said)


@once
def slowdowns_of_sizes(stored: Stored) -> pd.DataFrame:
    """A row per size of gradients, flushed or not, and processor: exponent, flushed, processor, slowdown, low, high."""
    known = denormals_table(stored)
    pairs = zip(known["exponent"], known["flushed"], strict=True) if len(known) else ()
    ratios = {(int(size), bool(flushed)): slowdown_values(stored, int(size), bool(flushed)) for size, flushed in pairs}
    told = {key: own for key, own in ratios.items() if len(own)}
    return pd.concat([
        _rows(stored, ("exponent", "flushed"), {key: own for key, own in told.items() if key[1] == flushed}, "slowdown")
        for flushed in (False, True)
    ], ignore_index=True)  # fmt: skip


def longer(stored: Stored, ratio: Estimate) -> str:
    """How many times as long something takes, and on which processor where they differ."""
    if not ratio.apart:
        return times(ratio, "as long")
    called = names(stored, [session for session, _ in ratio.apart])
    (first, one), *others = ratio.apart
    more = [f"{own.value:.3g} times {own.interval} on {called[session]}" for session, own in others]
    return ", ".join([f"{one.value:.3g} times as long {one.interval} on {called[first]}", *more])


def slow_from(stored: Stored, factor: float) -> str:
    """From which depth on a network takes for certain over `factor` times as long, by processor where they differ."""
    parts = []
    for processor, own in slowdowns_of_networks(stored).groupby(PROCESSOR, sort=False):
        slow = own[own["low"] > factor].sort_values("depth")
        if slow.empty:
            parts.append(f"on {processor} never" if processor else "in none of the networks timed")
            continue
        on = f"on {processor} " if processor else ""
        first, most = slow.iloc[0], slow.loc[slow["slowdown"].idxmax()]
        tail = first["depth"] > 0 and len(slow) == (own["depth"] >= first["depth"]).sum()
        at = f"from {first['called']} on" if tail else f"with {listed(slow['called'])}"
        there = f"{first['slowdown']:.3g} times [{first['low']:.3g}, {first['high']:.3g}]"
        peak = (
            f"; {most['slowdown']:.3g} at {most['depth'] or most['name']}" if most["called"] != first["called"] else ""
        )
        parts.append(f"{on}{at} ({there}{peak})")
    return ", ".join(parts)

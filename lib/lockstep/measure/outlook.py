"""What a plan of measuring promises, in words: what is settled, what it would take, and what can't be done now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from lockstep.measure.planning import Progress


def fewest_minutes(states: Iterable[Progress]) -> float:
    """What the shortest round takes, or should take; 0 where nothing tells it of one of them."""
    known = [state.round_seconds for state in states if state.open]
    return min(known) / 60 if known and not any(math.isnan(each) for each in known) else 0.0


def outlook(states: Sequence[Progress]) -> str:
    """One line: how many comparisons are settled, how many minutes the others would take, and what is hopeless."""
    settled = sum(state.settled for state in states)
    parts = [f"{settled} of {len(states)} comparisons settled{_by_kind(states)}"]
    left = [state.seconds_left() for state in states if state.open and state.seconds]
    if left:
        parts.append(f"about {math.ceil(sum(left) / 60)} more minutes for those that were measured")
    if disturbed := sum(state.disturbed for state in states):
        parts.append(f"{disturbed} given up, since others used the machine in every round")
    if failed := sum(state.given_up and not state.settled for state in states):
        parts.append(f"{failed} given up, since their cells failed")
    if hopeless := sum(state.hopeless for state in states):
        parts.append(f"{hopeless} would take more than a day each and are only looked at again now and then")
    return ", ".join(parts)


def _by_kind(states: Sequence[Progress]) -> str:
    """In parentheses, how many of each kind, where there are several: (2 of 34 pairs, 5 of 52 cells with seeds)."""
    kinds: dict[str, list[bool]] = {}
    for state in states:
        own = state.comparison
        alone = "cells with seeds" if own.rounds else "cells alone"
        kinds.setdefault("traces" if own.trace else "pairs" if len(own.cells) > 1 else alone, []).append(state.settled)
    found = ", ".join(f"{sum(settled)} of {len(settled)} {kind}" for kind, settled in kinds.items())
    return f" ({found})" if len(kinds) > 1 else ""


def not_begun(states: Sequence[Progress], seconds: float) -> str:
    """One line on the comparisons whose first round does not fit into the `seconds` that are left; empty for none."""
    waiting = [state.first_seconds for state in states if state.open and not state.seconds and not state.fits(seconds)]
    known = [each for each in waiting if not math.isnan(each)]
    if not waiting:
        return ""
    text = f"{len(waiting)} were not begun, with {max(0.0, seconds) / 60:.1f} minutes left"
    return f"{text}: a first round should take {min(known) / 60:.1f} minutes or more" if known else text

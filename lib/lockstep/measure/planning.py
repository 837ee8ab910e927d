"""Which comparison to measure next, so that the minutes there are decide as much as they can. Pure: no clock, no cell.

    comparison    two cells that stand back to back in a round, A B B A: what drifts evenly cancels
    settled       its interval is as narrow as asked for: no more time goes there
    hopeless      at the least noise that its rounds allow it would take more than a day: said at once, and only looked
                  at again now and then, for its first rounds may have been bad ones
    trace         a cell that trains for a minute while its CPU, memory and threads are sampled: a quarter of the time

Of those that can be settled in the time left, headlines come first, and with them the pairs of equal cells, without
whose noise no difference is one; then what has no interval yet, then the quickest; the same comparison is not measured
twice on end where another one of its kind waits, so that a disturbance of some seconds does not fall on one alone. As
long as others use the machine, what learns or is simulated comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pandas as pd

from lockstep.analysis.anytime import AMONG_MANY, MIN_ROUNDS, half_width, rounds_needed
from lockstep.analysis.statistics import SESSION, over_sessions
from lockstep.analysis.tables import TRACE_SECONDS
from lockstep.engine.job import Job

HEADLINE_HALF_WIDTH, HALF_WIDTH = 0.05, 0.10
"""How narrow a ratio's interval is measured: ± 5 % for a notebook's headlines, ± 10 % for its other comparisons."""
SPEEDS = ("images_per_second", "flops_per_second", "bandwidth_bytes_per_second", "step_seconds", "launch_seconds")
"""What two cells are compared by: the first of these that both have."""
DAY_SECONDS = 86_400.0
TRACES = MIN_ROUNDS
"""How many traces of a cell are enough: each counts as a round."""
_SHARE_OF_TRACES = 0.25  # of the time that is spent
_SHARE_OF_HOPELESS = 0.10  # likewise
_SHARE_OF_OTHERS = 0.60  # of what is no headline, as long as any of it has no interval
_FAILURES_ALLOWED = 2
_DISTURBED_ALLOWED = 8  # rounds of a run of which none was quiet
_NOISIEST = 0.95  # the part of all samples that deviate less than the noisiest in twenty
_USUAL_DEVIATION = 0.05  # of a round's log ratio, until two rounds have shown it


@dataclass(frozen=True)
class Comparison:
    """Cells of a grid, by their places: two that are compared, one that is measured alone, or more that stand together.

    `rounds`: so many and no more, whatever the interval; of a cell that trains until it has learnt each is another
    seed. `trace`: its resources are sampled for a minute, from the start of loading. `once`: a round visits each cell
    once, since there are many.
    """

    cells: tuple[int, ...]
    headline: bool = False
    rounds: int = 0
    trace: bool = False
    once: bool = False

    @property
    def visits(self) -> tuple[int, ...]:
        """The cells of a round in the order of their measurements."""
        return self.cells if self.once or len(self.cells) == 1 else (*self.cells, *reversed(self.cells))

    @property
    def goal(self) -> float:
        return math.log1p(HEADLINE_HALF_WIDTH if self.headline else HALF_WIDTH)


Compare = Callable[[Sequence[Job]], Iterable[Comparison]]


@dataclass
class Progress:
    """What has been measured of a comparison: a log ratio and a duration for each round that counts."""

    comparison: Comparison
    logs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    disturbed_now: int = 0
    """Rounds in which others used the machine, in this run alone: the next one may find it quiet."""
    just_disturbed: bool = False
    """Others used it in the last round."""
    learns: bool = False
    """It trains until it has learnt, or is simulated: what others do does not change what it gives."""
    again: bool = False
    """Its cells are one and the same (A/A): what they lie apart is the noise that every difference is held against."""
    first_seconds: float = math.nan
    """What a round should take where none was measured, by its cells elsewhere or others alike; NaN: nothing tells."""
    sessions: list[int] = field(default_factory=list)
    """Of each of `logs`; empty: all of one."""
    _known: tuple[int, float] = field(default=(0, math.nan), init=False, repr=False)
    """The number of rounds, and their deviation."""

    @property
    def rounds(self) -> int:
        return len(self.logs)

    @property
    def deviation(self) -> float:
        """Of a round; where sessions differ, what makes the interval of so many rounds as wide as theirs is."""
        if self.rounds < 2:
            return _USUAL_DEVIATION
        if self._known[0] != self.rounds:
            self._known = self.rounds, _deviation(self.logs, self.sessions)
        return self._known[1]

    @property
    def round_seconds(self) -> float:
        """What a round takes, or what the first should take; NaN where nothing tells."""
        return float(np.median(self.seconds)) if self.seconds else self.first_seconds

    @property
    def rounds_left(self) -> float:
        """How many more rounds settle it, if they are as those before; 0: settled."""
        return self._rounds_left(self.deviation)

    def _rounds_left(self, deviation: float) -> float:
        """How many more, if a round's log ratio has this standard deviation."""
        if self.comparison.rounds or self.comparison.trace:
            return max(0, (self.comparison.rounds or TRACES) - self.rounds)
        goal = self.comparison.goal
        if half_width(self.deviation, self.rounds, AMONG_MANY) <= goal:
            return 0
        return max(1.0, rounds_needed(deviation, goal, AMONG_MANY) - self.rounds)

    def seconds_left(self, usual: float = 0.0) -> float:
        """How long settling it takes; `usual`: what a round takes where none was measured."""
        return self.rounds_left * (self.round_seconds if self.seconds else usual) if self.rounds_left else 0.0

    def seconds_until_known(self, usual: float = 0.0) -> float:
        """How long until it has an interval; once it has one as `seconds_left`. One with a number of rounds of its own
        has all of them if these are fewer, and once it has an interval each single round says more; 0: settled."""
        enough = min(self.comparison.rounds or MIN_ROUNDS, MIN_ROUNDS)
        if self.rounds >= enough and not self.comparison.rounds:
            return self.seconds_left(usual)
        lacking = max(enough - self.rounds, 0 if self.settled else 1)
        return lacking * (usual if math.isnan(self.round_seconds) else self.round_seconds)

    @property
    def settled(self) -> bool:
        return self.rounds_left == 0

    @property
    def undecided(self) -> bool:
        """Two cells whose interval is narrow enough and still holds 1, which a day of measuring would change."""
        own = self.comparison
        if self.again or own.rounds or own.trace or len(own.cells) != 2 or not self.settled:
            return False
        apart = abs(sum(self.logs) / self.rounds)
        more = rounds_needed(self.deviation, apart, AMONG_MANY) - self.rounds
        return 0 < more * self.round_seconds <= DAY_SECONDS

    @property
    def hopeless(self) -> bool:
        """Never settled in a day of measuring nothing else, even if what was seen is the noisiest in twenty.

        Judged anew from all rounds whenever it is asked: five bad ones say little, and more may say otherwise.
        """
        if self.comparison.trace or self.rounds < MIN_ROUNDS:
            return False
        least = self.deviation * _least_deviation(self.rounds)
        return self._rounds_left(least) * self.round_seconds > DAY_SECONDS

    @property
    def disturbed(self) -> bool:
        """Others used the machine in every round so far: there is no use in going on now."""
        return not self.rounds and self.disturbed_now >= _DISTURBED_ALLOWED

    @property
    def given_up(self) -> bool:
        """Its cells failed again and again."""
        return self.failures >= _FAILURES_ALLOWED

    @property
    def unsettled(self) -> bool:
        """It lacks rounds, and they can be measured."""
        return not (self.settled or self.disturbed or self.given_up)

    @property
    def open(self) -> bool:
        return (self.unsettled and not self.hopeless) or (self.undecided and not self.given_up)

    def fits(self, seconds: float) -> bool:
        """Whether a round can end in this time; if nothing tells how long it takes, as long as there is any."""
        return seconds > 0 and not self.round_seconds > seconds


def _deviation(logs: Sequence[float], sessions: Sequence[int]) -> float:
    own = list(sessions) if len(sessions) == len(logs) else [0] * len(logs)
    index = pd.MultiIndex.from_arrays([own, range(len(logs))], names=[SESSION, "round"])
    found = over_sessions(pd.Series(logs, index, dtype=float), logarithmic=False)
    return float(np.std(logs, ddof=1)) if math.isnan(found.deviation) else found.deviation


@lru_cache
def _least_deviation(rounds: int) -> float:
    """The true standard deviation over that of so many rounds, if these are the noisiest in twenty: of a normal sample
    (n - 1) s² / sigma² follows chi-squared with n - 1 degrees of freedom."""
    from scipy.special import chdtri  # heavy

    return math.sqrt((rounds - 1) / float(chdtri(rounds - 1, 1 - _NOISIEST)))


def choose(states: Sequence[Progress], seconds: float, last: int | None = None) -> int | None:
    """The place in `states` of the comparison to measure next in the `seconds` that are left; None if no round fits.

    `last`: the one measured just before. A round that takes longer than what is left is never begun, nor a first one
    that should; only where nothing like it was measured nobody knows.
    """
    fits = [index for index, state in enumerate(states) if state.open and state.fits(seconds)]
    if last is not None and states[last].just_disturbed and (learning := [at for at in fits if states[at].learns]):
        return min(learning, key=lambda index: _rank(states[index], seconds, 0.0))
    if due := _trace_due(states, fits, seconds) or _second_look_due(states, seconds):
        return min(due, key=lambda index: states[index].rounds)
    fits = [index for index in fits if not states[index].comparison.trace]
    if not fits:
        return None
    known = [state.round_seconds for state in states if state.seconds and not state.comparison.trace]
    usual = float(np.median(known)) if known else 0.0
    fits = _others_due(states, fits) or fits
    ranked = sorted(fits, key=lambda index: _rank(states[index], seconds, usual))
    first, *others = ranked
    alike = [
        index
        for index in others
        if _rank(states[index], seconds, usual)[:5] == _rank(states[first], seconds, usual)[:5]
    ]
    return alike[0] if first == last and alike else first


def _trace_due(states: Sequence[Progress], fits: Sequence[int], seconds: float) -> list[int]:
    """The traces among `fits` if it is their turn: they have had less than their share of the time that was spent, and
    one fits into what is left."""
    traces = [index for index in fits if states[index].comparison.trace]
    spent = sum(sum(state.seconds) for state in states)
    traced = sum(sum(state.seconds) for state in states if state.comparison.trace)
    turn = traced + TRACE_SECONDS <= _SHARE_OF_TRACES * spent or len(traces) == len(fits)
    return traces if turn and seconds > 2 * TRACE_SECONDS else []


def _others_due(states: Sequence[Progress], fits: Sequence[int]) -> list[int]:
    """Those among `fits` that have no interval, if each headline has one and what is no headline has had less than its
    share of the time: a headline may take all there is until it is narrow enough, and most claims are answered by the
    others."""
    timed = [state for state in states if not state.comparison.trace]
    spent = sum(sum(state.seconds) for state in timed)
    others = sum(sum(state.seconds) for state in timed if not state.comparison.headline)
    unknown = [index for index in fits if states[index].rounds < MIN_ROUNDS]
    if others >= _SHARE_OF_OTHERS * spent or any(states[index].comparison.headline for index in unknown):
        return []
    return unknown


def _second_look_due(states: Sequence[Progress], seconds: float) -> list[int]:
    """The hopeless ones of which a round fits into their share of the time that was spent."""
    hopeless = [index for index, state in enumerate(states) if state.unsettled and state.hopeless]
    spent = _SHARE_OF_HOPELESS * sum(sum(state.seconds) for state in states)
    looked = sum(sum(states[index].seconds[MIN_ROUNDS:]) for index in hopeless)
    return [
        index for index in hopeless if states[index].fits(seconds) and looked + states[index].round_seconds <= spent
    ]


def _rank(state: Progress, seconds: float, usual: float) -> tuple[bool, bool, bool, bool, int, float]:
    """The least comes first: not narrow yet, within reach, a headline or the noise it is held against, without an
    interval; of those with a number of rounds of their own, as seeds have it, the one with the fewest, so that no cell
    waits for all seeds of another; then the quickest.
    """
    left, known = state.seconds_until_known(usual), state.rounds >= MIN_ROUNDS
    done = state.rounds if state.comparison.rounds else 0
    first = state.comparison.headline or (state.again and not known)
    return state.settled, left > seconds, not first, known, done, left


def log_ratio(rows: Sequence[Mapping[str, object]]) -> float:
    """The logarithm of the first row's speed over the second's, of a single row that of its own; 0 where no speed was
    measured, as of a profile."""
    for name in SPEEDS:
        values = [row.get(name) for row in rows]
        if all(isinstance(value, int | float) and value > 0 for value in values):  # False for NaN as for None
            logs = [math.log(float(value)) for value in values]  # type: ignore[arg-type]
            return logs[0] - logs[1] if len(logs) > 1 else logs[0]
    return 0.0

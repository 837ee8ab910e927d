"""A published speedup beside ours: shared by every notebook whose paper prints a table of speedups.

A speedup over one core depends on the cores, which a paper may leave unsaid. Two things can be said all the same: how
many cores it takes at least (`implied_cores`), and how two speedups over the same base stand to each other, in which
base and cores cancel (`core_free_ratio`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from lockstep.analysis.anytime import AMONG_MANY, MISS, fewest_more, least_chance
from lockstep.analysis.published import PublishedError, read_table
from lockstep.analysis.rules import enough, graded, undecided, within
from lockstep.analysis.statistics import MIN_ROUNDS, Conditions, Estimate, highest_ratio, select
from lockstep.analysis.verdicts import (
    CONTRADICTED,
    DECIDED,
    MODEL,
    NEEDS_HARDWARE,
    SUPPORTED,
    TOLERANCE,
    UNDECIDED,
    Claim,
    Verdict,
)
from lockstep.engine.job.strategies import STRATEGIES


@dataclass(frozen=True)
class _Band:
    """What a ratio may be where another one is published, ± TOLERANCE: with certainty, and possibly."""

    inner: tuple[float, float]
    outer: tuple[float, float]


@dataclass(frozen=True)
class Expectation:
    """From a published ratio of two speedups to the ratio that it lets one expect here.

    `here`: (published ratio, our own speedup) -> expected ratio, which grows with both. `ours`: that speedup, where the
    reading needs one.
    """

    here: Callable[[float, float], float]
    ours: Estimate | None = None

    def band(self, published: float, miss: float, more: int) -> _Band:
        own = (math.nan,) * 2 if self.ours is None else self.ours.ends(miss, more)
        low, high = ([self.here(published * (1 + sign * TOLERANCE), each) for each in own] for sign in (-1, 1))
        return _Band((max(low), min(high)), (min(low), max(high)))

    def text(self, published: float) -> str:
        """What the published ratio ± TOLERANCE lets one expect: 2.28 to 2.78."""
        low, high = self.band(published, MISS / 2, 0).outer  # as judged, beside our own ratio
        return f"{low:.3g} to {high:.3g}"


def printed(
    use_case: str, row: str, device: str = "cpu", table: str = "table1", paper: str = "single-to-multi"
) -> float:
    """The speedup that a published table prints. Raises PublishedError for a cell that it does not have."""
    rows = read_table(paper, table)
    fits = (rows["use_case"] == use_case) & (rows["row"] == row) & (rows["device"] == device)
    values = rows.loc[fits, "speedup"].dropna()
    if len(values) != 1:
        raise PublishedError(f"{paper} {table} prints no speedup of {use_case}, {row}, {device}")
    return float(values.iloc[0])


def implied_cores(speedup: float) -> int:
    """The fewest cores that give this speedup over one core, for N cores give at most N times as much.

    What one core keeps in its caches can lift that a little; the bound leaves such effects out.
    """
    return max(1, math.ceil(speedup))


def same_on_any_cores() -> Expectation:
    """The reading in which both speedups lose the same share to every core more: their ratio is the same everywhere."""
    return Expectation(lambda published, _: published)


def serial_loss(above: float, ours: Estimate, cores: int) -> Expectation:
    """The reading in which what the slower strategy loses is serial, as behind a lock: it weighs the more, the more
    cores there are.

    `above` is the faster one's published speedup, `ours` the same strategy's on `cores` cores here, both over one core.
    With a lost share x of one core's time, 1 / slower = 1 / faster + x (1 - 1 / N) on N cores (Amdahl); the paper's N
    is taken as the fewest possible. Ours was measured, so the ratio that may be expected is an interval, too.
    """
    grown = (1 - 1 / cores) / (1 - 1 / max(2, implied_cores(above)))
    return Expectation(lambda published, own: 1 + own * (published - 1) / above * grown, ours)


def core_free_ratio(
    above: float, under: float, ratio: Estimate, text: str, readings: Mapping[str, Expectation] | None = None
) -> Verdict:
    """Whether two published speedups over the same base, `above` and `under`, stand to each other as ours do.

    `ratio` is ours, measured on equal cores and described by `text`. `readings` say by which assumption a ratio on the
    paper's cores is one on ours (a phrase -> a Expectation; without any: `same_on_any_cores`). Supported if the whole
    interval lies within TOLERANCE of the published ratio by every reading, contradicted if it lies outside by every
    reading and between them, undecided otherwise: then the answer depends on what the paper leaves unsaid. What a
    reading takes from our own measurements moves within its interval, and all intervals hold together.
    """
    enough(ratio.rounds)
    published, measured = above / under, f"{ratio} {text}".strip()
    used = readings or {"on any number of cores": same_on_any_cores()}
    expected = " or ".join(f"{reading.text(published)} {phrase}" for phrase, reading in used.items())
    why = f"the published {above:g} / {under:g} ± {TOLERANCE:.0%} lets one expect {expected}"
    bands = _Bands(published, ratio, tuple(used.values()))
    return graded(_against_bands(bands, measured), MODEL, why)


@dataclass(frozen=True)
class _Bands:
    """Our ratio beside what each reading lets one expect of it, ± TOLERANCE."""

    published: float
    ratio: Estimate
    readings: tuple[Expectation, ...]

    def answer(self, miss: float = MISS, more: int = 0) -> str:
        """Inside every band: supported; outside all of them and of what lies between them: contradicted. All intervals
        together miss with the chance `miss` (Bonferroni), if `more` rounds come that are as those before."""
        measured = sum(reading.ours is not None for reading in self.readings)
        low, high = self.ratio.ends(miss / (1 + measured), more)
        bands = [reading.band(self.published, miss / (1 + measured), more) for reading in self.readings]
        if max(band.inner[0] for band in bands) <= low and high <= min(band.inner[1] for band in bands):
            return SUPPORTED
        if high < min(band.outer[0] for band in bands) or low > max(band.outer[1] for band in bands):
            return CONTRADICTED
        return UNDECIDED

    def chance(self, answer: str) -> float:
        """The least chance to miss with which the answer is still this one."""
        return least_chance(lambda miss: self.answer(miss) == answer)

    def rounds_more(self) -> float:
        """How many more rounds would decide it among many claims; infinite if only what the paper leaves unsaid can."""
        differ = self.ratio.apart or any(reading.ours is not None and reading.ours.apart for reading in self.readings)
        return math.inf if differ else fewest_more(lambda more: self.answer(AMONG_MANY, more) in DECIDED)


def _against_bands(bands: _Bands, measured: str) -> Verdict:
    answer = bands.answer()
    if answer in DECIDED:
        where = "within" if answer == SUPPORTED else "outside"
        reason = f"the interval lies {where} what the paper lets one expect"
        return Verdict(answer, measured, reason, chance=bands.chance(answer), rounds_more=max(1.0, bands.rounds_more()))
    more = bands.rounds_more()
    if math.isinf(more):
        return undecided(measured, "what to expect depends on what the paper leaves unsaid", more)
    return undecided(measured, "the interval crosses an end of what the paper lets one expect", more)


def near(published: float, ratio: Estimate, cores: int | None, batch: int, base_batch: int) -> Verdict:
    measured = ""
    numbers: tuple[tuple[str, Estimate], ...] = ()  # an interval of too few rounds would look exact
    if ratio.rounds >= MIN_ROUNDS:
        measured = f"{ratio} at batch {batch} (base: {base_batch})" + (f" on {cores} cores" if cores else "")
        numbers = (("", ratio),)
    if cores is not None and published > cores:
        why = (
            f"{cores} cores can't give {published:g} times one core: it takes at least {implied_cores(published)}, and "
            "the paper does not state its cores"
        )
        return Verdict(NEEDS_HARDWARE, measured, why, numbers)
    return within(published, ratio, measured)


def beside(
    claim: Claim, records: pd.DataFrame, ours: Sequence[Conditions], base: Conditions, cores: int | None
) -> Verdict:
    """Judges a published speedup against the fastest of ours, with an interval that pays for the choice."""
    ratio, place = highest_ratio(records, ours, base, "images_per_second")
    rows, under = select(records, ours[place]), select(records, base)
    batches = (int(rows["global_batch_size"].iloc[0]), int(under["global_batch_size"].iloc[0]))
    found = near(float(claim["value"]), ratio, cores, *batches)
    chosen = f"the fastest of {len(ours)}: " if len(ours) > 1 else ""
    label = STRATEGIES[str(rows["strategy"].iloc[0])].label
    return replace(found, measured=f"{found.measured} ({chosen}{label})") if found.measured else found

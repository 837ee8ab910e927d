"""A published speedup beside ours: shared by every notebook whose paper prints a table of speedups.

A speedup over one core depends on the cores, which a paper may leave unsaid. Two things can be said all the same: how
many cores it takes at least (`implied_cores`), and how two speedups over the same base stand to each other, in which
base and cores cancel (`core_free_ratio`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lockstep.analysis.published import PublishedError, read_table
from lockstep.analysis.rules import enough, graded, undecided, within
from lockstep.analysis.statistics import MIN_ROUNDS, Conditions, Estimate, highest_ratio, select
from lockstep.analysis.verdicts import CONTRADICTED, MODEL, NEEDS_HARDWARE, SUPPORTED, TOLERANCE, Claim, Verdict
from lockstep.engine.job.strategies import STRATEGIES

Reading = Callable[[float], float]
"""From a published ratio of two speedups to the ratio that it lets one expect here."""


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


def same_on_any_cores(published: float) -> float:
    """The reading in which both speedups lose the same share to every core more: their ratio is the same everywhere."""
    return published


def serial_loss(above: float, ours: float, cores: int) -> Reading:
    """The reading in which what the slower strategy loses is serial, as behind a lock: it weighs the more, the more
    cores there are.

    `above` is the faster one's published speedup, `ours` the same strategy's on `cores` cores here, both over one core.
    With a lost share x of one core's time, 1 / slower = 1 / faster + x (1 - 1 / N) on N cores (Amdahl); the paper's N
    is taken as the fewest possible.
    """
    grown = (1 - 1 / cores) / (1 - 1 / max(2, implied_cores(above)))

    def here(published: float) -> float:
        return 1 + ours * (published - 1) / above * grown

    return here


def core_free_ratio(
    above: float,
    under: float,
    ratio: Estimate,
    text: str,
    readings: Mapping[str, Reading] | None = None,
) -> Verdict:
    """Whether two published speedups over the same base, `above` and `under`, stand to each other as ours do.

    `ratio` is ours, measured on equal cores and described by `text`. `readings` say by which assumption a ratio on the
    paper's cores is one on ours (a phrase -> a Reading; without any: `same_on_any_cores`). Supported if the whole
    interval lies within TOLERANCE of the published ratio by every reading, contradicted if it lies outside by every
    reading and between them, undecided otherwise: then the answer depends on what the paper leaves unsaid.
    """
    enough(ratio.rounds)
    published, measured = above / under, f"{ratio} {text}".strip()
    used = readings or {"on any number of cores": same_on_any_cores}
    bands = [sorted(reading(published * (1 + sign * TOLERANCE)) for sign in (-1, 1)) for reading in used.values()]
    expected = " or ".join(f"{reading(published):.3g} {phrase}" for phrase, reading in used.items())
    why = f"the published {above:g} / {under:g} lets one expect {expected}"
    return graded(_against_bands(ratio, measured, bands), MODEL, why)


def _against_bands(ratio: Estimate, measured: str, bands: list[list[float]]) -> Verdict:
    """Supported inside every band, contradicted outside all of them and of what lies between them."""
    inner = max(low for low, _ in bands), min(high for _, high in bands)
    outer = min(low for low, _ in bands), max(high for _, high in bands)
    if inner[0] <= ratio.low and ratio.high <= inner[1]:
        chance = max(ratio.chance(edge) for edge in inner)
        return Verdict(SUPPORTED, measured, f"the interval lies within ± {TOLERANCE:.0%} of it", chance=chance)
    if ratio.high < outer[0] or ratio.low > outer[1]:
        chance = ratio.chance(outer[0] if ratio.high < outer[0] else outer[1])
        return Verdict(CONTRADICTED, measured, f"the interval lies outside ± {TOLERANCE:.0%} of it", chance=chance)
    if inner[0] < ratio.value < inner[1]:
        more = max(ratio.rounds_until(edge) for edge in inner)
    elif outer[0] <= ratio.value <= outer[1]:  # only what the paper leaves unsaid could decide
        return undecided(measured, "what to expect depends on what the paper leaves unsaid", math.inf)
    else:
        more = ratio.rounds_until(outer[0] if ratio.value < outer[0] else outer[1])
    return undecided(measured, f"the interval crosses an end of ± {TOLERANCE:.0%} around it", more - ratio.rounds)


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

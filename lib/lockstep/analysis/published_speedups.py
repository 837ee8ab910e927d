"""A published speedup beside ours: shared by every notebook whose paper prints a table of speedups."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lockstep.analysis.statistics import MIN_ROUNDS, Conditions, Estimate, ratio_with_interval, select
from lockstep.analysis.verdicts import NEEDS_HARDWARE, Claim, Verdict, within
from lockstep.engine.job.strategies import STRATEGIES


def near(published: float, ratio: Estimate, cores: int | None, batch: int, base_batch: int) -> Verdict:
    measured = ""
    numbers: tuple[tuple[str, Estimate], ...] = ()  # an interval of too few rounds would look exact
    if ratio.rounds >= MIN_ROUNDS:
        measured = f"{ratio} at batch {batch} (base: {base_batch})" + (f" on {cores} cores" if cores else "")
        numbers = (("", ratio),)
    if cores is not None and published > cores:
        why = f"{cores} cores can't give {published:g} times one core; the paper does not state its cores"
        return Verdict(NEEDS_HARDWARE, measured, why, numbers)
    return within(published, ratio, measured)


def cores_of_ranks(rows: pd.DataFrame) -> int:
    """The most cores that a cell could use: one for each rank, servers included."""
    return int(((rows["workers"] + rows["servers"]) * rows["cores_per_worker"]).max())


def beside(
    claim: Claim, records: pd.DataFrame, ours: Conditions, base: Conditions, cores: int | None, chosen: str = ""
) -> Verdict:
    """Judges a published speedup against ours, which `text` names; `chosen` says how ours was chosen among others."""
    rows, under = select(records, ours), select(records, base)
    ratio = ratio_with_interval(records, ours, base, "images_per_second")
    batches = (int(rows["global_batch_size"].iloc[0]), int(under["global_batch_size"].iloc[0]))
    found = near(float(claim["value"]), ratio, cores, *batches)
    label = STRATEGIES[str(rows["strategy"].iloc[0])].label
    return replace(found, measured=f"{found.measured} ({chosen}{label})") if found.measured else found

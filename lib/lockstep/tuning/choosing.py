"""The settings of pruners are chosen on one half of a pool and reported on the other.

A pruner's own settings, such as the reduction factor, matter as much as its kind. Chosen and reported on the same
curves they would flatter every pruner, and most of all the one with most settings.

    pool -> half to choose on  -> every candidate text of a pruner, replayed -> the one chosen -+
         -> half to report on  -> the chosen text, replayed on other settings  <----------------+
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from lockstep.engine.options import JobError
from lockstep.tuning.pool import CurvePool, halves
from lockstep.tuning.pruners import pruner_text
from lockstep.tuning.replay import replays

LEAST_KEPT = 0.9
"""The share of studies that must keep the best setting for a candidate to be chosen by its compute."""
Replays = Callable[[CurvePool, str, int, int, Sequence[int]], pd.DataFrame]
"""As `lockstep.tuning.replay.replays`."""


def _grid(name: str, **values: Sequence[object]) -> tuple[str, ...]:
    """The texts of a pruner with every combination of some options' values."""
    texts = [""]
    for option, choices in values.items():
        texts = [f"{text},{option}={choice}" if text else f"{option}={choice}" for text in texts for choice in choices]
    return tuple(pruner_text(f"{name}:{text}" if text else name) for text in texts)


_RULE = {"p": (0.02, 0.05, 0.1, 0.2, 0.3), "least_epochs": (1, 2, 4)}
_HALVING_ON_FORECASTS = {"factor": (2, 4), "least_epochs": (1, 2, 4)}
CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "none": _grid("none"),
    "Median": _grid("median", startup=(2, 5), warmup=(0, 2, 4, 8)),
    "Percentile 25": _grid("percentile", percentile=(25,), startup=(2, 5), warmup=(0, 2, 4, 8)),
    "SuccessiveHalving 2": _grid("halving", factor=(2,), least_epochs=(1, 2, 4)),
    "SuccessiveHalving 4": _grid("halving", factor=(4,), least_epochs=(1, 2, 4)),
    "Hyperband": _grid("hyperband", factor=(2, 3, 4), least_epochs=(1, 2, 4)),
    "Patient(Median)": _grid("patient", patience=(1, 2, 4), warmup=(0, 4)),
    "LSTM": _grid("lstm", **_RULE),
    "halving on LSTM forecasts": _grid("forecast_halving", **_HALVING_ON_FORECASTS),
    "LSTM, not pre-trained": _grid("lstm", forecaster=("lstm_not_pretrained",), p=(0.05, 0.1, 0.2)),
    "LSTM, not recalibrated": _grid("lstm", forecaster=("lstm_not_recalibrated",), **_RULE),
    "gain rule": _grid("gain", **_RULE),
}
"""What is compared, and the texts among which each one's settings are chosen. The LSTM without pre-training has fewer:
its network is trained anew in every study (`lockstep.tuning.replay.trains_in_each_study`)."""


@dataclass(frozen=True)
class Choice:
    """The text chosen among a pruner's candidates, on the half that is for choosing.

    kept: its share of studies that kept the best, and share_of_epochs its mean compute, both on that half. reached:
    whether any candidate kept the best often enough. candidates: pruner, share_of_epochs, kept of each.
    """

    text: str
    share_of_epochs: float
    kept: float
    reached: bool
    candidates: pd.DataFrame


def choose_candidate(rows: pd.DataFrame, least_kept: float = LEAST_KEPT) -> Choice:
    """The candidate with the least compute among those that keep the best in at least `least_kept` of the studies.

    rows: of `replays` of all candidates on the same seeds. Of candidates with equal compute the one that keeps the best
    more often is chosen, then the one that stands first. Where none keeps it often enough, the one that keeps it most
    often, then the one with the least compute, is chosen, and `reached` is False. Raises JobError for no rows, and for
    candidates that were not replayed on the same seeds.
    """
    if rows.empty:
        raise JobError("no candidate was replayed: give at least one text and one seed")
    seeds = rows.groupby("pruner", sort=False)["seed"].agg(lambda of_one: tuple(sorted(of_one)))
    if seeds.nunique() > 1:
        raise JobError(f"the candidates {', '.join(seeds.index)} were replayed on different seeds: use one list")
    means = {"share_of_epochs": ("share_of_epochs", "mean"), "kept": ("kept_best", "mean")}
    found = rows.groupby("pruner", sort=False).agg(**means)
    fit = found[found["kept"] >= least_kept]
    reached = not fit.empty
    if reached:
        ranked = fit.sort_values(["share_of_epochs", "kept"], ascending=[True, False], kind="stable")
    else:
        ranked = found.sort_values(["kept", "share_of_epochs"], ascending=[False, True], kind="stable")
    best = ranked.iloc[0]
    return Choice(
        str(ranked.index[0]), float(best["share_of_epochs"]), float(best["kept"]), reached, found.reset_index()
    )


def choose_then_report(
    pool: CurvePool,
    candidates: Mapping[str, Sequence[str]],
    workers: int,
    trials_per_study: int,
    seeds: Iterable[int],
    half_seed: int = 0,
    replay: Replays = replays,
    choosing_seeds: Iterable[int] | None = None,
) -> tuple[dict[str, Choice], pd.DataFrame]:
    """Each pruner's choice on one half of the pool, and the replays of what was chosen on the other half.

    candidates: texts by the name of what is compared. The second is a table as `replays` gives, with that name as its
    first column, `compared`. `choosing_seeds`: of the orders to choose on, if other ones. Nothing of the reporting half
    is read before every choice is made. Raises JobError as `replays` and `choose_candidate` do, and where a half is too
    small for `trials_per_study`.
    """
    choosing, reporting = halves(pool, half_seed)
    orders = list(seeds)
    chosen_on = orders if choosing_seeds is None else list(choosing_seeds)
    if trials_per_study > len(choosing):
        raise JobError(
            f"trials_per_study={trials_per_study} is more than the {len(choosing)} settings of half of this pool of "
            f"{len(pool)}; give fewer trials, or train more settings"
        )

    def on(half: CurvePool, text: str, seeds: list[int]) -> pd.DataFrame:
        return replay(half, text, workers, trials_per_study, seeds)

    chosen = {
        name: choose_candidate(pd.concat([on(choosing, text, chosen_on) for text in texts], ignore_index=True))
        for name, texts in candidates.items()
    }
    reports = [on(reporting, choice.text, orders).assign(compared=name) for name, choice in chosen.items()]
    table = pd.concat(reports, ignore_index=True)
    return chosen, table[["compared", *table.columns.drop("compared")]]

"""The answer to the notebook's title: what the tuned network gains, and what finding it costs."""

from __future__ import annotations

from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError
from lockstep.analysis.sentences import estimate_in, finding, sentence, settle_each, times
from lockstep.analysis.stored import Stored
from lockstep.experiments.e09_autotuning.findings import MEDIAN, OURS, curves, gained, replayed, saves, whole_pool
from lockstep.experiments.e09_autotuning.tables import TUNED, ladder, speed_of_engines


@finding
def answer(stored: Stored) -> str:
    """What random search finds, and what the chosen network gains on test images over the plain CNN; what that costs,
    and what our pruner saves beside Optuna's Median."""
    whole_pool(stored)  # nothing is known without one
    parts = {"what it finds": _found, "what it costs": _costs, "what pruners save": _saved}
    return " ".join(settle_each(lambda name: parts[name](stored), parts))


def _found(stored: Stored) -> str:
    table = ladder(stored)
    own = table[table["step"] == TUNED].to_dict("records") if len(table) else []
    if not own:
        return f"{curves(stored)} No network that these images chose has been scored on test images yet."
    row = own[0]
    more = estimate_in(row | {"rounds": row["seeds"]}, "more", "more_low", "more_high")
    # Finalists are of the first settings of the pool, whose number is a parameter: the pool may have grown since.
    chosen = f"the network that held-out images chose among settings drawn at random {gained(more)} on test images"
    tested = f"{chosen}, beside the plain CNN of the paper's Table 2: {row['test']:.1f} % are classified correctly"
    return f"{curves(stored)} {sentence(tested)}"


def _costs(stored: Stored) -> str:
    took = f"training all settings took {whole_pool(stored).trials['cpu_seconds'].sum() / 3600:.2g} core-hours"
    try:
        faster = times(speed_of_engines(stored), "as fast as one")
        return sentence(f"{took}; several engines train one list of trials {faster}")
    except AnalysisError as error:
        return sentence(f"{took}; what several engines save in time is not known yet: {error}")


def _saved(stored: Stored) -> str:
    table = replayed(stored)
    ours_row, median = table.loc[OURS], table.loc[MEDIAN]
    ours = saves(ours_row, "a pruner whose LSTM forecasts learning curves")
    beside = saves(median, "the median rule, without a network,")
    decided = "" if ours_row["effective"] >= MIN_ROUNDS else "; that decides nothing about other pools"
    return sentence(f"on the curves of this pool {ours} of replayed studies, {beside}{decided}")

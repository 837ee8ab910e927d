"""The answer to the notebook's title: what the tuned network gains, and what finding it costs."""

from __future__ import annotations

from lockstep.analysis.confidence import MIN_ROUNDS
from lockstep.analysis.sentences import counted, estimate_in, finding, sentence, settle_each
from lockstep.analysis.stored import Stored
from lockstep.experiments.e09_autotuning.findings import MEDIAN, OURS, gained, replayed, saves, whole_pool
from lockstep.experiments.e09_autotuning.tables import TUNED, ladder


@finding
def answer(stored: Stored) -> str:
    """What tuning gains on test images over the plain CNN; what our pruner saves beside Optuna's Median."""
    pool = whole_pool(stored)
    parts = {"what it finds": lambda: _found(stored, len(pool.trials)), "what it costs": lambda: _costs(stored)}
    return " ".join(settle_each(lambda name: parts[name](), parts))


def _found(stored: Stored, settings: int) -> str:
    table = ladder(stored)
    own = table[table["step"] == TUNED].to_dict("records") if len(table) else []
    if not own:
        return sentence(
            f"of {counted(settings, 'setting')} the best are known by held-out images; the one that these choose has "
            "not been trained anew and scored on test images yet"
        )
    row = own[0]
    more = estimate_in(row | {"rounds": row["seeds"]}, "more", "more_low", "more_high")
    # Finalists are of the first settings of the pool, whose number is a parameter: the pool may have grown since.
    chosen = f"the network that held-out images chose among settings drawn at random {gained(more)} on test images"
    return sentence(f"{chosen}, beside the plain CNN of the paper's Table 2: {row['test']:.1f} % are right")


def _costs(stored: Stored) -> str:
    table = replayed(stored)
    ours_row, median = table.loc[OURS], table.loc[MEDIAN]
    ours = saves(ours_row, "a pruner whose LSTM forecasts learning curves")
    beside = saves(median, "the median rule, without a network,")
    decided = "" if ours_row["effective"] >= MIN_ROUNDS else "; of other pools that decides nothing"
    return sentence(f"on the curves of this pool {ours} of replayed studies, {beside}{decided}")

"""The answer to the notebook's title: what the tuned network gains, and what finding it costs."""

from __future__ import annotations

from lockstep.analysis.confidence import AnalysisError
from lockstep.analysis.sentences import estimate_in, finding, measure_of, sentence, settle_each
from lockstep.analysis.stored import Stored
from lockstep.experiments.e09_autotuning.findings import far_apart, faster_by_engines, gained, saved_beside, whole_pool
from lockstep.experiments.e09_autotuning.tables import TUNED, ladder


@finding
def answer(stored: Stored) -> str:
    """What random search finds, and what the chosen network gains on test images over the plain CNN; what that costs,
    and what our pruner saves beside Optuna's Median."""
    whole_pool(stored)  # nothing is known without one
    parts = {"what it finds": _found, "what it costs": _costs, "what pruners save": saved_beside}
    return " ".join(settle_each(lambda name: parts[name](stored), parts))


def _found(stored: Stored) -> str:
    table, apart = ladder(stored), far_apart(stored, accuracy=True)
    own = table[table["step"] == TUNED].to_dict("records") if len(table) else []
    if not own:
        unknown = "not known yet is whether tuning pays on test images"
        return f"{sentence(f'{unknown}: no network that held-out images chose was scored on them')} {apart}"
    row = own[0]
    row["rounds"] = min(table["seeds"].iloc[0], row["seeds"])
    more, test = (estimate_in(row, name, f"{name}_low", f"{name}_high") for name in ("more", "test"))
    # Finalists are of the first settings of the pool, whose number is a parameter: the pool may have grown since.
    chosen = f"the network that held-out images chose among settings drawn at random {gained(more)} on test images"
    tested = f"compared with the plain CNN of the paper's Table 2, {chosen}"
    tested += f"; the tuned one classifies {measure_of(test, '%')} correctly"
    return f"{sentence(tested)} {apart}"


def _costs(stored: Stored) -> str:
    took = f"training all settings took {whole_pool(stored).trials['cpu_seconds'].sum() / 3600:.2g} core-hours"
    try:
        return sentence(f"{took}; {faster_by_engines(stored)}")
    except AnalysisError as error:
        return sentence(f"{took}; what several engines save in time is not known yet: {error}")

"""What we ourselves aim at in notebook 09."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.analysis.confidence import AnalysisError, Estimate
from lockstep.analysis.statistics import mean_of
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_LEAST, AT_MOST, MISSING, Read, Reading, Target
from lockstep.analysis.verdicts import NOT_YET, NotNow
from lockstep.experiments.e09_autotuning.findings import EARLY, MEDIAN, OURS, replayed
from lockstep.experiments.e09_autotuning.grid import CHOSEN
from lockstep.experiments.e09_autotuning.tables import speed_of_engines


def _reading(find: Callable[[Stored], tuple[Estimate, str]]) -> Read:
    """What `find` finds, with a remark; in its place why there is no number."""

    def read(stored: Stored) -> Reading:
        try:
            found, remark = find(stored)
        except (AnalysisError, NotNow, KeyError) as error:
            return Reading(word=NOT_YET, reason=str(error) or MISSING)
        return Reading(found, reason=remark)

    return read


def _share(stored: Stored) -> tuple[Estimate, str]:
    row = replayed(stored).loc[OURS]
    found = Estimate(row["share_of_epochs"], row["share_low"], row["share_high"], int(row["effective"]), False)
    return found, f"studies of {int(row['trials'])} trials, {row['text']}"


def _kept(stored: Stored) -> tuple[Estimate, str]:
    row = replayed(stored).loc[OURS]
    found = Estimate(row["kept"], row["kept_low"], row["kept_high"], int(row["effective"]), False)
    return found, f"the orders amount to {row['effective']:.2g} studies"


def _beside_median(stored: Stored) -> tuple[Estimate, str]:
    row = replayed(stored).loc[OURS]
    names = ("share_of_epochs_more", "share_of_epochs_more_low", "share_of_epochs_more_high")
    more, low, high = (float(row[name]) for name in names)
    found = Estimate(more, low, high, int(row["effective"]), False)
    return found, f"and keeps the best {100 * row['kept_best_more']:+.0f} points more often than {MEDIAN}"


def _forecast(stored: Stored) -> tuple[Estimate, str]:
    table = stored.table("curve_forecasts")
    if table.empty:
        raise NotNow("", MISSING)
    row = table[(table["forecaster"] == "lstm") & (table["epoch"] == EARLY)].iloc[0]
    return Estimate(row["relative"], row["relative_low"], row["relative_high"], int(row["curves"])), ""


def _engines(stored: Stored) -> tuple[Estimate, str]:
    return speed_of_engines(stored), ""


def _test(stored: Stored) -> tuple[Estimate, str]:
    rows = stored.of(CHOSEN)
    rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise NotNow("", MISSING)
    return mean_of(100 * rows.set_index("seed")["test_accuracy"]), "chosen by held-out images alone"


TARGETS: tuple[Target, ...] = (
    Target("epochs that the LSTM pruner trains, of those without pruning", 0.5, _reading(_share), AT_MOST),
    Target("studies in which it keeps the best setting", 0.9, _reading(_kept), AT_LEAST),
    Target("its epochs minus the median rule's, of those without pruning", 0.0, _reading(_beside_median), AT_MOST),
    Target(f"error of the LSTM's forecast after {EARLY} epochs over best-so-far's", 0.5, _reading(_forecast), AT_MOST),
    Target("several engines over one, the same trials", 1.7, _reading(_engines), AT_LEAST),
    Target("test accuracy of the tuned network, %", 88.0, _reading(_test), AT_LEAST),
)

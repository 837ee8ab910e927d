"""What each figure of notebook 09 shows, in a sentence or two computed from what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import MIN_ROUNDS, Estimate
from lockstep.analysis.sentences import Finding, counted, estimate_in, finding, listed, measure_of, sentence, times
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e09_autotuning.drawings import FORECASTER_MARKS, HELD
from lockstep.experiments.e09_autotuning.grid import ENGINES, RUNGS
from lockstep.experiments.e09_autotuning.stored_pool import StoredPool, pool_in
from lockstep.experiments.e09_autotuning.tables import TUNED, compared, ladder, speed_of_engines

OURS, ON_FORECASTS, MEDIAN, HALVING = "LSTM", "halving on LSTM forecasts", "Median", "SuccessiveHalving 4"
EARLY = 2
"""Epochs seen, where a forecast would save most."""
SHOWN_IMPORTANCES = 3
ON_HALF = "on one half of this pool's curves, with options chosen on the other"
MANY = 4
"""Pruners that no other dominates: more than so many are not told by name."""


def whole_pool(stored: Stored) -> StoredPool:
    """Raises NotNow where no setting was trained to the end."""
    pool = pool_in(stored)
    if pool is None or pool.whole.empty:
        raise NotNow("", "no setting of the pool was trained to the end")
    return pool


def far_apart(stored: Stored, accuracy: bool = False) -> str:
    """How far settings drawn at random lie apart at their end: by score, as they are drawn, or by accuracy."""
    pool = whole_pool(stored)
    last = pd.Series(pool.values("validation_accuracy" if accuracy else "score")[:, -1]).quantile([1, 0.5, 0])
    top, middle, worst = (f"{100 * end:.1f} %" if accuracy else f"{end:.3g}" for end in last)
    does = f"classifies {top} of {pool.held_out} held-out images correctly" if accuracy else f"ends at a score of {top}"
    drawn, lost = counted(len(pool.trials), "setting"), len(pool.trials) - len(pool.whole)
    text = f"of {drawn} drawn at random and trained for {pool.epochs} epochs, the best {does}, the median one {middle}"
    return sentence(f"{text}, and the worst {worst}" + (f"; {counted(lost, 'setting')} diverged" if lost else ""))


curves = finding(far_apart)


def replayed(stored: Stored) -> pd.DataFrame:
    """Replays of the studies that are shown, by one worker, indexed by what is compared. Raises NotNow without any."""
    table = compared(stored)
    if table.empty:
        raise NotNow("", "the pool is too small to replay studies on each half of it")
    table = table.set_index("compared")
    if missing := [name for name in (OURS, MEDIAN) if name not in table.index]:
        raise NotNow("", f"{missing[0]} was not replayed")
    return table


@finding
def pruners(stored: Stored) -> str:
    """What our pruners save and lose, beside Median, and who dominates whom."""
    table = replayed(stored)
    if table["effective"].iloc[0] < MIN_ROUNDS:
        return f"{saved_beside(stored)} The figure has the means of these orders alone."
    names = [name for name in (ON_FORECASTS, MEDIAN, HALVING) if name in table.index]
    others = [saves(table.loc[name], named(name), "{1} and {2} with {0}") for name in names]
    best = [str(name) for name in table.index[table["on_frontier"].astype(bool)]]
    ours = saves(table.loc[OURS], f"{named(OURS)} ({table.loc[OURS, 'text']})")
    over = f"{ON_HALF}, in studies of {int(table['trials'].iloc[0])} trials, {ours}"
    marks = f"the {counted(len(best), 'filled mark')}" if len(best) > MANY else f"these: {listed(map(named, best))}"
    nothing = f"by the means, none both trains fewer epochs and keeps the best more often than any one of {marks}"
    return " ".join(map(sentence, (over, f"these shares are {listed(others)}", nothing)))


def saved_beside(stored: Stored) -> str:
    """What our pruner saves beside Optuna's Median; or that the replays amount to too few studies for any interval."""
    table = replayed(stored)
    if (studies := table["effective"].iloc[0]) < MIN_ROUNDS:
        cannot = "whether a pruner saves anything cannot be told from this pool: the orders that are replayed have most"
        few = f"settings in common and amount to {studies:.2g} independent studies, and an interval needs {MIN_ROUNDS}"
        return sentence(f"{cannot} {few}")
    ours = saves(table.loc[OURS], f"a pruner whose LSTM forecasts learning curves ({table.loc[OURS, 'text']})")
    beside = saves(table.loc[MEDIAN], f"the median rule, without a network ({table.loc[MEDIAN, 'text']}),")
    return sentence(f"{ON_HALF}, {ours} of replayed studies; {beside}")


def saves(row: Any, who: str, told: str = "{} trains {} of the epochs and keeps the best setting in {}") -> str:
    """What a pruner trains and keeps, with intervals of as many independent studies as the orders amount to."""
    columns = (("share_of_epochs", "share_low", "share_high"), ("kept", "kept_low", "kept_high"))
    shares = ("{:.0f} % [{:.0f}, {:.0f}]".format(*(100 * row[name] for name in each)) for each in columns)
    return told.format(who, *shares)


def named(name: str) -> str:
    """What a sentence calls a pruner."""
    return {OURS: "the LSTM", HALVING: "successive halving by 4", "none": "no pruning"}.get(name, name)


@finding
def course(stored: Stored) -> str:
    """How many epochs it takes until the best finished setting ends with the best one's score, or nearly so."""
    table, pool = stored.table("best_so_far"), whole_pool(stored)
    if table.empty:
        raise NotNow("", "the pool is too small to replay studies")
    told, never = [], []
    for name, own in table.groupby("compared", sort=False):
        near = own[own["regret"] <= 1 / pool.held_out]
        never += [named(str(name))] if near.empty else []
        told += [] if near.empty else [f"{100 * near['spent'].min():.0f} % with {named(str(name))}"]
    within = f"the best finished setting of a study is within {1 / pool.held_out:.2g} of the best that it can find"
    reached = f"after these shares of the epochs that no pruning takes: {listed(told)}" if told else "with no pruner"
    others = [sentence(f"with {listed(never)} it never comes so close")] if never else []
    return " ".join([sentence(f"{within} {reached}"), *others])


@finding
def forecasts(stored: Stored) -> str:
    """The LSTM's error after EARLY epochs beside best-so-far's, and whether its intervals hold what they promise."""
    table = stored.table("curve_forecasts")
    if table.empty:
        raise NotNow("", "the pool is too small for forecasts to be judged on it")
    own = table[table["forecaster"] == "lstm"].set_index("epoch")
    if EARLY not in own.index:
        raise NotNow("", f"settings are trained for too few epochs to forecast after {EARLY} of them")
    rivals = table[(table["epoch"] == EARLY) & table["forecaster"].isin(("last", "gain", "power"))]
    best = rivals.loc[rivals["relative"].idxmin()]
    error, free = _error(own.loc[EARLY]), _error(best)
    rule = f"{FORECASTER_MARKS[best['forecaster']][0]}, a rule without a network"
    over = f"{_errs(error, 1, 1)} the best value so far, and {_errs(error, free.low, free.high)} {rule}"
    text = f"after {EARLY} epochs the LSTM's forecast of the end of a curve {over}"
    last = own["relative"].idxmax()
    most = (
        f"over the mean error of the best so far its own is then {error}, and the rule's {free}; it is the largest "
        f"after {last} epochs, {_error(own.loc[last])}"
    )
    held = f"{100 * own['covered'].min():.0f} to {100 * own['covered'].max():.0f} % of the curves, by the epochs seen"
    return " ".join(map(sentence, (text, most, f"its {100 * HELD:g} % intervals hold {held}")))


def _error(row: Any) -> Estimate:
    return Estimate(row["relative"], row["relative_low"], row["relative_high"], MIN_ROUNDS)


def _errs(error: Estimate, low: float, high: float) -> str:
    """How an error stands to one between `low` and `high`."""
    if error.high < low or error.low > high:
        return "errs less than" if error.high < low else "errs more than"
    return "cannot be told apart from"


@finding
def steps(stored: Stored) -> str:
    """What each step of the ladder gains on test images over the plain CNN."""
    table = ladder(stored)
    if table.empty or pd.isna(table["test"].iloc[0]):
        raise NotNow("", "no step of the ladder was trained")
    known = [row for row in table.to_dict("records")[1:] if not pd.isna(row["more"])]
    if not known:
        raise NotNow("", "no step was trained from the seeds of the plain CNN")
    many = int(table["seeds"].iloc[0])
    told = [estimate_in(row | {"rounds": min(many, row["seeds"])}, "more", "more_low", "more_high") for row in known]
    sure = sum(more.low > 0 for more in told)
    of = f"of {counted(len(told), 'network')} with additions, {sure or 'none'} {'is' if sure < 2 else 'are'}"
    verdict = f"{of} shown to gain on the plain CNN's {table['test'].iloc[0]:.1f} % of test images"
    parts = [f"{_step(row['step'])} {gained(more)}" for row, more in zip(known, told, strict=True)]
    parts += ["differences are over the seeds that both have"] if table["seeds"].nunique() > 1 else []
    return f"{sentence(verdict)} {sentence('; '.join(parts))}"


def _step(name: str) -> str:
    """What a sentence calls a step, which has all that was added before it."""
    if name == TUNED:
        return "the tuned network"
    added = [step.removeprefix("+ ") for step in RUNGS if step.startswith("+ ")]
    return f"a network with {listed(added[: added.index(name.removeprefix('+ ')) + 1])}"


def gained(more: Estimate) -> str:
    """What a difference in points says, never more than its interval."""
    if more.open:
        return f"is {more.value:+.1f} points away, with too few seeds for an interval"
    if more.low <= 0 <= more.high:
        return f"cannot be told apart from it ({more.value:+.1f} points [{more.low:.1f}, {more.high:.1f}])"
    return f"{'gains' if more.value > 0 else 'loses'} {measure_of(more.times(1 if more.value > 0 else -1), 'points')}"


@finding
def importance(stored: Stored) -> str:
    """Which entries of the space explain most."""
    table = stored.table("importances")
    if table.empty:
        raise NotNow("", "the pool is too small, or of another space than the repository's")
    table = table.sort_values("importance", ascending=False)
    apart = table["low"].iloc[0] > table["high"].iloc[1:].max()
    stands = "one choice stands out" if apart else "no choice stands out from all others"
    if table["low"].max() <= table["high"].min():
        stands = "no choice stands out: all intervals overlap"
    told = [
        f"{str(row['name']).replace('_', ' ')} ({100 * row['importance']:.0f} % [{100 * row['low']:.0f}, "
        f"{100 * row['high']:.0f}])"
        for row in table.head(SHOWN_IMPORTANCES).to_dict("records")
    ]
    shares = f"of what sets the best quarter of the trials apart, the largest shares are those of {listed(told)}"
    return f"{sentence(stands)} {sentence(shares)}"


@finding
def engines(stored: Stored) -> str:
    """How much faster several engines train one list of trials, and what else takes time."""
    table = stored.table("studies")
    spent = table["storage_seconds"].sum() / table["trial_seconds"].sum() if len(table) else 0.0
    share = f"; storage, sampler and pruner take {100 * spent:.2g} % of a trial's time" if len(table) else ""
    return sentence(faster_by_engines(stored) + share)


def faster_by_engines(stored: Stored) -> str:
    """How much faster so many engines train one list of trials. Raises AnalysisError where it was not timed."""
    faster = times(speed_of_engines(stored), "as fast as one")
    return f"{counted(int(stored.of(ENGINES)['workers'].max()), 'engine')} train one list of trials {faster}"


FINDINGS: Mapping[str, Finding] = {
    "ladder": steps,
    "pruners": pruners,
    "course": course,
    "forecasts": forecasts,
    "curves": curves,
    "importances": importance,
    "engines": engines,
}

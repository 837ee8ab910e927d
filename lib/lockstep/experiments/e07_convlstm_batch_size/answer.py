"""The answer to the notebook's title: what a larger batch and the LSTM do to accuracy, and a larger batch to time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError, Estimate
from lockstep.analysis.seeds import LEARNING, SPEED, paired_points, same_but, way
from lockstep.analysis.sentences import counted, finding, in_words, listed, sentence, times
from lockstep.analysis.statistics import ratio_or_reason
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e07_convlstm_batch_size.tables import lstm_difference
from lockstep.experiments.fixed_batch import PLAIN_BATCH

CALLED = {"cnn": "the CNN", "convlstm": "the ConvLSTM", "convlstm2d": "the ConvLSTM2D"}
"""What sentences call the networks."""
ALL_SEEDS = "Marks: all seeds of a batch; differences in the text: only the seeds that both batches have"
"""What figures of means by batch say below their titles: the two may differ in sign."""
_OF_BATCH = ("per_worker_batch_size", "micro_batches")  # what follows from the batch


def by_sign(found: Iterable[tuple[str, Estimate]], more: str, less: str, alike: str) -> str:
    """Differences in percentage points in a sentence part, grouped as their intervals have it; those of too few seeds
    are left out. Raises NotNow where that is all of them."""
    groups: dict[str, list[str]] = {more: [], less: [], alike: []}
    for name, points in found:
        if points.rounds >= MIN_ROUNDS:
            word = more if points.low > 0 else less if points.high < 0 else alike
            groups[word].append(f"{name} ({points_text(points)})")
    if not any(groups.values()):
        raise NotNow("", f"an interval needs {MIN_ROUNDS} seeds")
    return "; ".join(f"{word} {listed(names)}" for word, names in groups.items() if names)


def none_or(number: int) -> str:
    """None, one, two: of things that were named before."""
    return in_words(number) if number else "none"


def points_text(points: Estimate) -> str:
    """A difference in percentage points with its interval: -1.46 points [-3.41, 0.502]."""
    return f"{points.value:+.3g} points [{points.low:.3g}, {points.high:.3g}]{points.differing}"


def batch_differences(stored: Stored, measure: str = "test_accuracy") -> Iterator[tuple[dict[str, Any], Estimate]]:
    """Cells of a larger batch than Table 2's at as many epochs, and their `measure` (or the `gap`: train minus test
    accuracy) minus that with Table 2's, seed by seed; without those that no seed shares."""
    records = stored.records.assign(gap=stored.records["train_accuracy"] - stored.records["test_accuracy"])
    for cell, _ in cells(stored.records, LEARNING):
        plain = not cell["updates"] and cell["learning_rate_rule"] == "constant" and cell["framework"] == "torch"
        if not plain or way(cell) != "data parallel" or cell["global_batch_size"] <= PLAIN_BATCH:
            continue
        try:
            base = same_but(cell, *_OF_BATCH, global_batch_size=PLAIN_BATCH)
            yield cell, paired_points(records, cell, base, measure)
        except AnalysisError:
            continue


def largest_batch(stored: Stored, measure: str = "test_accuracy") -> tuple[int, list[tuple[dict[str, Any], Estimate]]]:
    """The largest batch that has as many seeds as an interval needs, and its `batch_differences`. Raises NotNow for
    none."""
    found = [(cell, points) for cell, points in batch_differences(stored, measure) if points.rounds >= MIN_ROUNDS]
    if not found:
        raise NotNow("", f"a larger batch beside one of {PLAIN_BATCH} needs {MIN_ROUNDS} seeds at as many epochs")
    most = max(int(cell["global_batch_size"]) for cell, _ in found)
    return most, [(cell, points) for cell, points in found if cell["global_batch_size"] == most]


def changes(found: Iterable[tuple[dict[str, Any], Estimate]], what: str) -> str:
    """What changes of accuracy, by network and use case; `what` it is called."""
    named = ((f"{CALLED[cell['network']]} on {cell['use_case']}", points) for cell, points in found)
    return by_sign(named, f"{what} rises for", f"{what} falls for", "no difference shows for")


def batch_text(stored: Stored) -> str:
    """What a larger batch does to accuracy, by network and use case."""
    most, found = largest_batch(stored)
    over = "at as many epochs and over the seeds that both have"
    return sentence(f"with batch {most} instead of {PLAIN_BATCH}, {over}, {changes(found, 'accuracy')}")


def lstm_text(stored: Stored) -> str:
    """What the LSTM behind the CNN gains with Table 2's batch, and with fewer updates."""
    table = lstm_difference(stored)
    known = table[table["seeds"] >= MIN_ROUNDS] if len(table) else table
    if len(known):  # other ways train the same parameters, and the table has them
        known = known[(known["framework"] == "torch") & (known["way"] == "data parallel")]
    if known.empty:
        raise NotNow("", f"the ConvLSTM minus the CNN needs {MIN_ROUNDS} seeds that both were trained with")
    for_updates, batches = known["updates"] > 0, known["global_batch_size"]
    few, plain = for_updates | (batches > PLAIN_BATCH), ~for_updates & (batches == PLAIN_BATCH)
    said = []
    if plain.any():
        own = ((f"on {row['use_case']}", points_of(row)) for row in known[plain].to_dict("records"))
        gains = by_sign(own, "raises accuracy", "lowers accuracy", "makes no difference that shows")
        over = "over the seeds that both networks have"
        said.append(f"with batch {PLAIN_BATCH}, {over}, the LSTM behind the CNN {gains}")
    if few.any():
        said.append(_with_few_updates(known[few]))
    if not said:
        raise NotNow("", f"the ConvLSTM was trained beside the CNN with batches below {PLAIN_BATCH} alone")
    return " ".join(sentence(text) for text in said)


def points_of(row: dict[str, Any]) -> Estimate:
    """The difference in a row of a table (`points`, `points_low`, `points_high`, `seeds`)."""
    return Estimate(row["points"], row["points_low"], row["points_high"], int(row["seeds"]), logarithmic=False)


def _with_few_updates(rows: pd.DataFrame) -> str:
    lower, shown = (rows["points"] < 0).sum(), (rows["points_high"] < 0).sum()
    ends = f"{rows['points'].min():+.3g} to {rows['points'].max():+.3g} points"
    learns = f"by the whole interval in {none_or(shown)} of them"
    settings = counted(len(rows), "setting")
    many = f"all {settings}" if lower == len(rows) else f"{none_or(int(lower))} of {settings}"
    slower = "" if shown else ": whether it learns more slowly is open"
    sizes = sorted(set(rows.loc[rows["updates"] == 0, "global_batch_size"]))
    fewer = [f"batches from {sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"batch {sizes[0]}"] if sizes else []
    fewer += [f"{updates} updates" for updates in dict.fromkeys(rows["updates"]) if updates]
    below = f"the ConvLSTM's mean accuracy is below the CNN's in {many}"
    return f"with fewer updates ({' or '.join(fewer)}) {below} ({ends}), {learns}{slower}"


def time_text(stored: Stored, largest: bool = False) -> str:
    """What larger batches do to the time of as many epochs, with two data-parallel processes, where there is an
    interval; `largest`: of each network the largest one alone."""
    found = []
    for network in CALLED:
        known = list(_times(stored, network))
        if known := known[-1:] if largest else known:
            found.append(f"an epoch of {CALLED[network]} {', and '.join(known)}")
    if not found:
        raise NotNow("", f"no larger batch was timed with data-parallel processes in {MIN_ROUNDS} rounds")
    return sentence(f"in two processes, beside batch {PLAIN_BATCH}, {'; '.join(found)}")


def _times(stored: Stored, network: str) -> Iterator[str]:
    own = {
        int(cell["global_batch_size"]): cell
        for cell, rows in cells(stored.records, SPEED)
        if (cell["network"], cell["strategy"], cell["framework"]) == (network, "processes", "torch")
        and cell["variant"] == "a" and rows["epoch_seconds"].notna().any()
    }  # fmt: skip
    for size in sorted(own) if PLAIN_BATCH in own else ():
        ratio, _ = ratio_or_reason(stored.records, own[size], own[PLAIN_BATCH], "epoch_seconds")
        if size > PLAIN_BATCH and ratio is not None and ratio.rounds >= MIN_ROUNDS:
            doubt = " (no difference shows)" if ratio.low <= 1 <= ratio.high else ""
            yield f"with batch {size} takes {times(ratio, 'as long')}{doubt}"


@finding
def answer(stored: Stored) -> str:
    """What a larger batch costs in accuracy, what the LSTM gains, and what a larger batch saves in time; a part that
    the records can't answer says why."""
    said = []
    for part in (batch_text, lstm_text, partial(time_text, largest=True)):
        try:
            said.append(part(stored))
        except (NotNow, AnalysisError) as error:
            said.append(sentence(f"not known yet: {error}"))
    return " ".join(said)

"""What each figure of notebook 13 shows, in a sentence or two computed from its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lockstep.advisor.errors import AS_CALIBRATED
from lockstep.analysis.confidence import MIN_ROUNDS, AnalysisError
from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.sentences import Finding, counted, finding, listed, measure_of, sentence
from lockstep.analysis.stored import Stored
from lockstep.analysis.verdicts import NotNow
from lockstep.experiments.e13_advisor.checking import (
    held_out,
    judged,
    memories,
    of_one_host,
    other_processors,
    predictions,
)
from lockstep.experiments.e13_advisor.earlier import earlier_speedups, same_cells
from lockstep.experiments.e13_advisor.errors_file import LEVEL
from lockstep.experiments.e13_advisor.picks import (
    advised_costs,
    allowed_loss,
    picks,
    quickest_elsewhere,
    quickest_first,
)
from lockstep.experiments.e13_advisor.tables import (
    cell_words,
    coverage,
    farthest,
    held_out_errors,
    noise_floor,
    quantile_of,
    share_of,
)


@finding
def errors(stored: Stored) -> str:
    """The error on one host and on several, and how far a cell lies from itself."""
    told = [sentence(f"{_one_host(stored)}{_on_others(stored)}")]
    try:
        hosts = held_out_errors(stored, hosts=True)
        far = measure_of(quantile_of(hosts, 0.5), "%")
        cells = f"{counted(len(hosts), 'cell')}{_hosts_elsewhere(stored)}"
        told.append(sentence(f"on two emulated hosts they are {far} off in the median of {cells}"))
    except AnalysisError:
        told.append("Of several hosts none was measured here.")
    return " ".join([*told, _floor(stored), *_lacking(stored)])


def _one_host(stored: Stored) -> str:
    own = held_out_errors(stored)
    middle, far = (measure_of(quantile_of(own, part), "%") for part in (0.5, 0.9))
    models = of_one_host(predictions(stored))["use_case"].nunique()
    cells = f"predictions of {counted(len(own), 'cell')} of {counted(models, 'model')}"
    return f"on one host {cells} are {middle} off in the median, and nine in ten are off by less than {far}"


def _on_others(stored: Stored) -> str:
    """The same median of the processors that this notebook's other numbers are not of; "" where there is one alone."""
    told = []
    for name, own in other_processors(stored).items():
        found = held_out_errors(own)
        if len(found):
            cells = counted(len(found), "cell")
            told.append(f"{measure_of(quantile_of(found, 0.5), '%')} on {name} ({cells})")
    those = f"; with a calibration of its own, the median is {listed(told)}"
    return f"; all of that on {on_one_processor(stored)[1]}{those}" if told else ""


def _hosts_elsewhere(stored: Stored) -> str:
    """The median over emulated hosts of other processors with cells enough for an interval; "" where there are none."""
    found = {name: held_out_errors(own, hosts=True) for name, own in other_processors(stored).items()}
    middles = {name: quantile_of(off, 0.5) for name, off in found.items() if len(off)}
    told = [f"{measure_of(middle, '%')} on {name}" for name, middle in middles.items() if middle.rounds >= MIN_ROUNDS]
    return f" ({listed(told)})" if told else ""


def _floor(stored: Stored) -> str:
    table = noise_floor(stored)
    if table.empty:
        return "No cell was measured twice in a round, so what noise allows is not known."
    apart = 100 * table["apart"]
    least = f"by {apart.median():.3g} % in the median, at most {apart.max():.3g} %"
    return sentence(f"steps of {counted(len(table), 'cell')} that stood twice in each round differ {least}")


def _lacking(stored: Stored) -> list[str]:
    """How many held-out cells could not be predicted."""
    rows = held_out(on_one_processor(stored)[0])
    names = ["use_case", "experiment", "strategy", "variant", "hosts", "workers", "global_batch_size"]
    missing = len(rows.drop_duplicates(names)) - len(predictions(stored))
    return [sentence(f"{counted(missing, 'more cell')} could not be predicted")] if missing > 0 else []


@finding
def parity(stored: Stored) -> str:
    """The predictions that are farthest off, a cell of each kind, and which part of the step is."""
    table = farthest(stored)
    if table.empty:
        raise NotNow("", "no cell was both measured and predicted")
    rows = table.to_dict("records")
    told = [sentence(f"farthest off is {cell_words(rows[0])}: its step is {_away(rows[0])}")]
    if len(rows) > 1:
        told.append(sentence(f"of another kind, the step of {cell_words(rows[1])} is {_off(rows[1])}"))
    return " ".join([*told, *_bias(stored)])


def _off(row: Mapping[str, Any]) -> str:
    longer = "longer" if row["step_seconds"] > row["predicted_seconds"] else "shorter"
    return f"{100 * row['error']:.0f} % {longer} than predicted"


def _away(row: Mapping[str, Any]) -> str:
    part = {"computing": "its computing", "exchange": "its exchange", "update": "its optimizer"}[row["part"]]
    by = f"{abs(row['part_seconds']):.2g} s {'more' if row['part_seconds'] > 0 else 'less'} in {part}"
    return f"{_off(row)}, with {by}"


def _bias(stored: Stored) -> list[str]:
    """How many steps are longer than predicted: all or none, where the advisor errs to one side."""
    told = []
    for hosts, where in ((False, "on one host"), (True, "on emulated hosts")):
        own = of_one_host(predictions(stored), hosts)
        told += [f"{int((own['log_error'] > 0).sum())} of {len(own)} steps {where}"] if len(own) else []
    return [sentence(f"{listed(told)} are longer than predicted")] if told else []


def _levels_missed(stored: Stored) -> list[str]:
    """Other levels whose ranges held fewer cells than they promise, by the whole interval, on any processor."""
    parts = []
    for where, own in [("", stored), *((f" on {name}", other) for name, other in other_processors(stored).items())]:
        table = coverage(own)
        fewer = table[(table["high"] < table["level"]) & (table["level"] != LEVEL)] if len(table) else table
        pairs = fewer[["level", "held"]].to_numpy() if len(fewer) else []
        parts += [f"ranges of {100 * level:.0f} % held {100 * held:.3g} %{where}" for level, held in pairs]
    return [sentence(f"{listed(parts)}, too few: read ranges as somewhat too narrow")] if parts else []


@finding
def covered(stored: Stored) -> str:
    """How many cells the ranges held."""
    table = judged(stored)
    own = pd.concat([of_one_host(table, hosts) for hosts in (False, True)]) if len(table) else table
    if own.empty:
        raise NotNow("", "no cell was both measured and predicted")
    held = share_of(own["holds"])
    word = f"the interval allows {100 * LEVEL:.0f} %"
    if held.high < LEVEL or held.low > LEVEL:
        word = "fewer than they promise" if held.high < LEVEL else "they may be wider than needed"
    share = f"{int(own['holds'].sum())} of {counted(len(own), 'cell')}, {measure_of(held.times(100), '%')}"
    elsewhere = [f"on {name}, {_held_cells(other)}" for name, other in other_processors(stored).items()]
    return " ".join([
        sentence(f"ranges that should hold {100 * LEVEL:.0f} % held the measured step of {share}: {word}"),
        *([sentence(f"{listed(elsewhere)} were held")] if elsewhere else []),
        *_levels_missed(stored),
    ])  # fmt: skip


def _held_cells(stored: Stored) -> str:
    table = judged(stored)
    own = table[table["kind"] != AS_CALIBRATED] if len(table) else table
    return f"{int(own['holds'].sum()) if len(own) else 0} of {len(own)}"


@finding
def chosen(stored: Stored) -> str:
    """In how many choices the way predicted quickest, and the recommended one, are right, and what the worst costs."""
    table = picks(stored)
    if table.empty:
        raise NotNow("", "no two ways to train one global batch were measured")
    decided = table[table["decided"]]
    limit = f"{100 * allowed_loss(stored):.0f} %"
    if decided.empty:
        told = f"{quickest_first(table)}{quickest_elsewhere(stored)}, though in none is the fastest one certain"
    else:
        good = f"in {int(decided['good'].sum())} of {counted(len(decided), 'choice')} whose fastest way is decided"
        told = f"{good}, the way predicted quickest is as fast, up to {limit}"
        told += f", the recommended one in {int(decided['advised_good'].sum())}"
    return sentence(f"{told}{advised_costs(stored)}")


@finding
def held(stored: Stored) -> str:
    """The error of a worker's peak memory, the largest one, and how far it is too low."""
    table = memories(stored)
    if table.empty:
        raise NotNow("", "no peak of memory was both measured and predicted")
    middle = measure_of(quantile_of(100 * (table["ratio"] - 1).abs(), 0.5), "%")
    far, low = table.loc[(table["ratio"] - 1).abs().idxmax()].to_dict(), table["ratio"].min()
    most = f"{100 * abs(1 - far['ratio']):.3g} % {'below' if far['ratio'] < 1 else 'above'}"
    cells = counted(len(table), "cell")
    if "processor" in table:
        cells += f" on {counted(table['processor'].nunique(), 'processor')}"
    told = [
        sentence(f"a worker's peak memory is predicted with an error of {middle} in the median of {cells}"),
        sentence(f"the largest error is {most} what was measured, of {_memory_cell(far)}"),
    ]
    if low != far["ratio"]:
        told.append(sentence(f"no prediction is {f'more than {100 * (1 - low):.3g} % ' if low < 1 else ''}too low"))
    return " ".join(told)


def _memory_cell(row: Mapping[str, Any]) -> str:
    return cell_words(row) + (f", on {row['processor']}" if "processor" in row else "")


@finding
def before(stored: Stored) -> str:
    """The same on the speedups of notebooks 02 to 06, and what equal cells of theirs differ by."""
    table = earlier_speedups()
    known = table[table["error"].notna()] if len(table) else table
    if known.empty:
        raise NotNow("", "no earlier notebook has stored what could be predicted")
    middle, far = (measure_of(quantile_of(100 * known["error"], part), "%") for part in (0.5, 0.9))
    cells = f"predictions of {counted(len(known), 'speedup')} that other notebooks had stored"
    told = [sentence(f"{cells} are {middle} off in the median, and nine in ten are off by less than {far}")]
    lacking = len(table) - len(known)
    if lacking:
        told.append(sentence(f"{counted(lacking, 'more cell')} could not be predicted from the other notebooks alone"))
    pairs = same_cells()
    if len(pairs):
        apart = f"{100 * pairs['error'].median():.3g} % in the median of {counted(len(pairs), 'pair')}"
        most = f"{100 * pairs['error'].max():.3g} %"
        told.append(sentence(f"equal cells of two experiments differ by {apart}, and by at most {most}"))
    return " ".join(told)


FINDINGS: Mapping[str, Finding] = {
    "errors": errors,
    "parity": parity,
    "coverage": covered,
    "picks": chosen,
    "memory": held,
    "earlier": before,
}

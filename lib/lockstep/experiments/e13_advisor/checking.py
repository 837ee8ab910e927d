"""What the advisor predicts beside what was measured: for each held-out cell its step, its range and its memory.

A model's range comes from the errors that were made on the *other* models, as a reader's own model will have it.
Of several processors it is the one on which most was measured: calibrated on one, nothing is predicted of another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from lockstep.advisor.calibration import CalibratedMachine, Calibration, CalibrationError
from lockstep.advisor.errors import AS_CALIBRATED, KindError
from lockstep.advisor.from_records import calibration_of, predictable_rows
from lockstep.advisor.memory import worker_bytes
from lockstep.advisor.steps import (
    COMPUTING,
    CROWDING,
    EXCHANGE,
    INPUT,
    LINK,
    OPTIMIZER,
    TAKING_TURNS,
    Predictor,
    kind_of_cell,
    mean_error,
)
from lockstep.analysis.cells import cells
from lockstep.analysis.one_session import by_speed, on_one_processor
from lockstep.analysis.statistics import interval_of, per_round
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.e13_advisor.errors_file import FEWEST_ROUNDS, LEVEL, known_errors
from lockstep.experiments.e13_advisor.grid import CALIBRATION, CROWDED, HELD_OUT, HOSTS
from lockstep.predict.cost_model import share
from lockstep.predict.link_model import AlphaBeta, link_or_none
from lockstep.records import MEMORY

MODELS = "models"
PARTS: Mapping[str, tuple[str, ...]] = {
    "computing": (COMPUTING, CROWDING, INPUT),
    "exchange": (EXCHANGE, LINK),
    "update": (OPTIMIZER,),
}
"""The parts of a step that are both measured and predicted."""


class Advisor:
    """One model's calibration out of stored records, and what it predicts. Raises CalibrationError without one."""

    def __init__(self, stored: Stored, use_case: str) -> None:
        self.use_case = use_case
        self.calibration = stored_calibration(stored, use_case)
        self.link = link_or_none(on_one_processor(stored)[0])

    @cached_property
    def predictor(self) -> Predictor:
        return self.with_errors({})

    def with_errors(self, errors: Mapping[str, KindError]) -> Predictor:
        return Predictor(self.calibration, errors)

    def asked(self, cell: Mapping[str, Any]) -> tuple[str, int, int, int, int, AlphaBeta | None]:
        """What `Predictor` asks of a cell of the grid."""
        sync, workers, hosts = str(cell["sync"]), int(cell["workers"]), int(cell["hosts"])
        return sync, workers, hosts, share(cell), int(cell["threads_per_worker"]), self.link

    def kind(self, cell: Mapping[str, Any]) -> str:
        return kind_of_cell(self.calibration, *self.asked(cell)[:-1], emulated=int(cell["hosts"]) > 1)


def stored_calibration(stored: Stored, use_case: str, machine: CalibratedMachine | None = None) -> Calibration:
    """What the advisor is told of a model: the rows of its calibration, and what it consists of."""
    records = on_one_processor(stored)[0]
    rows = records[records["experiment"].isin([CALIBRATION, CROWDED, MEMORY])]
    models = stored.table(MODELS)
    sizes = models[models["use_case"] == use_case] if len(models) else models
    known = sizes.select_dtypes("number").min().to_dict() if len(sizes) else None
    return calibration_of(rows[rows["use_case"] == use_case], known, machine)


@once
def advisors(stored: Stored) -> dict[str, Advisor]:
    """By use case; only those that could be calibrated."""
    found = {}
    for name in held_out(on_one_processor(stored)[0])["use_case"].unique():
        try:
            found[str(name)] = Advisor(stored, str(name))
        except CalibrationError:
            continue
    return found


def held_out(records: pd.DataFrame) -> pd.DataFrame:
    """The rows that are predicted and were not calibrated with: held-out cells, and the second halves of A/A pairs of
    calibrated ones, which the advisor has seen once."""
    again = (records["experiment"] == CALIBRATION) & (records["variant"] == "b")
    kept = records["experiment"].isin([HELD_OUT, HOSTS]) & (records["variant"] == "a")
    return records[(kept | again) & (records["status"] == "ok")]


@once
def predictions(stored: Stored) -> pd.DataFrame:
    """A row per cell of `held_out` that could be predicted.

    Columns: those of `_identity`; kind; step_seconds (measured, geometric mean over rounds, with low and high), rounds;
    predicted_seconds; log_error (measured / predicted); error (|measured / predicted - 1|); calibration_spread
    (`mean_error` of what the calibration's rounds predict); for each of PARTS
    measured_PART and predicted_PART (s).
    """
    table, records = [], on_one_processor(stored)[0]
    for name, advisor in advisors(stored).items():
        own = held_out(records)
        for cell, rows in cells(own[own["use_case"] == name]):
            row = _predicted(records, advisor, cell, rows)
            table += [row] if row else []
    return pd.DataFrame(table)


@once
def each_processor(stored: Stored) -> dict[str, Stored]:
    """What each processor measured, by its name; at each speed by itself."""
    return {name: replace(stored, records=records) for name, records in by_speed(stored).items()}


@once
def other_processors(stored: Stored) -> dict[str, Stored]:
    """The same of those that the notebook's numbers are not of, without models whose cells have fewer than
    FEWEST_ROUNDS rounds: a bad minute says nothing of a processor. Empty where there is one alone."""
    shown, found = on_one_processor(stored)[1], {}
    for name, own in each_processor(stored).items() if shown else ():
        table = predictions(own) if name != shown else pd.DataFrame()
        rounds = table.groupby("use_case")["rounds"].min() if len(table) else pd.Series(dtype=int)
        few = own.records["use_case"].isin(rounds.index[rounds < FEWEST_ROUNDS])
        if (rounds >= FEWEST_ROUNDS).any():
            found[name] = replace(own, records=own.records[~few]) if few.any() else own
    return found


def all_predictions(stored: Stored) -> pd.DataFrame:
    """`predictions` of each processor, by what was calibrated there."""
    if not on_one_processor(stored)[1]:
        return predictions(stored)
    return pd.concat(map(predictions, each_processor(stored).values()), ignore_index=True)


def _predicted(
    records: pd.DataFrame, advisor: Advisor, cell: Mapping[str, Any], rows: pd.DataFrame
) -> dict[str, Any] | None:
    emulated = int(cell["hosts"]) > 1
    try:
        terms = advisor.predictor.terms(*advisor.asked(cell), emulated=emulated)
    except CalibrationError:  # a way, or a link, that was not calibrated
        return None
    measured = interval_of(per_round(records, cell, "step_seconds"))
    value, low, high = measured.columns
    predicted = sum(terms.values())
    if not predicted > 0:  # of a calibration that a bad minute has spoilt
        return None
    row = _identity(cell) | {"kind": advisor.kind(cell), "step_seconds": value, "low": low, "high": high}
    row |= {"rounds": measured.rounds, "predicted_seconds": predicted, "log_error": math.log(value / predicted)}
    by_round = advisor.predictor.by_round(*advisor.asked(cell), emulated=emulated)
    row |= {"error": abs(value / predicted - 1), "calibration_spread": mean_error(by_round)}
    return row | _parts(rows, terms, value)


def _identity(cell: Mapping[str, Any]) -> dict[str, Any]:
    names = ("use_case", "experiment", "strategy", "sync", "variant", "hosts", "workers", "global_batch_size")
    return {name: cell[name] for name in names} | {"threads": cell["threads_per_worker"], "batch": share(cell)}


def _parts(rows: pd.DataFrame, terms: Mapping[str, float], step: float) -> dict[str, float]:
    """Each part's seconds of the slowest worker, and the predicted ones, over all turns on its core."""
    found = {
        "computing": rows["input_seconds"] + rows["compute_seconds"],
        "exchange": rows["exchange_seconds"],
        "update": rows["update_seconds"],
    }
    medians = {name: float(values.astype(float).median()) for name, values in found.items()}
    scale = step / sum(medians.values()) if sum(medians.values()) > 0 else math.nan
    one_turn = sum(terms.values()) - terms[TAKING_TURNS] - terms[INPUT] - terms[LINK]
    turns = 1 + terms[TAKING_TURNS] / one_turn if one_turn else 1.0
    row = {f"measured_{name}": value * scale for name, value in medians.items()}
    for name, of in PARTS.items():
        row[f"predicted_{name}"] = sum(terms[each] * (1 if each in (INPUT, LINK) else turns) for each in of)
    return row


@once
def judged(stored: Stored) -> pd.DataFrame:
    """`predictions` with the range of each: range_low and range_high (s) that should hold it nine times out of ten by
    the errors of the other models, and holds (bool)."""
    return ranges_at(stored, LEVEL)


def ranges_at(stored: Stored, level: float) -> pd.DataFrame:
    """The same for ranges that should hold this share."""
    table = predictions(stored)
    if table.empty:
        return table
    parts = []
    for name, own in table.groupby("use_case", sort=False):
        advisor = advisors(stored)[str(name)]
        predictor = advisor.with_errors(known_errors(table[table["use_case"] != name], level))
        asked = own[["sync", "workers", "hosts", "batch", "threads"]].itertuples(index=False, name=None)
        spans = [
            predictor.step_seconds(sync, workers, hosts, batch, threads, advisor.link, emulated=hosts > 1)
            for sync, workers, hosts, batch, threads in asked
        ]
        own = own.assign(range_low=[span.low for span in spans], range_high=[span.high for span in spans])
        parts.append(own.assign(holds=own["step_seconds"].between(own["range_low"], own["range_high"])))
    return pd.concat(parts, ignore_index=True)


def of_one_host(table: pd.DataFrame, hosts: bool = False) -> pd.DataFrame:
    """The held-out rows of `predictions` on one host, or on several; without repeated calibration cells."""
    if table.empty:
        return table
    return table[(table["kind"] != AS_CALIBRATED) & ((table["hosts"] > 1) == hosts)]


@once
def memories(stored: Stored) -> pd.DataFrame:
    """A row per cell of several workers in new processes: peak_bytes of a worker (the team's PSS over its workers, the
    largest over rounds), predicted_bytes, ratio (predicted / measured). Of several processors the cells of all, each
    predicted from what was calibrated there, with a column `processor`."""
    if on_one_processor(stored)[1]:
        found = {name: memories(own) for name, own in each_processor(stored).items()}
        return pd.concat([table.assign(processor=name) for name, table in found.items()], ignore_index=True)
    rows, table = predictable_rows(stored.of(MEMORY)), []
    rows = rows[rows["workers"] > 1]
    for cell, own in cells(rows):
        advisor, peak = advisors(stored).get(str(cell["use_case"])), float(own["peak_pss_bytes"].astype(float).max())
        if advisor is None or not advisor.calibration.memory or not math.isfinite(peak):
            continue
        workers = int(cell["workers"])
        expected = worker_bytes(advisor.calibration, str(cell["sync"]), workers, share(cell))
        row = _identity(cell) | {"peak_bytes": peak / workers, "predicted_bytes": expected}
        table.append(row | {"ratio": expected * workers / peak})
    return pd.DataFrame(table)

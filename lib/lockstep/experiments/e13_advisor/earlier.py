"""The advisor on what notebooks 02 to 06 had stored before there was one: speedups over each one's own sequential cell.

A notebook's cells are predicted from the sequential steps of all notebooks and from the other notebooks' two workers.
These were measured on other days and machines, so all seconds are told in those of one core: the steps of an experiment
are stretched, session by session, until its sequential one is as long as the line through the sequential steps says.
How a step grows with its batch is the line's to say, so it goes through experiments that timed several in a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.from_records import calibration_of, predictable_rows
from lockstep.advisor.steps import Predictor
from lockstep.analysis.cells import CELL, SAME_RUN, cells
from lockstep.analysis.statistics import BASELINE, ratio_by_way_of, ratio_or_reason, select
from lockstep.predict.cost_model import share
from lockstep.predict.link_model import AlphaBeta, link_or_none
from lockstep.records import RecordError, read_records
from lockstep.records.places import REFERENCE, repository_root

EARLIER = (
    "02_threads_vs_processes", "03_pipelined_model_parallelism", "04_hybrid_parallelism", "05_mpi_distribution",
    "06_spark_distribution",
)  # fmt: skip
CHOSEN_WITH = EARLIER[3]
"""Its cells of several hosts are left out: `lockstep.advisor.steps.SENDERS_AWAY` was chosen so that they come out."""
DERIVED = EARLIER[4]
"""Its speedups of Spark's barrier mode follow from the ratios to training under MPI and of that to one core."""
WAYS = ("shared_memory", "allreduce", "ddp")
PLAINEST = "processes"
"""The launcher that the advisor calibrates with."""
_OF_ONE_MACHINE = ["notebook", "experiment", "session"]
_RATE = "images_per_second"
_SECONDS = ("step_seconds", "input_seconds", "compute_seconds", "exchange_seconds", "update_seconds")


@cache
def all_records() -> pd.DataFrame:
    """All that these notebooks stored, with a column `notebook`; empty where nothing is."""
    found = []
    for name in EARLIER:
        try:
            rows = read_records(repository_root() / REFERENCE / name)
        except RecordError:
            continue
        found.append(rows.assign(notebook=name))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["notebook"])


@cache
def earlier_records() -> pd.DataFrame:
    """Of `all_records` what the advisor speaks of."""
    everything = all_records()
    if everything.empty:
        return everything
    known = predictable_rows(everything[everything["bucket"] == "whole"])
    wire = everything[(everything["experiment"] == "wire") & (everything["notebook"] == EARLIER[3])]
    return pd.concat([known[known["sync"].isin(("local", *WAYS))], wire[wire["sync"] == "ping_pong"]])


@cache
def earlier_speedups() -> pd.DataFrame:
    """A row per cell of several workers: notebook, experiment, use_case, strategy, sync, launcher, hosts, workers,
    batch, speedup, low, high, rounds, and predicted_speedup, NaN (with a reason) where it could not be predicted."""
    table = []
    for (notebook, experiment), own in earlier_records().groupby(["notebook", "experiment"], sort=False):
        for cell, _ in cells(own[own["workers"] > 1]):
            if notebook == CHOSEN_WITH and cell["hosts"] > 1:
                continue
            row = _measured(str(notebook), cell)
            if row is not None and cell["input"] != "none":
                table.append({"notebook": notebook, "experiment": experiment} | row | _predicted(str(notebook), cell))
    frame = pd.DataFrame(table)
    if len(frame):
        frame["error"] = (frame["speedup"] / frame["predicted_speedup"] - 1).abs()
    return frame


def _measured(notebook: str, cell: Mapping[str, Any]) -> dict[str, Any] | None:
    """The speedup as its own notebook tells it: of all rows, for any of a round says that others disturbed it. None for
    a cell that never stood beside one core."""
    records = all_records()
    own = records[records["notebook"] == notebook]
    link = _base(cell) | {"strategy": "mpi_allreduce", "workers": cell["workers"], "variant": "a"}
    sides, derived = (cell, _base(cell)), notebook == DERIVED and cell["strategy"].startswith("spark_")
    direct = None if derived else ratio_or_reason(own, *sides, _RATE)[0]
    speedup = ratio_by_way_of(own, sides, link, _RATE, always=True) if derived else direct
    if speedup is None:
        return None
    names = ("use_case", "strategy", "sync", "launcher", "hosts", "workers")
    value, low, high = speedup.columns
    row = {name: cell[name] for name in names} | {"batch": share(cell)}
    return row | {"speedup": value, "low": low, "high": high, "rounds": speedup.rounds}


def _base(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: cell[name] for name in SAME_RUN}, **BASELINE}


def _predicted(notebook: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    base = select(earlier_records(), _base(cell) | {"notebook": notebook})
    try:
        predictor = _predictor(str(cell["use_case"]), notebook)
        where = (int(cell["workers"]), int(cell["hosts"]), share(cell), 1, _link(cell))
        step = sum(predictor.terms(str(cell["sync"]), *where, emulated=cell["hosts"] > 1).values())
        alone = sum(predictor.terms("local", 1, 1, int(base["global_batch_size"].iloc[0])).values())
    except CalibrationError as error:
        return {"predicted_speedup": float("nan"), "reason": str(error)}
    per_second = cell["global_batch_size"] / step, base["global_batch_size"].iloc[0] / alone
    return {"predicted_speedup": per_second[0] / per_second[1], "reason": ""}


def _link(cell: Mapping[str, Any]) -> AlphaBeta | None:
    """Between the emulated hosts of a cell: from the ping-pong at its rate, else with the latency of another rate."""
    rate, records = cell["link_bits_per_second"], earlier_records()
    if not rate:
        return None
    same = link_or_none(records[records["link_bits_per_second"] == rate])
    other = link_or_none(records)
    return same or (AlphaBeta(other.alpha_seconds, 8 / rate) if other else None)


@cache
def _predictor(use_case: str, without: str) -> Predictor:
    """What the sequential cells of a use case and the other notebooks' two workers say. Raises CalibrationError."""
    own = earlier_records()
    own = own[(own["use_case"] == use_case) & (own["hosts"] == 1) & (own["threads_per_worker"] == 1)]
    own = own[own["input"] != "none"]
    single = own[own["strategy"] == BASELINE["strategy"]]
    line = Predictor(calibration_of(_with_several_batches(single), {"gradient_bytes": 0}))
    parts = [_stretched(single, line), _stretched_teams(_teams(own, single, without), single, line)]
    return Predictor(calibration_of(pd.concat(parts, ignore_index=True), _size(own)))


def _teams(own: pd.DataFrame, single: pd.DataFrame, without: str) -> pd.DataFrame:
    """Two workers of the other notebooks, where one core was timed in the same session of an experiment; of each sync
    by the plainest launcher, else by those that there are."""
    teams = own[(own["workers"] == 2) & (own["notebook"] != without)]
    teams = teams.merge(single[_OF_ONE_MACHINE].drop_duplicates())
    plain = teams[teams["launcher"] == PLAINEST]["sync"].unique()
    return teams[(teams["launcher"] == PLAINEST) | ~teams["sync"].isin(plain)]


def _size(own: pd.DataFrame) -> dict[str, float] | None:
    """Of the gradient, from any all-reduce of this use case, whoever measured it."""
    sent = own[(own["sync"] == "allreduce") & (own["workers"] > 1)]
    return None if len(sent) else {"gradient_bytes": 0.0}


def _with_several_batches(single: pd.DataFrame) -> pd.DataFrame:
    """The sequential rows of the experiments that timed several batches in a session; all rows where none did."""
    batches = single.groupby(_OF_ONE_MACHINE)["global_batch_size"].transform("nunique")
    return single[batches > 1] if (batches > 1).any() else single


def _stretched(single: pd.DataFrame, line: Predictor) -> pd.DataFrame:
    """The sequential rows, as long in each session of an experiment as the line says."""
    parts = []
    for (*_, batch), rows in single.groupby([*_OF_ONE_MACHINE, "global_batch_size"], sort=False):
        seconds = sum(line.terms("local", 1, 1, int(batch)).values())
        parts.append(_times(rows, seconds / float(rows["step_seconds"].median())))
    return pd.concat(parts)


def _stretched_teams(teams: pd.DataFrame, single: pd.DataFrame, line: Predictor) -> pd.DataFrame:
    """The rows of two workers, by what the sequential cell of their experiment and session was stretched by."""
    parts = []
    for where, rows in teams.groupby(_OF_ONE_MACHINE, sort=False):
        base = single[(single[_OF_ONE_MACHINE] == list(where)).all(axis=1)]
        batch = int(base["global_batch_size"].iloc[0])
        base = base[base["global_batch_size"] == batch]
        seconds = sum(line.terms("local", 1, 1, batch).values())
        parts.append(_times(rows, seconds / float(base["step_seconds"].median())))
    return pd.concat(parts) if parts else teams.iloc[:0]


def _times(rows: pd.DataFrame, factor: float) -> pd.DataFrame:
    return rows.assign(**{name: rows[name].astype(float) * factor for name in _SECONDS})


@cache
def same_cells() -> pd.DataFrame:
    """Cells that two experiments stored and that are equal in every column but the experiment: the two speedups, and
    error, by how much the second is off as a prediction of the first."""
    kept = [name for name in CELL if name not in ("experiment", "images", "data_source", "variant")]
    found: dict[tuple[Any, ...], list[float]] = {}
    for (notebook, _), own in earlier_records().groupby(["notebook", "experiment"], sort=False):
        for cell, _ in cells(own[own["workers"] > 1]):
            row = _measured(str(notebook), cell)
            if row is not None:
                base = select(own, _base(cell))["global_batch_size"].iloc[0]
                found.setdefault((base, *(cell[name] for name in kept)), []).append(row["speedup"])
    pairs = [(one, values[0]) for values in found.values() for one in values[1:]]
    frame = pd.DataFrame(pairs, columns=["one", "other"])
    return frame.assign(error=(frame["one"] / frame["other"] - 1).abs())

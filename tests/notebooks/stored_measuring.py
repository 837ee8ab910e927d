"""Measuring without workers: every cell is answered with the stored row that is most alike, and its traced tables.

All else is as ever: the grid, its order, the records, `run.json`, tables, figures, findings and verdicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockstep.engine.job import IDENTITY, Job
from lockstep.measure import cell
from lockstep.records import MEASUREMENTS, TABLES, Row, make_row, read_records
from lockstep.records.reading import read_tables

_SAME = ("experiment", "device")  # of an answer, if there is any such row
_FIRST = ("strategy", "sync", "launcher", "schedule", "use_case", "network", "framework", "workers", "variant")
_WEIGHT = 100  # one of these is worth more than all other columns together


class StoredMeasuring:
    """`measure_job` of a grid, from the records of one notebook in `folder`."""

    def __init__(self, folder: Path) -> None:
        tables = read_tables(folder)
        self.records, self.tables = read_records(folder), {each: tables[each] for each in tables if each in TABLES}
        self._told = {name: _words(self.records[name]) for name in IDENTITY}  # once: a cell asks for all of them
        self._traced = {
            name: {column: _words(frame[column]) for column in frame.columns if _is_identity(name, column)}
            for name, frame in self.tables.items()
        }

    def measure_job(
        self, job: Job, source: object, *_: object, probes: object = None
    ) -> tuple[Row, dict[str, pd.DataFrame], bool]:
        """As `lockstep.measure.cell.measure_job`; of an experiment that nobody has stored yet, made-up numbers."""
        if (why := cell.why_impossible(job)) is not None:
            return make_row(job, {}, status="skipped", reason=why), {}, False
        if not (self.records["experiment"] == job.experiment).any():
            return make_row(job, {"images_per_second": 10.0, "step_seconds": job.global_batch_size / 10}), {}, False
        stored = self._most_alike(job)
        known = {name: _plain(stored[name]) for name in MEASUREMENTS if pd.notna(stored[name])}
        row = make_row(job, known, status=stored["status"], reason=stored["reason"])
        return row, self._tables(job, stored), False

    def _most_alike(self, job: Job) -> dict[str, Any]:
        alike = np.zeros(len(self.records), dtype=int)
        for name in IDENTITY:
            weight = _WEIGHT**2 if name in _SAME else _WEIGHT if name in _FIRST else 1
            alike += weight * (self._told[name] == str(getattr(job, name)))
        # rather another strategy's than none, and none of another experiment
        alike += (_WEIGHT**2 // 2) * (self.records["status"] == "ok").to_numpy()
        alike[(self.records["experiment"] != job.experiment).to_numpy()] = -1
        return dict(self.records.iloc[alike.argmax()])

    def _tables(self, job: Job, stored: dict[str, Any]) -> dict[str, pd.DataFrame]:
        """The rows that were traced with the stored one, as this job's."""
        found = {}
        for name, frame in self.tables.items():
            own = np.ones(len(frame), dtype=bool)
            for column, told in self._traced[name].items():
                own &= told == str(stored[_field(column)])
            if own.any():
                cell = {column: getattr(job, _field(column)) for column in self._traced[name]}
                found[name] = frame[own].assign(**cell)
        return found


def _words(values: pd.Series) -> np.ndarray:
    return values.astype(str).to_numpy(dtype=object)


def _plain(value: Any) -> Any:
    """Python's own number for numpy's, which a row does not take."""
    return value.item() if hasattr(value, "item") else value


def _field(column: str) -> str:
    return column.removeprefix("job_")


_OWN = {"epochs": ("learning_rate",), "policies": ("policy", "policy_options", "standby", "updates")}
"""Traced table -> its columns that a job has, too, and that say something else there."""


def _is_identity(table: str, column: str) -> bool:
    """Does the column say which cell was traced? An epoch has a learning rate of its own, beside that of its job; a
    row of a simulated cell is of one policy among many."""
    return _field(column) in IDENTITY and column not in _OWN.get(table, ())

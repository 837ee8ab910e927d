"""Traces of stragglers: how many seconds each worker computed in each step, recorded in a real run.

A trace is a CSV or Parquet file with the columns `worker, step, seconds` and, where they exist, `stage` (of a
pipeline), `micro_batch` and `action` (forward | backward). The traces of ByteDance-Seed/StragglerAnalysis, published
with Lin et al. (2025, OSDI), "Understanding Stragglers in Large Model Training Using What-if Analysis", are read as
they are: of their operations those that compute are kept, and a worker is a data-parallel rank within its stage.

Steps may be *sampled*: 16, 17, 20, 23 … A gap begins a new segment (column `segment`); nothing may be forecast across
one. The series without gaps is that of the micro-batches within a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lockstep.engine.delays.draws import Floats
from lockstep.engine.options import JobError

if TYPE_CHECKING:
    import pandas as pd

KEYS = ("stage", "worker", "step", "micro_batch", "action")
ACTIONS = ("forward", "backward")
_OPERATIONS = {"dp_rank": "worker", "stage": "stage", "step": "step", "mb_id": "micro_batch", "duration": "seconds"}
_COMPUTE = {f"{action}-compute": action for action in ACTIONS}


@dataclass(frozen=True)
class StragglerTrace:
    """A recorded run. `table`: the columns `KEYS`, `segment` and `seconds`, a row for what was timed together.

    Where a file has no stages, micro-batches or actions, those columns hold 0, 0 and `forward`.
    """

    name: str
    table: pd.DataFrame

    @property
    def stages(self) -> tuple[int, ...]:
        """The pipeline stages, in order."""
        return tuple(int(stage) for stage in sorted(self.table["stage"].unique()))

    @property
    def segments(self) -> NDArray[np.int64]:
        """The segment of each recorded step, in order: [steps]."""
        steps = self.table.drop_duplicates("step").sort_values("step")
        return steps["segment"].to_numpy(dtype=np.int64)

    def step_seconds(self, stage: int) -> Floats:
        """Seconds that each worker of a stage computed in each step: [steps, workers].

        Raises JobError for a stage that was not recorded, and where a worker lacks a step that others have.
        """
        return self._matrix(stage, ["step"])

    def micro_batch_seconds(self, stage: int) -> Floats:
        """Seconds that each worker of a stage computed for each micro-batch: [steps, micro-batches, workers].

        Raises JobError as `step_seconds` does.
        """
        rows = self._matrix(stage, ["step", "micro_batch"])
        steps, each = len(self.segments), self.table["micro_batch"].nunique()
        if len(rows) != steps * each:
            raise JobError(f"{self.name} has {each} micro-batches in some of its {steps} steps, but not in all")
        return rows.reshape(steps, each, rows.shape[1])

    def _matrix(self, stage: int, index: list[str]) -> Floats:
        if stage not in self.stages:
            raise JobError(f"{self.name} records no stage {stage}; there are: {', '.join(map(str, self.stages))}")
        sums = self.table.groupby([*index, "stage", "worker"])["seconds"].sum()
        return complete(sums.unstack(["stage", "worker"])[[stage]], self.name).to_numpy()


def complete(matrix: pd.DataFrame, name: str) -> pd.DataFrame:
    """The matrix itself. Raises JobError, which names the first place, if it has a hole."""
    holes = np.argwhere(matrix.isna().to_numpy())
    if len(holes):
        row, column = matrix.index[holes[0][0]], matrix.columns[holes[0][1]]
        labels = (*_named(matrix.index, row), *_named(matrix.columns, column))
        where = ", ".join(f"{key} {value}" for key, value in labels)
        raise JobError(f"{name} has no seconds for {where}, which others have; leave that step out for all workers")
    return matrix


def _named(index: Any, label: Any) -> list[tuple[Any, Any]]:
    return list(zip(index.names, label if isinstance(label, tuple) else (label,), strict=True))


def read_trace(path: str | Path) -> StragglerTrace:
    """The trace in a CSV or Parquet file.

    Raises JobError naming the file, and the row where there is one: for a file that does not exist or has another
    format, a missing column, no rows, seconds that are negative or not finite, numbers of workers or steps that are not
    whole or negative, and rows that stand there twice.
    """
    import pandas as pd

    file = Path(path)
    if not file.is_file():
        raise JobError(f"trace {str(path)!r} does not exist; give a CSV or Parquet file")
    if file.suffix not in (".csv", ".parquet"):
        raise JobError(f"trace {str(path)!r} is neither .csv nor .parquet")
    try:
        table = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    except (ValueError, OSError) as error:  # pandas' and pyarrow's own errors are ValueErrors
        raise JobError(f"trace {str(path)!r} can't be read: {error}") from None
    return as_trace(table, file.name)


def as_trace(table: pd.DataFrame, name: str) -> StragglerTrace:
    """The trace in a table, of either layout; `name` stands in messages. Raises JobError as `read_trace` does."""
    table = table.reset_index(drop=True)
    if "optype" in table:
        table = _of_operations(table, name)
    elif "fate" in table:
        table = _of_tasks(table, name)
    missing = [column for column in ("worker", "step", "seconds") if column not in table]
    if missing:
        there_are = ", ".join(map(str, table.columns))
        raise JobError(f"{name} has no column {', '.join(missing)}; it has: {there_are}")
    if table.empty:
        raise JobError(f"{name} has no rows: there is nothing to replay")
    table = table.assign(**{key: 0 for key in ("stage", "micro_batch") if key not in table})
    if "action" not in table:
        table = table.assign(action=ACTIONS[0])
    table = _checked(table, name)
    steps = np.sort(table["step"].unique())
    segment = dict(zip(steps.tolist(), np.cumsum(np.diff(steps, prepend=steps[0]) > 1).tolist(), strict=True))
    return StragglerTrace(name, table.assign(segment=table["step"].map(segment)))


def _of_operations(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """What computes, of the operations of ByteDance-Seed/StragglerAnalysis."""
    missing = [column for column in _OPERATIONS if column not in table]
    if missing:
        raise JobError(f"{name} has operations (a column optype) but no column {', '.join(missing)}")
    kinds = table["optype"].astype(str)
    computes = kinds.isin(_COMPUTE)
    return table[computes].rename(columns=_OPERATIONS).assign(action=kinds[computes].map(_COMPUTE))


def _of_tasks(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A run of our own (`tasks.csv`): a worker's how manyth task is its step, as far as every worker has come.

    Tasks differ in size, so that seconds are made those of a task of the median size. Of a task that was recalled only
    the least that it would have taken is known: it is taken to have needed what the worker's other tasks needed in the
    median, if that is more. Tasks that the end of the run cut off are left out.
    """
    needed = ["worker", "task", "samples", "began_seconds", "ended_seconds"]
    missing = [column for column in needed if column not in table]
    if missing:
        raise JobError(f"{name} has tasks (a column fate) but no column {', '.join(missing)}")
    if "round" in table and table["round"].nunique() > 1:
        rounds = ", ".join(map(str, sorted(table["round"].unique())))
        raise JobError(f"{name} holds several runs, rounds {rounds}; give a file with the rows of one of them")
    table = table[table["fate"] != "unfinished"]
    samples = table["samples"].where(table["samples"] > 0)
    size = samples.median()
    seconds = (table["ended_seconds"] - table["began_seconds"]) * (size / samples.fillna(size))
    known = seconds.where((table["fate"] != "recalled") & samples.notna())
    usual = known.groupby(table["worker"]).transform("median")
    found = table[["worker"]].assign(step=table["task"], seconds=known.fillna(np.fmax(seconds, usual)))
    common = table.groupby("worker")["task"].max().min()
    return found[found["step"] <= common]


def _checked(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The columns that are needed, as numbers. Raises JobError for the first row that has something else."""
    import pandas as pd

    checked = pd.DataFrame({"action": table["action"].astype(str)}, index=table.index)
    _refuse(table, name, "action", ~checked["action"].isin(ACTIONS), " or ".join(ACTIONS))
    for column in ("stage", "worker", "step", "micro_batch"):
        number = pd.to_numeric(table[column], errors="coerce").astype("float64")
        _refuse(table, name, column, ~(np.isfinite(number) & (number >= 0) & (number % 1 == 0)), "a number from 0 on")
        checked[column] = number.astype("int64")
    seconds = pd.to_numeric(table["seconds"], errors="coerce").astype("float64")
    _refuse(table, name, "seconds", ~(np.isfinite(seconds) & (seconds >= 0)), "a finite number of at least 0")
    checked["seconds"] = seconds
    twice = checked.duplicated(list(KEYS))
    if twice.any():
        row = checked[twice].iloc[0]
        stands = f"worker {row['worker']} has step {row['step']} twice"
        raise JobError(f"{name}, row {twice.idxmax() + 1} below the header: {stands}; give it once")
    return checked


def _refuse(table: pd.DataFrame, name: str, column: str, wrong: pd.Series, allowed: str) -> None:
    if wrong.any():
        row = wrong.idxmax()
        value = table[column].loc[row]
        raise JobError(f"{name}, row {row + 1} below the header: {column}={value} is not possible; give {allowed}")

"""What a run folder holds of one notebook: the one thing that figures, tables, findings, verdicts and targets read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import finalize

import pandas as pd

from lockstep.analysis.cells import CELL
from lockstep.records import COLUMNS, TRACE, read_records, read_run, read_tables
from lockstep.records.reading import beyond_others, contended

Value = TypeVar("Value")
Read = TypeVar("Read", "Stored", pd.DataFrame)
How = ParamSpec("How")


def _no_rows() -> pd.DataFrame:
    return pd.DataFrame(columns=list(COLUMNS))


@dataclass(frozen=True, eq=False)
class Stored:
    """Records, a row per repetition of a cell, and what was traced beside them; both may be empty."""

    records: pd.DataFrame
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    """What a reader assumes and nothing measured, by name: an experiment's `drawn_only` parameters, of its notebook."""
    units: Mapping[int, str] = field(default_factory=dict)  # for bfloat16, of each session: amx, avx512_bf16, none
    machines: Mapping[int, str] = field(default_factory=dict)  # CPU and day of each session
    processors: Mapping[int, str] = field(default_factory=dict)  # of each session, as the system names them
    gpus: str = ""  # of the machine, with its cores; "" where it has none
    beside: Stored | Path | None = None  # what a machine with a GPU stored of this notebook, or where
    traces: pd.DataFrame = field(default_factory=_no_rows)
    """The rows of cells that trained for a minute while they were sampled. They are no repetitions: no time, median or
    ratio is of them, and their samples stand in the table `resources`."""

    @cached_property
    def quiet(self) -> Stored:
        """The same without the rounds in which other programs used the machine: verdicts rest on these alone."""
        rounds = _disturbed(self.records) | _disturbed(self.traces)
        return self._without(rounds) if rounds else self

    def _without(self, rounds: set[int]) -> Stored:
        """The same without these rounds, but for what others can't change."""
        tables = {
            name: table[~table["round"].isin(rounds)] if "round" in table else table
            for name, table in self.tables.items()
        }
        kept = self.records[beyond_others(self.records) | ~self.records["round"].isin(rounds)]
        return replace(self, records=kept, tables=tables, traces=self.traces[~self.traces["round"].isin(rounds)])

    @cached_property
    def shown(self) -> Stored:
        """What figures, tables and findings are made of: as `quiet`, but that what others disturbed whenever it was
        measured is there all the same. Of traces it is decided here, of all else in `cells` and `per_round`."""
        disturbed = _disturbed(self.traces)
        traced = {row["round"]: _cell_of(row) for _, row in self.traces.iterrows()}
        calm = {cell for number, cell in traced.items() if number not in disturbed}
        dropped = {number for number in disturbed if traced[number] in calm}
        return self._without(dropped) if dropped else self

    def by_round(self, own: pd.DataFrame, values: pd.Series) -> pd.Series:
        """Values of a traced table's rows `own`, one per round, indexed by session and round as `per_round` does: what
        sessions differ by belongs into an interval."""
        rounds = own["round"].to_numpy()
        frames = [frame.reindex(columns=["round", "session"]) for frame in (self.records, self.traces) if len(frame)]
        known = pd.concat(frames).drop_duplicates("round").set_index("round")["session"]
        sessions = pd.to_numeric(known.reindex(rounds)).fillna(0).astype(int).to_numpy()
        index = pd.MultiIndex.from_arrays([sessions, rounds], names=["session", "round"])
        return pd.Series(values.to_numpy(dtype=float), index=index).dropna()

    def table(self, name: str) -> pd.DataFrame:
        """A traced table such as `resources`; without rows and columns where nothing of the kind was traced."""
        return self.tables.get(name, pd.DataFrame())

    @cached_property
    def on_gpus(self) -> Stored:
        """Where a claim about GPUs is looked up: this folder, or the one beside it if here no GPU measured anything."""
        ran = (self.records["device"] == "cuda") & (self.records["status"] == "ok")
        if ran.any() or self.beside is None:
            return self
        return (read_stored(self.beside) if isinstance(self.beside, Path) else self.beside).quiet

    def of(self, experiment: str) -> pd.DataFrame:
        """The records whose column `experiment` holds this name."""
        return self.records[self.records["experiment"] == experiment]


def _cell_of(row: pd.Series) -> tuple[object, ...]:
    """What tells a trace's cell from others; steps are as many as a minute has."""
    return tuple(row[name] for name in CELL)


def _disturbed(rows: pd.DataFrame) -> set[int]:
    return set(rows["round"][contended(rows)])


def once(compute: Callable[Concatenate[Read, How], Value]) -> Callable[Concatenate[Read, How], Value]:
    """As a decorator: what is computed of a run folder, or of its records, is computed once, however many figures and
    verdicts read it. Nobody writes into what was read, nor into the values of a table that comes out."""
    known: dict[int, dict[Hashable, Value]] = {}

    @wraps(compute)
    def found(read: Read, /, *how: How.args, **named: How.kwargs) -> Value:
        if id(read) not in known:
            known[id(read)] = {}
            finalize(read, known.pop, id(read)).atexit = False
        of_it, asked = known[id(read)], (how, *named.items())
        if asked not in of_it:
            of_it[asked] = compute(read, *how, **named)
        value = of_it[asked]
        return value.copy(deep=False) if isinstance(value, pd.DataFrame) else value

    return found


def no_records() -> Stored:
    """What is stored of a notebook that has not run: all columns, no rows."""
    return Stored(_no_rows())


def with_gpu(folder: Path) -> Path:
    """Where a machine with a GPU stored the same notebook: `results/reference-gpu/<notebook>`."""
    run = folder.resolve().parent
    return run.with_name(f"{run.name}-gpu") / folder.resolve().name


def read_stored(folder: Path) -> Stored:
    """Everything in a results folder. Raises RecordError for files that can't be read, also if there are none."""
    rows = read_records(folder)
    traced = rows["source"] == TRACE
    # A copy has its columns of one type side by side in memory, which makes choosing rows several times as fast.
    sessions = read_run(folder)["sessions"] if (folder / "run.json").is_file() else []
    hosts = [each.get("machine", {}) for each in sessions]
    units, cpus = ({at: str(host.get(name, "")) for at, host in enumerate(hosts)} for name in ("bfloat16", "cpu"))
    machines = {number: f"{cpus[number]} ({units[number]}), {each.get('day')}" for number, each in enumerate(sessions)}
    gpus = {f"{' and '.join(host['gpu'])} beside {host['cores']} cores" for host in hosts if host.get("gpu")}
    beside = with_gpu(folder) if (with_gpu(folder) / "records.csv").is_file() else None
    measured, traces = rows[~traced].copy(), rows[traced].copy()
    return Stored(measured, read_tables(folder), {}, units, machines, cpus, "; ".join(sorted(gpus)), beside, traces)

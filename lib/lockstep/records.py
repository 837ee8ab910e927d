"""The results schema, and the only code that writes it.

    results/<run>/<notebook>/   records.csv  one row per repetition, never only means
                                run.json     parameters, commit, machine, versions
                                resources.csv, figures/, executed.ipynb

The unit of writing and of resuming is a *round*: one repetition of every variant. A round is written
whole (temporary file, fsync, rename) or not at all, so a killed run loses at most the round it was in.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.files import clear_errors, write_atomically
from lockstep.job import IDENTITY, Job
from lockstep.ladder import RUNGS
from lockstep.options import CHOICES
from lockstep.strategies import LAUNCHER_NAMES, STRATEGIES, YARDSTICKS

SCHEMA_VERSION = 1


class RecordError(ValueError):
    """A row, a file or a folder that does not fit the schema; the message names the place and the fix."""


@dataclass(frozen=True)
class Column:
    """One column of `records.csv`."""

    kind: str  # text | integer | number | flag
    unit: str = ""
    allowed: tuple[str, ...] = ()  # of a text column; empty: any text
    meaning: str = ""


_KINDS = {"str": "text", "int": "integer", "float": "number", "bool": "flag"}
_ALLOWED: dict[str, tuple[str, ...]] = {
    **CHOICES,
    # Yardsticks are no strategies; own is a reader's own job.
    "strategy": tuple(dict.fromkeys((*STRATEGIES, *RUNGS, *YARDSTICKS, "own"))),
    "launcher": LAUNCHER_NAMES,
    "sync": (*dict.fromkeys(line.fields["sync"] for line in STRATEGIES.values()), "copy_bound", "ping_pong"),
}

MEASUREMENTS: dict[str, Column] = {
    "images_per_second": Column("number", "1/s", meaning="global batch / step_seconds"),
    "step_seconds": Column("number", "s", meaning="wall time of an optimiser step, slowest rank, mean of the measured"),
    "input_seconds": Column("number", "s", meaning="per step: waiting for decoded images, slowest rank"),
    "compute_seconds": Column("number", "s", meaning="per step: forward and backward pass, slowest rank"),
    "wait_seconds": Column("number", "s", meaning="per step: waiting for the other ranks, most patient rank"),
    "exchange_seconds": Column("number", "s", meaning="per step: moving and summing gradients, slowest rank"),
    "update_seconds": Column("number", "s", meaning="per step: the optimiser, slowest rank"),
    "forward_seconds": Column("number", "s", meaning="per step: forward pass and loss, slowest rank; part of compute"),
    "backward_seconds": Column("number", "s", meaning="per step: backward pass, slowest rank; part of compute"),
    "idle_seconds": Column(
        "number",
        "s",
        meaning="per step, mean over a pipeline's ranks: waiting for an activation, a gradient or the others to begin",
    ),
    "decode_seconds": Column("number", "s", meaning="per step and worker: CPU time of decoding"),
    "epoch_seconds": Column("number", "s", meaning="derived: images / images_per_second"),
    "startup_seconds": Column("number", "s", meaning="building replica and sync, not in step_seconds"),
    "launch_seconds": Column("number", "s", meaning="starting the team that ran the row, until all ranks were ready"),
    "bytes_sent": Column(
        "number",
        "B",
        meaning="per step and rank, handed to the transport; of an all-reduce that a library does (gloo, MPI), what a "
        "ring would send: link_bytes_sent counts what really passed",
    ),
    "link_bytes_sent": Column("number", "B", meaning="per step: through all hosts' links, headers included; counted"),
    "link_bytes_busiest": Column("number", "B", meaning="per step: of the busiest link, the larger way; counted"),
    "bandwidth_bytes_per_second": Column("number", "B/s", meaning="copy bandwidth of the row's cores, read + written"),
    "flops_per_second": Column("number", "1/s", meaning="of a large matrix product; in a profile: of the convolutions"),
    "flops_per_image": Column("number", meaning="counted: forward and backward pass, matrix products and convolutions"),
    "peak_pss_bytes": Column("number", "B", meaning="proportional set size of all workers together, peak"),
    "train_loss": Column("number", meaning="mean over the measured steps"),
    "test_accuracy": Column("number", meaning="0-1"),
    "test_balanced_accuracy": Column("number", meaning="0-1"),
    "test_auc": Column("number", meaning="0-1"),
    "skipped_images": Column("integer", meaning="unreadable images left out"),
    "other_cpu_seconds": Column("number", "s", meaning="CPU time of foreign processes while measuring"),
    "steal_seconds": Column("number", "s", meaning="CPU time the hypervisor withheld"),
}

OUTCOME: dict[str, Column] = {
    "source": Column("text", allowed=("measured", "simulated")),
    "status": Column("text", allowed=("ok", "failed", "skipped")),
    "reason": Column("text", meaning="why failed or skipped, or a caveat of an ok row"),
}

COLUMNS: dict[str, Column] = {
    **{field.name: Column(_KINDS[str(field.type)], allowed=_ALLOWED.get(field.name, ())) for field in fields(Job)},
    **MEASUREMENTS,
    **OUTCOME,
}

ADDED = (
    "optimiser",
    "memory_format",
    "copies",
    "bucket",
    "overlap",
    "transport",
    "host_workers",
    "message_bytes",
    "exchange_every",
    "state_averaged",
    "density",
    "shards",
    "opt_weight",
    "forward_seconds",
    "backward_seconds",
    "flops_per_second",
    "flops_per_image",
    "link_bytes_sent",
    "link_bytes_busiest",
    "launch_seconds",
    "model_parallel",
    "stages_per_rank",
    "partition",
    "activations",
    "stage_memory_bytes",
    "idle_seconds",
    "executor_data",
)
"""Columns that older files of this schema may lack."""

TABLES = ("resources", "operators", "steps", "stages", "actions", "layers", "spark")
"""Traced tables that may stand beside `records.csv`."""
TEXTS_OF_TABLES: tuple[str, ...] = ("experiment", "use_case", "strategy", "device", "operators", "launcher", "variant")
TEXTS_OF_TABLES += ("schedule", "partition", "activations", "action", "name", "executor_data")
"""Their columns that hold text; all others are numbers, and an empty field is one that was not measured."""

_HEADER = ",".join(COLUMNS) + "\n"

Row = dict[str, Any]


def make_row(job: Job, measured: Mapping[str, Any], *, status: str = "ok", reason: str = "") -> Row:
    """A checked row of `records.csv`. Raises RecordError naming the column, the value and what is allowed."""
    row: Row = {name: getattr(job, name) for name in IDENTITY}
    row.update(dict.fromkeys(MEASUREMENTS))
    unknown = set(measured) - set(MEASUREMENTS)
    if unknown:
        raise RecordError(f"unknown measurement(s) {sorted(unknown)}; there are: {', '.join(MEASUREMENTS)}")
    row.update(measured)
    row.update(source="measured", status=status, reason=" ".join(reason.split()))
    check_row(row)
    return row


def check_row(row: Mapping[str, Any]) -> None:
    """Raises RecordError if a value does not fit its column."""
    for name, column in COLUMNS.items():
        if name not in row:
            raise RecordError(f"column {name!r} is missing from a row of records.csv")
        value = row[name]
        if name in MEASUREMENTS and (value is None or pd.isna(value)):
            continue
        if column.allowed and value not in column.allowed:
            raise RecordError(f"{name}={value!r} is not allowed; give one of: {', '.join(column.allowed)}")
        fits = {
            "text": isinstance(value, str),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, int | float) and not isinstance(value, bool),
            "flag": isinstance(value, bool),
        }[column.kind]
        if not fits:
            raise RecordError(f"{name}={value!r} is not {column.kind}; see lockstep.records.COLUMNS")
    if row["status"] != "ok" and not row["reason"]:
        raise RecordError(f"a {row['status']} row must say why: fill 'reason' ({row['strategy']}, {row['use_case']})")


def read_records(folder: str | Path) -> pd.DataFrame:
    """All rows of `<folder>/records.csv`, typed by `COLUMNS`.

    Raises RecordError if the file is missing, is of another schema, or holds a value that is not allowed.
    """
    path = Path(folder) / "records.csv"
    if not path.is_file():
        raise RecordError(f"{path} does not exist; measure it first with `lockstep run` or name another results folder")
    kinds: dict[str, Any] = {"text": str, "number": float, "flag": bool}
    dtypes = {n: kinds.get(c.kind, "Int64" if n in MEASUREMENTS else "int64") for n, c in COLUMNS.items()}
    texts = [name for name, column in COLUMNS.items() if column.kind == "text"]
    try:
        header = list(pd.read_csv(path, nrows=0).columns)
        if header != [name for name in COLUMNS if name in header or name not in ADDED]:
            wrong = sorted(set(header) ^ set(COLUMNS))
            raise RecordError(f"{path} has other columns than schema {SCHEMA_VERSION}: {', '.join(wrong) or 'order'}")
        # "none" and "" are values here, never missing ones.
        missing = {n: [""] for n in COLUMNS if n not in texts}
        frame = pd.read_csv(path, dtype=dtypes, keep_default_na=False, na_values=missing, float_precision="round_trip")
        frame = _with_added(frame).astype(dtypes)[list(COLUMNS)]
    except (ValueError, pd.errors.ParserError) as error:
        raise error if isinstance(error, RecordError) else RecordError(f"{path} can't be read: {error}") from error
    for name, column in COLUMNS.items():
        bad = set(frame[name]) - set(column.allowed) if column.allowed else set()
        if bad:
            raise RecordError(f"{path}: {name} holds {sorted(bad)}; allowed: {', '.join(column.allowed)}")
    return frame


def _with_added(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows from before a column was added had its default: that of `Job`, or no measurement."""
    defaults = {field.name: field.default for field in fields(Job)}
    return frame.assign(**{name: defaults.get(name) for name in ADDED if name not in frame})


def read_run(folder: str | Path) -> dict[str, Any]:
    """`<folder>/run.json`. Raises RecordError if it is missing, damaged or of another schema version."""
    path = Path(folder) / "run.json"
    if not path.is_file():
        raise RecordError(f"{path} does not exist; the folder holds no run")
    try:
        run: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise RecordError(f"{path} can't be read ({error}); give another folder with --out or remove it") from error
    if not isinstance(run, dict):
        raise RecordError(f"{path} is not a description of a run; give another folder with --out or remove it")
    if run.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(f"{path} is schema {run.get('schema_version')!r}, this code reads {SCHEMA_VERSION}")
    return run


class RunFolder:
    """One results folder, held by one process at a time; rounds are appended to it.

    Raises RecordError if another process holds it, or if what it holds was measured under another commit, with
    other parameters, on other images or another machine (resuming would mix two experiments); WriteError if it
    can't be written.
    """

    def __init__(self, path: str | Path, info: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.info = {"schema_version": SCHEMA_VERSION, **info}
        self._lock: Any = None

    def __enter__(self) -> RunFolder:
        with clear_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RecordError(
                f"{self.path} is in use by another run; wait for it or give another folder with --out"
            ) from None
        try:
            self._check_resumable()
            if not (self.path / "run.json").is_file():
                write_atomically(self.path / "run.json", json.dumps(self.info, indent=2, sort_keys=True) + "\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # The lock file stays: unlinking it would let two later runs lock two different files of that name.
        self._lock.close()

    def _check_resumable(self) -> None:
        path = self.path / "records.csv"
        if path.is_file() and not path.read_text().startswith(_HEADER):
            raise RecordError(f"{path} was written with other columns; give another folder with --out or remove it")
        if not (self.path / "run.json").is_file():
            return
        stored = read_run(self.path)
        for name in ("git", "parameters", "data", "machine", "versions"):
            if stored.get(name) != json.loads(json.dumps(self.info.get(name))):
                raise RecordError(
                    f"{self.path} holds a run with another {name} ({stored.get(name)} there, {self.info.get(name)} "
                    f"now): resuming would mix two experiments; give another folder with --out or remove this one"
                )

    @property
    def rounds_done(self) -> list[int]:
        """Numbers of the rounds that are stored whole."""
        if not (self.path / "records.csv").is_file():
            return []
        return sorted(int(number) for number in read_records(self.path)["round"].unique())

    def write_round(self, rows: Sequence[Row], tables: Mapping[str, pd.DataFrame] | None = None) -> None:
        """Append a whole round: its rows, and its part of traced tables such as `resources`.

        Raises WriteError if the disk is full or the folder is not writable; what was stored before stays.
        """
        for row in rows:
            check_row(row)
        # Tables first: a crash between the two leaves samples of a round that records.csv does not know, and
        # those are dropped when the round is measured again.
        for name, frame in (tables or {}).items():
            done = self.rounds_done
            old = read_table(self.path, name)
            old = old[old["round"].isin(done)] if old is not None else None
            write_atomically(self.path / f"{name}.csv", pd.concat([old, frame]).to_csv(index=False))
        frame = pd.DataFrame(rows, columns=list(COLUMNS))
        text = frame.to_csv(index=False, header=False)
        path = self.path / "records.csv"
        before = path.read_text() if path.is_file() else _HEADER
        write_atomically(path, before + text)


def read_tables(folder: str | Path) -> dict[str, pd.DataFrame]:
    """All traced tables of a run by name, without what was not traced there."""
    found = {name: read_table(folder, name) for name in TABLES}
    return {name: frame for name, frame in found.items() if frame is not None}


def read_table(folder: str | Path, name: str) -> pd.DataFrame | None:
    """`<folder>/<name>.csv` of a traced run (one of TABLES), or None where nothing was traced."""
    path = Path(folder) / f"{name}.csv"
    if not path.is_file():
        return None
    numbers = [column for column in pd.read_csv(path, nrows=0).columns if column not in TEXTS_OF_TABLES]
    # Exact numbers: the table is read and written again for every round. "none" and "" are texts, never missing ones.
    missing = {column: [""] for column in numbers}
    return pd.read_csv(path, keep_default_na=False, na_values=missing, float_precision="round_trip")

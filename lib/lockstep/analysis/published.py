"""The papers' tables and the claims ledger, as committed under `data/published/`.

The ledger has a row per claim: where it stands in which paper, our wording of it, its figure, the notebook that
measures it and the verdict function that judges it. Published figures come from there and from nowhere else. Beside the
claims it has rows for what a paper says in two ways, for what it does not say, and for what could not be otherwise:
these are listed and never judged.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.records.places import repository_root

TABLE_COLUMNS = ("use_case", "row", "device", "speedup", "paper", "place")
"""Of a table of speedups, which most are; COLUMNS_OF_TABLES has the others."""
COLUMNS_OF_TABLES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("convlstm-d-accel", "table2"): ("row", "value", "paper", "place"),
    ("convlstm-d-accel", "table3"): ("row", "nodes", "accuracy_percent", "time_seconds", "paper", "place"),
    ("convlstm-d-accel", "table4"): (
        "layer", "kernels", "kernel_shape", "output_shape", "flops", "paper", "place"
    ),
    ("dpro-sm", "table2"): (
        "row", "reference", "standby_nodes", "disk_usage", "memory_usage", "speed", "delay", "method",
        "dollars_per_hour", "garbled", "paper", "place",
    ),
    ("kermany", "classes"): ("split", "class", "images", "source"),
    ("gpu", "specifications"): (
        "name", "year", "tflops", "memory_gib", "memory_gigabytes_per_second", "pcie_gigabytes_per_second", "source",
    ),
}  # fmt: skip
"""A column `garbled` names the columns whose value, as printed, can't be read; such a value is copied, not guessed. Of
*DPro-SM*'s Table 2 the column of features, which is prose, is left out. Those of GPUs are their vendor's, in FP32 and
per GPU, as `source` prints them."""
NUMBERS_OF_TABLES = (
    "speedup", "nodes", "accuracy_percent", "time_seconds", "kernels", "output_shape", "flops", "dollars_per_hour",
    "images", "year", "tflops", "memory_gib", "memory_gigabytes_per_second", "pcie_gigabytes_per_second",
)  # fmt: skip
"""Columns of published tables that hold numbers; all others are text."""
CLAIM, CONTRADICTION, UNSAID, AUDIT = "claim", "contradiction", "unsaid", "audit"
KINDS = (CLAIM, CONTRADICTION, UNSAID, AUDIT)
"""What a row of the ledger is: a claim, which is judged; a place where the paper contradicts itself; something that the
paper leaves unsaid; or an audit: the paper's own arithmetic, or what cannot be otherwise."""
CLAIM_COLUMNS = (
    "id", "kind", "paper", "place", "statement", "value", "unit", "use_case", "notebook", "verdict", "note"
)  # fmt: skip
USE_CASES = ("ComplexSmall", "SimpleBig", "both", "Pneumonia", "other")


class PublishedError(ValueError):
    """A published table or the ledger can't be used; the message names file, line, value and fix."""


def _rows(path: Path, columns: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """Line number and values of every row. Raises PublishedError for another header or a row of another length."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            if header != list(columns):
                raise PublishedError(f"{path}, line 1: columns {header} must be {list(columns)}")
            found = []
            for values in reader:
                if len(values) != len(columns):
                    raise PublishedError(
                        f"{path}, line {reader.line_num}: {len(values)} values instead of {len(columns)}; "
                        "quote a value that holds a comma"
                    )
                found.append((reader.line_num, dict(zip(columns, values, strict=True))))
            return found
    except FileNotFoundError:
        raise PublishedError(f"{path} does not exist; restore it from the repository") from None


def _number(path: Path, line: int, name: str, text: str) -> float | None:
    if text == "":
        return None
    try:
        return float(text)
    except ValueError:
        raise PublishedError(f"{path}, line {line}: {name}={text!r} is not a number; leave it empty for none") from None


def read_table(paper: str, table: str, root: str | Path | None = None) -> pd.DataFrame:
    """A published table, say `read_table("single-to-multi", "table1")`.

    Columns TABLE_COLUMNS or those of COLUMNS_OF_TABLES; numbers (`speedup` is dimensionless) are NaN where the paper
    prints a dash. Raises PublishedError.
    """
    folder = (Path(root) if root else repository_root()) / "data" / "published"
    path = folder / f"{paper}-{table}.csv"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*-table*.csv"))
        raise PublishedError(f"{paper} {table}: {path.name} does not exist; there are: {', '.join(known) or 'none'}")
    columns = COLUMNS_OF_TABLES.get((paper, table), TABLE_COLUMNS)
    numbers = [name for name in columns if name in NUMBERS_OF_TABLES]
    rows: list[dict[str, Any]] = []
    for line, values in _rows(path, columns):
        rows.append({**values, **{name: _number(path, line, name, values[name]) for name in numbers}})
    return pd.DataFrame(rows, columns=list(columns)).astype(dict.fromkeys(numbers, float))


def read_claims(root: str | Path | None = None) -> pd.DataFrame:
    """The claims of the ledger (`read_ledger`), which alone are judged and counted; the index is that of the ledger."""
    ledger = read_ledger(root)
    return ledger[ledger["kind"] == CLAIM]


def read_ledger(root: str | Path | None = None) -> pd.DataFrame:
    """All rows of the ledger, checked: claims, contradictions, what is unsaid and audits, by `kind` (one of KINDS).

    `value` is a float (NaN: the row has no figure), everything else text. Only claims name a verdict function. Raises
    PublishedError, naming file, line and row, for a repeated id, an empty text, an unknown kind or use case. Whether
    the verdict functions exist, `lockstep.experiments.registry.checked_claims` knows.
    """
    path = (Path(root) if root else repository_root()) / "data" / "published" / "claims.csv"
    rows: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for line, values in _rows(path, CLAIM_COLUMNS):
        _check_row(path, line, values, seen)
        seen[values["id"]] = line
        rows.append({**values, "value": _number(path, line, "value", values["value"])})
    return pd.DataFrame(rows, columns=list(CLAIM_COLUMNS)).astype({"value": float})


def _check_row(path: Path, line: int, values: dict[str, str], seen: dict[str, int]) -> None:
    where = f"{path}, line {line}"
    for name in ("id", "paper", "place", "statement"):
        if not values[name].strip():
            raise PublishedError(f"{where}: {name} is empty; every row needs one")
    if values["id"] in seen:
        raise PublishedError(f"{where}: id={values['id']!r} stands in line {seen[values['id']]} already; rename one")
    _check_kind(f"{where}, row {values['id']!r}", values)
    if values["use_case"] not in USE_CASES:
        raise PublishedError(f"{where}: use_case={values['use_case']!r} must be one of: {', '.join(USE_CASES)}")
    if values["verdict"] == "pending" and not values["notebook"]:
        raise PublishedError(f"{where}: a pending claim must name the notebook that will measure it")
    if values["value"] and not values["unit"]:
        raise PublishedError(f"{where}: value={values['value']} has no unit; give one")


def _check_kind(where: str, values: dict[str, str]) -> None:
    kind, verdict = values["kind"], values["verdict"]
    if kind not in KINDS:
        raise PublishedError(f"{where}: kind={kind!r} must be one of: {', '.join(KINDS)}")
    if kind == CLAIM and not verdict.strip():
        raise PublishedError(f"{where}: verdict is empty; every claim needs a verdict function")
    if kind != CLAIM and verdict:
        raise PublishedError(
            f"{where}: verdict={verdict!r} must be empty, for kind={kind!r} is not judged; empty it, or make the row a "
            f"{CLAIM}"
        )
    if kind != CLAIM and not values["note"].strip():
        raise PublishedError(f"{where}: note is empty; a row of kind={kind!r} needs one that says what is meant")

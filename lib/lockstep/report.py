"""Published - measured - verdict tables, from stored records and the claims ledger alone: nothing is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.published import read_claims
from lockstep.records import COLUMNS, read_records, read_table
from lockstep.targets import target_table
from lockstep.verdicts import judge

REPORT_COLUMNS = ("claim", "place", "statement", "use_case", "published", "measured", "verdict", "reason", "notebook")
HEADINGS = {"place": "Place", "statement": "Claim", "use_case": "Use case", "published": "Published"}
HEADINGS |= {"measured": "Measured", "verdict": "Verdict", "reason": "Why"}
_UNITS = {"times": " times", "percent": " %", "percentage points": " percentage points"}


def no_records() -> pd.DataFrame:
    """The records of a notebook that has not run: no rows, all columns."""
    return pd.DataFrame(columns=list(COLUMNS))


def published_text(value: float, unit: str) -> str:
    """A published figure with its unit, or "" where the claim has none: 15.57 times, 35 KiB, -2.7 percentage points."""
    return "" if pd.isna(value) else f"{value:g}{_UNITS.get(unit, f' {unit}')}"


def published_measured(
    records: pd.DataFrame, claims: pd.DataFrame, resources: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per claim, in the ledger's order, with columns REPORT_COLUMNS (all text).

    `records` and `resources` are those of the claims' notebook, and may be empty.
    """
    rows: list[dict[str, Any]] = []
    for claim in claims.to_dict("records"):
        found = judge(claim, records, resources)
        rows.append(
            {
                "claim": claim["id"],
                "place": claim["place"],
                "statement": claim["statement"],
                "use_case": claim["use_case"],
                "published": published_text(claim["value"], claim["unit"]),
                "measured": found.measured,
                "verdict": found.verdict,
                "reason": found.reason,
                "notebook": claim["notebook"],
            }
        )
    return pd.DataFrame(rows, columns=list(REPORT_COLUMNS))


def markdown_table(frame: pd.DataFrame, columns: Iterable[str] | None = None) -> str:
    """A frame as a Markdown table; pipes and line ends in cells are made harmless."""
    names = list(columns) if columns is not None else list(frame.columns)
    lines = ["| " + " | ".join(HEADINGS.get(name, name) for name in names) + " |", "|" + " --- |" * len(names)]
    for row in frame[names].to_dict("records"):
        cells = (" ".join(str(row[name]).split()).replace("|", "\\|") for name in names)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def sources(records: pd.DataFrame) -> str:
    """One sentence on what was measured: data, rounds, and how many rows are ok, failed and skipped."""
    if records.empty:
        return "No records are stored."
    counts = records["status"].value_counts()
    states = ", ".join(f"{counts[name]} {name}" for name in ("ok", "failed", "skipped") if name in counts)
    data = " and ".join(sorted(records["data_source"].unique()))
    ok = records[records["status"] == "ok"]
    disturbed = int(ok["reason"].astype(str).str.contains("contended").sum())
    noted = f" Others used the machine during {disturbed} of the {len(ok)} ok rows." if disturbed else ""
    return f"Data: {data}. {records['round'].nunique()} rounds; rows: {states}.{noted}"


def render_markdown(table: pd.DataFrame, title: str, note: str = "") -> str:
    """A titled Markdown section with a count of verdicts, from a table of `published_measured`."""
    counts = table["verdict"].value_counts().sort_index()
    tally = ", ".join(f"{count} {word}" for word, count in counts.items())
    parts = [f"## {title}", *([note] if note else []), f"Verdicts: {tally}.", markdown_table(table, HEADINGS)]
    return "\n\n".join(parts)


def report_all(results_root: str | Path) -> str:
    """Every claim of the ledger against the records under `<results_root>/<notebook>/`, as Markdown.

    A notebook without records keeps its claims, as not measured yet. Raises RecordError for records that can't be
    read, PublishedError for a faulty ledger.
    """
    root = Path(results_root)
    parts = ["# Published - measured - verdict"]
    for notebook, claims in read_claims().groupby("notebook", sort=True):
        folder = root / str(notebook)
        stored = bool(notebook) and (folder / "records.csv").is_file()
        records = read_records(folder) if stored else no_records()
        resources = read_table(folder, "resources") if stored else None
        title = str(notebook) or "Not tied to a notebook"
        parts.append(render_markdown(published_measured(records, claims, resources), title, sources(records)))
    return "\n\n".join(parts)


def fill_tables(text: str, results_root: str | Path) -> str:
    """`text` (Markdown) with each `<!-- table:NAME -->` ... `<!-- /table -->` block made anew from stored records.

    NAME is a key of TABLES. Raises ValueError for another name, RecordError where the records can't be read.
    """

    def filled(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in TABLES:
            raise ValueError(f"table {name!r} does not exist; there are: {', '.join(TABLES)}")
        return f"<!-- table:{name} -->\n{TABLES[name](Path(results_root))}\n<!-- /table -->"

    return re.sub(r"<!-- table:(?P<name>\w+) -->\n.*?<!-- /table -->", filled, text, flags=re.DOTALL)


def _targets(results_root: Path) -> str:
    records = read_records(results_root / "02_threads_vs_processes")
    rows = []
    for row in target_table(records).to_dict("records"):
        missing = pd.isna(row["ratio"])
        ratio = "" if missing else f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        reached = f"{row['reached']}: {row['reason']}" if missing else row["reached"]
        rows.append({"ratio of": row["target"], "aim": f"≥ {row['bar']:g}", "measured": ratio, "reached": reached})
    return f"{sources(records)}\n\n{markdown_table(pd.DataFrame(rows))}"


TABLES: dict[str, Callable[[Path], str]] = {"targets": _targets}
"""The generated tables of the README."""

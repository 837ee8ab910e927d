"""Published - measured - verdict tables, from stored records and the claims ledger alone: nothing is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.catalogue import PAPERS, Notebook, catalogue
from lockstep.files import write_atomically
from lockstep.job import NO_USE_CASE
from lockstep.published import read_claims
from lockstep.records import COLUMNS, read_records, read_tables
from lockstep.targets import TARGETS, target_table
from lockstep.verdicts import NOT_REPRODUCED, NOT_YET, REPRODUCED, WORDS, Verdict, judge

REPORT_COLUMNS = ("claim", "place", "statement", "use_case", "published", "measured", "verdict", "reason", "notebook")
HEADINGS = {"place": "Place", "statement": "Claim", "use_case": "Use case", "published": "Published"}
HEADINGS |= {"measured": "Measured", "verdict": "Verdict", "reason": "Why"}
_UNITS = {"times": " times", "percent": " %", "percentage points": " percentage points"}
HEADLINES = (
    "s2m-gpu-better-than-cpu",
    "s2m-processes-beat-threads",
    "s2m-table1-cpu-multi-simplebig",
    "s2m-ram-lower",
    "s2m-pipelining-pays",
    "s2m-cpu-model-parallel-overhead",
    "s2m-table2-gpu-hybrid-simplebig",
    "s2m-local-decides",
    "s2m-table3-mpi-cpu-simplebig",
    "s2m-network-no-bottleneck",
    "s2m-table3-spark-cpu-simplebig",
    "s2m-spark-slower-than-node",
    "cla-data-accuracy",
    "cla-nearly-double",
    "cla-speedup-5",
)
"""The claims that the README shows, of the notebooks that are built."""


class ReportError(ValueError):
    """A Markdown file whose tables can't be made; the message names the file or the table, and the fix."""


Judged = tuple[dict[str, Any], Verdict]
"""A row of the claims ledger, and what records say about it."""


@dataclass(frozen=True)
class Stored:
    """A notebook and what a run folder holds of it; the one without a name has the claims that belong to none."""

    notebook: Notebook
    records: pd.DataFrame  # no rows where none are stored
    judged: list[Judged]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # what was traced, by name

    @property
    def title(self) -> str:
        return self.notebook.name or "Not tied to a notebook"


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
    return claims_table([(claim, judge(claim, records, resources)) for claim in claims.to_dict("records")])


def claims_table(judged: Iterable[Judged]) -> pd.DataFrame:
    """Claims and their verdicts as text, with columns REPORT_COLUMNS."""
    rows = [
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
        for claim, found in judged
    ]
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
    trained = records[records["use_case"] != NO_USE_CASE]  # rows about the machine have no data
    data = " and ".join(sorted(trained["data_source"].unique()))
    ok = records[records["status"] == "ok"]
    disturbed = int(ok["reason"].astype(str).str.contains("contended").sum())
    noted = f" Others used the machine during {disturbed} of the {len(ok)} ok rows." if disturbed else ""
    return f"Data: {data}. {records['round'].nunique()} rounds; rows: {states}.{noted}"


def tally(verdicts: Sequence[str]) -> str:
    """How often each word occurs: 3 reproduced, 1 not measured yet."""
    return ", ".join(f"{count} {word}" for word in WORDS if (count := list(verdicts).count(word)))


def render_markdown(table: pd.DataFrame, title: str, note: str = "") -> str:
    """A titled Markdown section with a count of verdicts, from a table of `published_measured`."""
    counts = f"Verdicts: {tally(table['verdict'])}."
    parts = [f"## {title}", *([note] if note else []), counts, markdown_table(table, HEADINGS)]
    return "\n\n".join(parts)


def read_all(results_root: str | Path) -> list[Stored]:
    """Every notebook that is built or named by the ledger, with its records under `<results_root>/<notebook>/` and
    the verdicts on its claims. A notebook without records keeps its claims, as not measured yet.

    Raises RecordError for records that can't be read, PublishedError for a faulty ledger.
    """
    claims = read_claims()
    known = [*catalogue(), *([Notebook("")] if (claims["notebook"] == "").any() else [])]
    found = []
    for notebook in known:
        folder = Path(results_root) / notebook.name
        there = bool(notebook.name) and (folder / "records.csv").is_file()
        records = read_records(folder) if there else no_records()
        tables = read_tables(folder) if there else {}
        own = claims[claims["notebook"] == notebook.name].to_dict("records")
        judged = [(claim, judge(claim, records, tables.get("resources"))) for claim in own]
        found.append(Stored(notebook, records, judged, tables))
    return found


def report_all(results_root: str | Path) -> str:
    """Every claim of the ledger against the records of a run folder (`read_all`), as Markdown."""
    parts = ["# Published - measured - verdict"]
    for stored in read_all(results_root):
        if stored.judged:
            parts.append(render_markdown(claims_table(stored.judged), stored.title, sources(stored.records)))
    return "\n\n".join(parts)


def fill_tables(text: str, results_root: str | Path) -> str:
    """`text` (Markdown) with each `<!-- table:NAME -->` ... `<!-- /table -->` block made anew from stored records.

    NAME is a key of TABLES. Raises ReportError for another name or a block without its end, RecordError where the
    records can't be read.
    """
    for name in (names := re.findall(r"<!-- table:(.*?) -->", text)):
        if name not in TABLES:
            raise ReportError(f"table {name!r} does not exist; there are: {', '.join(TABLES)}")

    def filled(block: re.Match[str]) -> str:
        return f"<!-- table:{block['name']} -->\n{TABLES[block['name']](Path(results_root))}\n<!-- /table -->"

    found, blocks = re.subn(r"<!-- table:(?P<name>\w+) -->\n.*?<!-- /table -->", filled, text, flags=re.DOTALL)
    if blocks < len(names):
        raise ReportError(
            f"{len(names)} tables begin and only {blocks} end; write <!-- /table --> on a line of its own after each "
            f"of {', '.join(names)}"
        )
    return found


def fill_file(path: Path, results_root: str | Path) -> None:
    """`fill_tables` on a file, in place. Raises ReportError for a file that can't be read or holds no such block."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ReportError(f"{path} can't be read ({why}); give --fill an existing Markdown file") from error
    if "<!-- table:" not in text:
        wanted = " or ".join(f"<!-- table:{name} --> … <!-- /table -->" for name in TABLES)
        raise ReportError(f"{path} holds no table to fill; write {wanted} where it shall stand")
    try:
        write_atomically(path, fill_tables(text, results_root))
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error


def targets_table(
    records: pd.DataFrame, notebook: str, tables: Mapping[str, pd.DataFrame] | None = None
) -> pd.DataFrame:
    """Our own bars of a notebook as text: what is compared, the aim, what was measured, and whether it is reached."""
    rows = []
    for row in target_table(records, notebook, tables).to_dict("records"):
        missing = pd.isna(row["ratio"])
        measured = "" if missing else f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"
        reached = f"{row['reached']}: {row['reason']}" if row["reason"] else row["reached"]
        if records.empty:
            reached = NOT_YET
        rows.append(
            {"what": row["target"], "aim": f"{row['aim']} {row['bar']:g}", "measured": measured, "reached": reached}
        )
    return pd.DataFrame(rows, columns=["what", "aim", "measured", "reached"])


def _headlines(results_root: Path) -> str:
    """What a newcomer wants to know: a few claims per built notebook, and the first of our own aims measured."""
    everything = read_all(results_root)
    rows = [row for stored in everything if stored.notebook.built for row in _headline_rows(stored)]
    words = [found.verdict for stored in everything for _, found in stored.judged]
    parts = [markdown_table(pd.DataFrame(rows)).rstrip()]
    parts += [f"All {len(words)} claims of the ledger: {tally(words)}."]
    parts += [f"{stored.notebook.number}: {sources(stored.records)}" for stored in everything if len(stored.records)]
    return "\n\n".join(parts) + "\n"


def _headline_rows(stored: Stored) -> list[dict[str, str]]:
    name = stored.notebook.name
    rows = []
    for claim, found in stored.judged:
        if claim["id"] in HEADLINES:
            figure = published_text(claim["value"], claim["unit"])
            said = f"*{PAPERS.get(claim['paper'], claim['paper'])}*, {claim['place']}: {claim['statement']}"
            why = "" if found.verdict in (REPRODUCED, NOT_REPRODUCED) else f": {found.reason}"
            rows.append((f"{said}: **{figure}**" if figure else said, found.measured, found.verdict + why))
    if TARGETS.get(name):
        aims = targets_table(stored.records, name, stored.tables)
        first = (aims[aims["measured"] != ""] if aims["measured"].any() else aims).iloc[0]
        reached = {"yes": "reached", "no": "not reached"}.get(first["reached"], first["reached"])
        rows.append((f"nothing; our own aim: {first['what']} {first['aim']}", first["measured"], reached))
    asked = f"[{stored.notebook.question}](notebooks/{name}.ipynb)"
    columns = ("Asked", "Published", "Measured", "Verdict")
    return [dict(zip(columns, (asked if not i else "", *row), strict=True)) for i, row in enumerate(rows)]


TABLES: dict[str, Callable[[Path], str]] = {"headlines": _headlines}
"""The generated tables of the README."""

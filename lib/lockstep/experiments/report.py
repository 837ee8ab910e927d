"""Published - measured - verdict tables, from stored records and the claims ledger alone: nothing is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.analysis.published import CLAIM, CONTRADICTION, UNSAID, read_ledger
from lockstep.analysis.stored import Stored, no_records, read_stored
from lockstep.analysis.targets import Target, target_table
from lockstep.analysis.verdicts import NOT_YET, WORDS, Function, Verdict, judge
from lockstep.engine.job import NO_USE_CASE
from lockstep.experiments.catalogue import PAPERS, Notebook, catalogue
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import checked_claims, experiment

REPORT_COLUMNS = ("claim", "place", "statement", "use_case", "published", "measured", "verdict", "reason", "notebook")
HEADINGS = {"place": "Place", "statement": "Claim", "use_case": "Use case", "published": "Published"}
HEADINGS |= {"measured": "Measured", "verdict": "Verdict", "reason": "Why"}
_UNITS = {"times": " times", "percent": " %", "percentage points": " percentage points"}
LISTS = {CONTRADICTION: "The paper contradicts itself", UNSAID: "Left unsaid by the paper"}
"""Kinds of the ledger's rows that are not judged -> the heading of their list."""
Judged = tuple[dict[str, Any], Verdict]
"""A claim of the ledger, and what records say about it."""


def published_text(value: float, unit: str) -> str:
    """A published figure with its unit, or "" where the claim has none: 15.57 times, 35 KiB, -2.7 percentage points."""
    return "" if pd.isna(value) else f"{value:g}{_UNITS.get(unit, f' {unit}')}"


@dataclass(frozen=True)
class Answered:
    """A notebook, what a run folder holds of it, the verdicts on its claims, and the ledger's rows on it that are no
    claims; the one without a name has what belongs to no notebook."""

    notebook: Notebook
    stored: Stored
    judged: list[Judged]
    targets: Sequence[Target] = ()
    headlines: Sequence[str] = ()  # claims that the README shows
    unjudged: Sequence[dict[str, Any]] = ()

    @property
    def title(self) -> str:
        return self.notebook.name or "Not tied to a notebook"


def published_measured(claims: pd.DataFrame, stored: Stored, rules: Mapping[str, Function]) -> pd.DataFrame:
    """One row per claim, in the ledger's order, with columns REPORT_COLUMNS (all text).

    `stored` is what the claims' notebook stores, and may be empty; `rules` are its experiment's verdict functions.
    """
    return claims_table([(claim, judge(claim, stored, rules)) for claim in claims.to_dict("records")])


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


def unjudged_table(rows: Iterable[Mapping[str, Any]], *, kinds: bool = True) -> str:
    """Rows of the ledger that are no claims as a Markdown table, which has no verdicts; `kinds`: with their kind."""
    columns = ["Place", *(["Kind"] if kinds else []), "About", "Published", "Note"]
    shown = [
        {
            "Place": row["place"],
            "Kind": row["kind"],
            "About": row["statement"],
            "Published": published_text(row["value"], row["unit"]),
            "Note": row["note"],
        }
        for row in rows
    ]
    return markdown_table(pd.DataFrame(shown, columns=columns))


def unjudged_list(answered: Iterable[Answered], kind: str) -> str:
    """All rows of that kind, one of LISTS, as Markdown: a table for each paper, in the order of PAPERS."""
    rows = [row for one in answered for row in one.unjudged if row["kind"] == kind]
    parts = []
    for paper, name in PAPERS.items():
        if own := [row for row in rows if row["paper"] == paper]:
            parts.append(f"*{name}*, {len(own)} rows:\n\n{unjudged_table(own, kinds=False)}")
    return "\n".join(parts)


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


def read_all(results_root: str | Path) -> list[Answered]:
    """Every notebook that is built or named by the ledger, with what is stored under `<results_root>/<notebook>/` and
    the verdicts on its claims. A notebook without records keeps its claims, as not measured yet.

    Raises RecordError for records that can't be read, PublishedError for a faulty ledger.
    """
    claims, ledger = checked_claims(), read_ledger()
    others = ledger[ledger["kind"] != CLAIM]
    known = [*catalogue(), *([Notebook("")] if (ledger["notebook"] == "").any() else [])]
    found = []
    for notebook in known:
        folder = Path(results_root) / notebook.name
        there = bool(notebook.name) and (folder / "records.csv").is_file()
        stored = read_stored(folder) if there else no_records()
        own = experiment(notebook.name) if notebook.built else Experiment(notebook.name, "")
        rows = claims[claims["notebook"] == notebook.name].to_dict("records")
        judged = [(claim, judge(claim, stored, own.verdicts)) for claim in rows]
        beside = others[others["notebook"] == notebook.name].to_dict("records")
        found.append(Answered(notebook, stored, judged, own.targets, own.headlines, beside))
    return found


def report_all(results_root: str | Path) -> str:
    """Every claim of the ledger against the records of a run folder (`read_all`), as Markdown; then where the papers
    contradict themselves, and what they leave unsaid."""
    parts, everything = ["# Published - measured - verdict"], read_all(results_root)
    for found in everything:
        if found.judged:
            table = claims_table(found.judged)
            parts.append(render_markdown(table, found.title, sources(found.stored.records)))
    parts += [f"## {title}\n\n{unjudged_list(everything, kind)}" for kind, title in LISTS.items()]
    return "\n\n".join(parts)


def targets_table(targets: Iterable[Target], stored: Stored) -> pd.DataFrame:
    """Targets as text: what is compared, the aim, what was measured, and whether it is reached."""
    rows = []
    for row in target_table(targets, stored).to_dict("records"):
        missing = pd.isna(row["ratio"])
        measured = "" if missing else f"{row['ratio']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"
        reached = f"{row['reached']}: {row['reason']}" if row["reason"] else row["reached"]
        if stored.records.empty:
            reached = NOT_YET
        rows.append(
            {
                "what": row["target"],
                "aim": f"{row['aim']} {row['threshold']:g}",
                "measured": measured,
                "reached": reached,
            }
        )
    return pd.DataFrame(rows, columns=["what", "aim", "measured", "reached"])

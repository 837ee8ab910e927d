"""Published - measured - answer tables, from stored records and the claims ledger alone: nothing is trained."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.analysis.confidence import told_apart
from lockstep.analysis.judging import corrected, judge
from lockstep.analysis.published import AUDIT, CLAIM, CONTRADICTION, UNSAID, read_ledger
from lockstep.analysis.sentences import counted
from lockstep.analysis.stored import Stored, no_records, read_stored
from lockstep.analysis.targets import Target, target_table
from lockstep.analysis.verdicts import ANSWERS, DECIDED, GRADES, NOT_YET, UNDECIDED, Verdict
from lockstep.engine.job import NO_USE_CASE
from lockstep.engine.units import digits
from lockstep.experiments.catalogue import PAPERS, Notebook, catalogue
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.judged_before import judged_before
from lockstep.experiments.machines import machines_in_short, machines_of_claims
from lockstep.experiments.registry import checked_claims, experiment
from lockstep.records import CONTENDED

REPORT_COLUMNS = (
    "claim", "place", "statement", "use_case", "published", "measured", "answer", "evidence", "reason", "notebook"
)  # fmt: skip
HEADINGS = {"place": "Place", "statement": "Claim", "use_case": "Use case", "published": "Published"}
HEADINGS |= {"measured": "Measured", "answer": "Answer", "evidence": "Evidence", "reason": "Why"}
_UNITS = {"times": " times", "percent": " %", "percentage points": " percentage points"}
LISTS = {
    CONTRADICTION: "The paper contradicts itself",
    UNSAID: "Left unsaid by the paper",
    AUDIT: "Audited: the paper's own arithmetic, and what cannot be otherwise",
}
"""Kinds of the ledger's rows that are not judged -> the heading of their list."""
Judged = tuple[dict[str, Any], Verdict]
"""A claim of the ledger, and what records say about it."""
DAY_MINUTES = 24 * 60


def published_text(value: float, unit: str) -> str:
    """A published figure with its unit, or "" where the claim has none: 15.57 times, 35 KiB, -2.7 percentage points."""
    return "" if pd.isna(value) else f"{value:g}{_UNITS.get(unit, f' {unit}')}"


@dataclass(frozen=True)
class Answered:
    """A notebook, what a run folder holds of it, the verdicts on its claims, and the ledger's rows on it that are no
    claims; the one without a name has what belongs to no notebook."""

    notebook: Notebook
    read: Callable[[], Stored]
    judged: list[Judged]
    targets: Sequence[Target] = ()
    headlines: Sequence[str] = ()  # claims that the README shows
    unjudged: Sequence[dict[str, Any]] = ()
    machine: str = ""  # on what its records were measured, and in which sessions
    machine_in_short: str = ""

    @cached_property
    def stored(self) -> Stored:
        """Read when somebody asks for it: verdicts may be known without."""
        return self.read()

    @property
    def title(self) -> str:
        return self.notebook.name or "Not tied to a notebook"


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
            "answer": found.answer,
            "evidence": found.grade if found.answer in (*DECIDED, UNDECIDED) else "",
            "reason": "; ".join(part for part in (found.reason, time_to_decide(found)) if part),
            "notebook": claim["notebook"],
        }
        for claim, found in judged
    ]
    return pd.DataFrame(rows, columns=list(REPORT_COLUMNS))


def time_to_decide(found: Verdict) -> str:
    """How long deciding an undecided verdict would take, as far as that is known; "" for all others."""
    if found.answer != UNDECIDED:
        return ""
    rounds, minutes = found.rounds_more, found.minutes_more
    if math.isinf(rounds) or minutes > DAY_MINUTES:
        return "a day of measuring would not decide it"
    if math.isnan(rounds):
        return ""
    text = f"about {counted(round(rounds), 'more round')} would decide it"
    return text if math.isnan(minutes) else f"{text}: {counted(max(1, round(minutes)), 'minute')}"


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
        lines.append("| " + " | ".join(" ".join(str(row[name]).split()).replace("|", "\\|") for name in names) + " |")
    return "\n".join(lines) + "\n"


def sessions_list(judged: Iterable[Judged]) -> str:
    """A line for each session of every claim whose sessions differ, as a Markdown list; "" where none do."""
    lines = [f"- {claim['id']}, {own}" for claim, found in judged for own in _apart(found)]
    return "\n".join(["", "Where sessions differ, each by itself:", "", *lines, ""]) if lines else ""


def _apart(found: Verdict) -> list[str]:
    """What each session gave of a verdict's numbers whose sessions differ, after what the number is of."""
    known = [(of, own) for of, number in found.numbers for own in told_apart(str(number))]
    alone = told_apart(f"{found.measured} {found.reason}")  # also of numbers that the verdict only writes down
    return [f"{of}, {own}" if of else own for of, own in known] if [own for _, own in known] == alone else alone


def sources(records: pd.DataFrame) -> str:
    """What was measured: data, measurements, rounds, and how many cells failed and were skipped."""
    if records.empty:
        return "No records are stored."
    counts = records["status"].value_counts()
    others = "".join(f", {counts[name]} {name}" for name in ("failed", "skipped") if name in counts)
    data = " and ".join(sorted(records[records["use_case"] != NO_USE_CASE]["data_source"].unique()))  # others have none
    ok = records[records["status"] == "ok"]
    disturbed = int(ok["reason"].astype(str).str.contains(CONTENDED).sum())
    noted = f" ({disturbed} while other programs ran)" if disturbed else ""
    return f"Data: {data}. {len(ok)} measurements{noted} in {records['round'].nunique()} rounds{others}."


def tally(answers: Sequence[str]) -> str:
    """How often each answer occurs: 3 supported, 1 undecided, 2 need hardware."""
    counts = ((word, list(answers).count(word)) for word in ANSWERS)
    return ", ".join(f"{n} {word.replace('needs', 'need') if n > 1 else word}" for word, n in counts if n)


def render_markdown(table: pd.DataFrame, title: str, note: str = "") -> str:
    """A titled Markdown section with a count of answers, from a `claims_table`."""
    counts = f"Answers: {tally(table['answer'])}."
    return "\n\n".join([f"## {title}", *([note] if note else []), counts, markdown_table(table, HEADINGS)])


def read_all(results_root: str | Path) -> list[Answered]:
    """Every notebook that is built or named by the ledger, with what is stored under `<results_root>/<notebook>/` and
    the verdicts on its claims. A notebook without records keeps its claims, as not measured yet.

    All verdicts are corrected for their number together (`lockstep.analysis.judging.corrected`). Raises RecordError for
    records that can't be read, PublishedError for a faulty ledger.
    """
    claims, ledger = checked_claims(), read_ledger()
    others = ledger[ledger["kind"] != CLAIM]
    notebooks = [*catalogue(), *([Notebook("")] if (ledger["notebook"] == "").any() else [])]
    found = []
    for notebook in notebooks:
        folder = Path(results_root) / notebook.name
        there = bool(notebook.name) and (folder / "records.csv").is_file()
        read = lru_cache(maxsize=1)(partial(read_stored, folder) if there else no_records)
        own = experiment(notebook.name) if notebook.built else Experiment(notebook.name, "")
        rows = claims[claims["notebook"] == notebook.name].to_dict("records")
        known = _judged(folder if there else None, rows, own, read)
        judged = list(zip(rows, known, strict=True))
        beside = others[others["notebook"] == notebook.name].to_dict("records")
        machine = (machines_of_claims(folder), machines_in_short(folder)) if there else ()
        found.append(Answered(notebook, read, judged, own.targets, own.headlines, beside, *machine))
    return _corrected(found)


def _judged(
    folder: Path | None, rows: list[dict[str, Any]], own: Experiment, read: Callable[[], Stored]
) -> list[Verdict]:
    """The verdicts on these claims, each by itself."""

    def compute() -> list[Verdict]:
        return [judge(claim, read(), own.verdicts) for claim in rows]

    return compute() if folder is None else judged_before(folder, rows, own.verdicts, compute)


def _corrected(answered: Sequence[Answered]) -> list[Answered]:
    verdicts = iter(corrected([found for one in answered for _, found in one.judged]))
    return [replace(one, judged=[(claim, next(verdicts)) for claim, _ in one.judged]) for one in answered]


def report_all(results_root: str | Path) -> str:
    """Every claim of the ledger against the records of a run folder (`read_all`), as Markdown; then where the papers
    contradict themselves, what they leave unsaid, and what is only audited."""
    parts, everything = ["# Published - measured - answer"], read_all(results_root)
    parts.append("\n".join(f"- *{grade}*: {meaning}" for grade, meaning in GRADES.items()))
    for found in everything:
        if found.judged:
            table = claims_table(found.judged)
            note = f"{sources(found.stored.records)}{f' Machine: {found.machine}.' if found.machine else ''}"
            parts.append(render_markdown(table, found.title, note) + sessions_list(found.judged))
    parts += [f"## {title}\n\n{unjudged_list(everything, kind)}" for kind, title in LISTS.items()]
    return "\n\n".join(parts)


def report_json(results_root: str | Path) -> str:
    """The same claims for programs: a list with the answer, the grade, its numbers and the machine of each."""
    rows = [
        {
            **{name: claim[name] for name in ("id", "paper", "place", "statement", "use_case", "unit", "notebook")},
            "published": None if pd.isna(claim["value"]) else claim["value"],
            "answer": found.answer,
            "evidence": found.grade if found.answer in (*DECIDED, UNDECIDED) else None,
            "measured": found.measured,
            "numbers": [
                {"of": of, "value": _finite(number.value), "low": _finite(number.low), "high": _finite(number.high),
                 "rounds": number.rounds}
                for of, number in found.numbers
            ],
            "chance": found.chance if found.answer in DECIDED else None,
            "minutes_more": _finite(found.minutes_more) if found.answer == UNDECIDED else None,
            "reason": found.reason,
            "machine": answered.machine or None,
            "sessions_differ": _apart(found),
        }
        for answered in read_all(results_root)
        for claim, found in answered.judged
    ]  # fmt: skip
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if math.isfinite(value) else None


def targets_table(targets: Iterable[Target], stored: Stored) -> pd.DataFrame:
    """Targets as text: what is compared, the aim, what was measured, and whether it is reached."""
    rows = []
    for row in target_table(targets, stored).to_dict("records"):
        measured = "" if pd.isna(row["ratio"]) else f"{digits(row['ratio'])} {row['interval']}".rstrip()
        joint = " " if row["reason"].startswith("(") else ": "  # sessions that differ stand in parentheses
        reached = f"{row['reached']}{joint}{row['reason']}" if row["reason"] else row["reached"]
        rows.append(
            {
                "what": row["target"],
                "aim": f"{row['aim']} {row['threshold']:g}",
                "measured": measured,
                "reached": NOT_YET if stored.records.empty else reached,
            }
        )
    return pd.DataFrame(rows, columns=["what", "aim", "measured", "reached"])

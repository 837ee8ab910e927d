"""What notebook 00 shows: all notebooks, machines, claims and targets of a run folder, as tables and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lockstep.analysis.published import AUDIT, CONTRADICTION, UNSAID
from lockstep.analysis.seeds import MARGIN
from lockstep.analysis.statistics import MIN_ROUNDS
from lockstep.analysis.stored import Stored, once
from lockstep.analysis.verdicts import (
    ANSWERS,
    CONTRADICTED,
    GRADES,
    NEEDS_HARDWARE,
    NOT_YET,
    SUPPORTED,
    TOLERANCE,
    UNDECIDED,
)
from lockstep.experiments.catalogue import PAPERS
from lockstep.experiments.report import (
    Answered,
    Judged,
    claims_table,
    markdown_table,
    read_all,
    sources,
    tally,
    targets_table,
    unjudged_list,
)
from lockstep.records import read_run
from lockstep.records.places import repository_root

NUMBERS: tuple[str, ...] = ("claim", "notebook", "place", "statement", "use_case", "unit")
NUMBERS += ("published", "of", "measured", "low", "high", "answer", "evidence")


@dataclass(frozen=True)
class Overview:
    """Everything that is stored in one run folder. Links lead to the notebooks beside 00: the committed ones, or in a
    run folder the executed ones."""

    folder: Path
    answered: list[Answered]
    executed: bool

    def link(self, one: Answered, text: str) -> str:
        """`text` as a link to the notebook, or as it is where there is none to open."""
        name = one.notebook.name
        if self.executed:
            there = (self.folder / name / "executed.ipynb").is_file()
            return f"[{text}](../{name}/executed.ipynb)" if name and there else text
        return f"[{text}]({name}.ipynb)" if one.notebook.built else text

    def notebooks(self) -> str:
        """What each notebook asks, how many claims it can speak to, and what is stored of it."""
        rows = []
        for one in self.answered:
            if not one.notebook.name:
                continue
            asks = self.link(one, one.notebook.subject) if one.notebook.built else one.notebook.subject
            rows.append(
                {"": one.notebook.number, "asks": asks, "claims": len(one.judged) or "", "records": self._state(one)}
            )
        counts = [sum(claim["paper"] == paper for s in self.answered for claim, _ in s.judged) for paper in PAPERS]
        held = [f"*{name}* {count or 'none yet'}" for name, count in zip(PAPERS.values(), counts, strict=True)]
        return f"{markdown_table(pd.DataFrame(rows))}\nClaims in the ledger, by paper: {', '.join(held)}."

    def _state(self, one: Answered) -> str:
        if not one.notebook.built:
            return "not built yet"
        if one.notebook.number == "00":
            return "measures nothing: it reads what the others stored"
        return sources(one.stored.records) if len(one.stored.records) else "none are stored here: not measured yet"

    def machines(self) -> str:
        """Where the stored records come from, a row per session of a notebook."""
        rows = [
            _machine_row(self.link(one, one.notebook.number), session)
            for one in self.measured
            for session in read_run(self.folder / one.notebook.name)["sessions"]
        ]
        return markdown_table(pd.DataFrame(rows)) if rows else "No records are stored in this run folder."

    @property
    def measured(self) -> list[Answered]:
        """The notebooks with records."""
        return [one for one in self.answered if len(one.stored.records)]

    def counts(self) -> pd.DataFrame:
        """Verdicts per notebook: a column for each word, and `claims`, their sum. A last row adds all up."""
        rows = {}
        for one in self.answered:
            words = [found.answer for _, found in one.judged]
            if words:
                rows[one.notebook.number or "none"] = {word: words.count(word) for word in ANSWERS} | {
                    "claims": len(words)
                }
        table = pd.DataFrame.from_dict(rows, orient="index", columns=[*ANSWERS, "claims"])
        table.loc["all"] = table.sum()
        return table.rename_axis("notebook")

    def numbers(self) -> pd.DataFrame:
        """Published beside measured where both are numbers of the same unit, with columns NUMBERS; `of` says which of
        several measurements a row is, `low` and `high` are its 95 % interval."""
        rows = []
        for one in self.answered:
            for claim, found in one.judged:
                for of, ratio in found.numbers if pd.notna(claim["value"]) else ():
                    known = {name: claim[name] for name in ("place", "statement", "use_case", "unit")}
                    known |= {"claim": claim["id"], "notebook": one.notebook.number, "published": claim["value"]}
                    known |= {"of": of} | dict(zip(("measured", "low", "high"), ratio.columns, strict=True))
                    rows.append(known | {"answer": found.answer, "evidence": found.grade})
        return pd.DataFrame(rows, columns=list(NUMBERS))

    def claims(self) -> str:
        """Published - measured - verdict for every claim, under a heading for each notebook and paper."""
        parts = []
        for one in self.answered:
            for paper in dict.fromkeys(claim["paper"] for claim, _ in one.judged):
                judged = [(claim, found) for claim, found in one.judged if claim["paper"] == paper]
                parts.append(self._section(one, str(paper), judged))
        return "\n\n".join(parts)

    def _section(self, one: Answered, paper: str, judged: list[Judged]) -> str:
        number = one.notebook.number
        title = f"{number} · {one.notebook.subject}" if number else one.title
        status = " Not built yet." if number and not one.notebook.built else ""
        shown = claims_table(judged).assign(notebook=self.link(one, number) if number else "")
        shown["statement"] = [_with_use_case(claim) for claim, _ in judged]
        columns = ["place", "statement", "published", "measured", "answer", "evidence", "reason", "notebook"]
        table = markdown_table(shown.rename(columns={"notebook": ""}), [*columns[:-1], ""])
        return f"### {title}\n\n*{PAPERS.get(paper, paper)}*: {tally(shown['answer'])}.{status}\n\n{table}"

    def targets(self) -> str:
        """What this repository aims at, a table for each notebook that has such targets."""
        parts = []
        for one in self.answered:
            if one.targets:
                title = self.link(one, f"{one.notebook.number} · {one.notebook.subject}")
                table = targets_table(one.targets, one.stored)
                parts.append(f"### {title}\n\n{markdown_table(table)}")
        return "\n\n".join(parts)


def read_overview(results: str | Path, executed: bool = False) -> Overview:
    """Everything in a run folder, whose path is relative to the repository, as in notebooks. It may hold nothing.

    `executed`: link to the executed notebooks in that folder. Raises RecordError for records that can't be read.
    """
    folder = repository_root() / results
    return Overview(folder, read_all(folder), executed)


@once
def overview(stored: Stored) -> Overview:
    """The overview of the run folder that the notebook's parameters name; nothing is stored of the notebook itself."""
    return read_overview(stored.assumptions["results"], executed=stored.assumptions["measure"])


def how_to_read() -> str:
    """What the answers mean, with the rules that the code applies."""
    meaning = {
        SUPPORTED: f"our evidence says the same. Of a published number: the whole 95 % interval lies within "
        f"{TOLERANCE:.0%} of it (accuracies and gains in percent: {MARGIN:g} points). Of a direction: the whole "
        "interval lies on that side of 1, beyond what two runs of the same cell differ by",
        CONTRADICTED: "our evidence says otherwise, with the whole interval",
        UNDECIDED: f"the interval allows both, or there are fewer than {MIN_ROUNDS} quiet rounds, or the answer does "
        "not survive the correction for the number of all claims (Holm); beside it stands how long deciding takes",
        NEEDS_HARDWARE: "neither a measurement nor a bound nor a model can speak on this machine; the reason says what "
        "it would take",
        NOT_YET: "no records",
    }
    graded = "\n".join(f"- *{grade}*: {text}." for grade, text in GRADES.items())
    words = "\n".join(f"- **{word}**: {meaning[word]}." for word in ANSWERS)
    return f"{words}\n\nThe evidence behind an answer:\n\n{graded}"


def _with_use_case(claim: Mapping[str, Any]) -> str:
    statement, use_case = str(claim["statement"]), str(claim["use_case"])
    said = use_case in ("both", "other", "") or use_case in statement
    return statement if said else f"{statement} ({use_case})"


def _machine_row(notebook: str, session: dict[str, Any]) -> dict[str, str]:
    machine, versions, git = session["machine"], session["versions"], session["git"]
    cores = str(machine["cores"])
    if machine["cores_total"] != machine["cores"]:
        cores += f" of {machine['cores_total']}"
    commit = str(git["commit"] or "unknown")[:8] + (" and uncommitted changes" if git["dirty"] else "")
    return {
        "": notebook,
        "day": str(session["day"]),
        "CPU": str(machine["cpu"]),
        "cores": cores,
        "memory": f"{machine['memory_bytes'] / 2**30:.0f} GiB",
        "bfloat16 units": str(machine["bfloat16"]),
        "GPU": ", ".join(machine["gpu"]) or "none",
        "system": f"{machine['os']} {machine['kernel']}",
        "versions": ", ".join(
            f"{name} {versions[name]}" for name in ("python", "torch", "numpy") if versions.get(name)
        ),
        "commit": commit,
    }


def _numbers(stored: Stored) -> pd.DataFrame:
    table = overview(stored).numbers()
    columns = ["notebook", "place", "use_case", "of", "unit", "published", "measured", "low", "high"]
    return table[[*columns, "answer", "evidence"]].round(2)


TABLES: Mapping[str, Callable[[Stored], pd.DataFrame]] = {
    "verdicts": lambda stored: overview(stored).counts(),
    "numbers": _numbers,
}
TEXTS: Mapping[str, Callable[[Stored], str]] = {
    "notebooks": lambda stored: overview(stored).notebooks(),
    "machines": lambda stored: overview(stored).machines(),
    "how to read": lambda stored: how_to_read(),
    "claims": lambda stored: overview(stored).claims(),
    "contradictions": lambda stored: unjudged_list(overview(stored).answered, CONTRADICTION),
    "unsaid": lambda stored: unjudged_list(overview(stored).answered, UNSAID),
    "audits": lambda stored: unjudged_list(overview(stored).answered, AUDIT),
    "targets": lambda stored: overview(stored).targets(),
}
"""Markdown, since its tables hold links to the notebooks."""

"""What a newcomer wants to know: a few claims of each notebook beside what was measured, for docs/claims.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lockstep.analysis.verdicts import DECIDED
from lockstep.experiments.catalogue import PAPERS
from lockstep.experiments.report import (
    Answered,
    markdown_table,
    published_text,
    read_all,
    sources,
    tally,
    targets_table,
)


def headlines_table(results_root: Path) -> str:
    """A few claims per built notebook, and the first of our own aims measured, as Markdown."""
    everything = read_all(results_root)
    rows = [row for answered in everything if answered.notebook.built for row in _headline_rows(answered)]
    words = [found.answer for answered in everything for _, found in answered.judged]
    parts = [markdown_table(pd.DataFrame(rows)).rstrip()]
    parts += [f"All {len(words)} claims of the ledger: {tally(words)}."]
    parts += [
        f"{answered.notebook.number}: {sources(answered.stored.records)}"
        for answered in everything
        if len(answered.stored.records)
    ]
    return "\n\n".join(parts) + "\n"


def _headline_rows(answered: Answered) -> list[dict[str, str]]:
    rows = []
    for claim, found in answered.judged:
        if claim["id"] in answered.headlines:
            figure = published_text(claim["value"], claim["unit"])
            said = f"*{PAPERS.get(claim['paper'], claim['paper'])}*, {claim['place']}: {claim['statement']}"
            why = "" if found.answer in DECIDED else f": {found.reason}"
            rows.append((f"{said}: **{figure}**" if figure else said, found.measured, found.answer + why))
    if answered.targets:
        aims = targets_table(answered.targets, answered.stored)
        first = (aims[aims["measured"] != ""] if aims["measured"].any() else aims).iloc[0]
        word, colon, remark = first["reached"].partition(":")
        reached = {"yes": "reached", "no": "not reached"}.get(word, word) + colon + remark
        rows.append((f"nothing; our own aim: {first['what']} {first['aim']}", first["measured"], reached))
    asked = f"[{answered.notebook.question}](../notebooks/{answered.notebook.name}.ipynb)"
    columns = ("Asked", "Published", "Measured", "Answer")
    return [dict(zip(columns, (asked if not i else "", *row), strict=True)) for i, row in enumerate(rows)]

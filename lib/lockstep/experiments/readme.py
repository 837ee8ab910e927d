"""The generated tables of the README and of other Markdown files, from stored records."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from lockstep.analysis.verdicts import NOT_REPRODUCED, REPRODUCED
from lockstep.engine.files import write_atomically
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


class ReportError(ValueError):
    """A Markdown file whose tables can't be made; the message names the file or the table, and the fix."""


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


def _headlines(results_root: Path) -> str:
    """What a newcomer wants to know: a few claims per built notebook, and the first of our own aims measured."""
    everything = read_all(results_root)
    rows = [row for answered in everything if answered.notebook.built for row in _headline_rows(answered)]
    words = [found.verdict for answered in everything for _, found in answered.judged]
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
            why = "" if found.verdict in (REPRODUCED, NOT_REPRODUCED) else f": {found.reason}"
            rows.append((f"{said}: **{figure}**" if figure else said, found.measured, found.verdict + why))
    if answered.targets:
        aims = targets_table(answered.targets, answered.stored)
        first = (aims[aims["measured"] != ""] if aims["measured"].any() else aims).iloc[0]
        reached = {"yes": "reached", "no": "not reached"}.get(first["reached"], first["reached"])
        rows.append((f"nothing; our own aim: {first['what']} {first['aim']}", first["measured"], reached))
    asked = f"[{answered.notebook.question}](notebooks/{answered.notebook.name}.ipynb)"
    columns = ("Asked", "Published", "Measured", "Verdict")
    return [dict(zip(columns, (asked if not i else "", *row), strict=True)) for i, row in enumerate(rows)]


TABLES: dict[str, Callable[[Path], str]] = {"headlines": _headlines}
"""The generated tables of the README."""

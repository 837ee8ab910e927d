"""The generated tables of the README and of other Markdown files, from stored records and declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path


class ReportError(ValueError):
    """A Markdown file whose tables can't be made; the message names the file or the table, and the fix."""


def fill_tables(text: str, results_root: str | Path) -> str:
    """`text` (Markdown) with each `<!-- table:NAME -->` ... `<!-- /table -->` block made anew from stored records.

    NAME is a key of TABLES. Raises ReportError for another name or a block without its end, RecordError where the
    records can't be read.
    """
    _check(text)

    def filled(block: re.Match[str]) -> str:
        return f"<!-- table:{block['name']} -->\n{TABLES[block['name']](Path(results_root))}\n<!-- /table -->"

    return _BLOCK.sub(filled, text)


def read_page(path: Path) -> str:
    """The text of a Markdown file. Raises ReportError for one that can't be read or whose tables can't be filled."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ReportError(f"{path} can't be read ({why}); give --fill an existing Markdown file") from error
    if "<!-- table:" not in text:
        wanted = " or ".join(f"<!-- table:{name} --> … <!-- /table -->" for name in TABLES)
        raise ReportError(f"{path} holds no table to fill; write {wanted} where it shall stand")
    try:
        _check(text)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    return text


def _check(text: str) -> None:
    """Raises ReportError for a table that does not exist, or one without its end."""
    for name in (names := re.findall(r"<!-- table:(.*?) -->", text)):
        if name not in TABLES:
            raise ReportError(f"table {name!r} does not exist; there are: {', '.join(TABLES)}")
    if (blocks := len(_BLOCK.findall(text))) < len(names):
        raise ReportError(
            f"{len(names)} tables begin and only {blocks} end; write <!-- /table --> on a line of its own after each "
            f"of {', '.join(names)}"
        )


def _headlines(results_root: Path) -> str:
    from lockstep.experiments.headlines import headlines_table  # on demand: a wrong file is refused without pandas

    return headlines_table(results_root)


def _minutes(results_root: Path) -> str:
    from lockstep.experiments.minutes import minutes_table

    return minutes_table(results_root)


def _findings(results_root: Path) -> str:
    from lockstep.experiments.answering import readme_findings

    return readme_findings(results_root)


def _notebooks(results_root: Path) -> str:
    from lockstep.experiments.answering import notebooks_table

    return notebooks_table(results_root)


def _advice(results_root: Path) -> str:
    from lockstep.experiments.advice import advice_table

    return advice_table(results_root)


def _epochs(results_root: Path) -> str:
    from lockstep.analysis.stored import read_stored
    from lockstep.experiments.e13_advisor.epochs import epochs_table
    from lockstep.experiments.report import markdown_table

    folder = results_root / "13_advisor"
    if not (folder / "records.csv").is_file():
        return "not measured yet\n"
    return markdown_table(epochs_table(read_stored(folder)))


def _delays(_: Path) -> str:
    from lockstep.engine.delays import KINDS

    return _declared(
        (name, f"{kind.family.removesuffix('s')}: {str(kind.__doc__).splitlines()[0]}", kind.options_kind)
        for name, kind in KINDS.items()
    )


def _forecasters(_: Path) -> str:
    from lockstep.engine.forecasts import FORECASTS

    return _declared((name, kind.does, kind.options_kind) for name, kind in FORECASTS.items())


def _policies(_: Path) -> str:
    from lockstep.engine.policies import POLICIES

    return _declared((name, f"{kind.label}: {kind.does}", kind.Options) for name, kind in POLICIES.items())


def _declared(rows: Iterable[tuple[str, str, type]]) -> str:
    """What code declares by name: what each does, and its options with their defaults."""
    import pandas as pd

    from lockstep.engine.options import options_of
    from lockstep.experiments.report import markdown_table

    table = []
    for name, does, options in rows:
        given = [
            f"`{key}={one.default}` {one.help}" + f" ({one.allowed})" * bool(one.choices)
            for key, one in options_of(options).items()
        ]
        table.append({"name": f"`{name}`", "what it does": does, "options and defaults": "<br>".join(given) or "none"})
    return markdown_table(pd.DataFrame(table))


_BLOCK = re.compile(r"<!-- table:(?P<name>\w+) -->\n.*?<!-- /table -->", re.DOTALL)
TABLES: dict[str, Callable[[Path], str]] = {
    "advice": _advice, "delays": _delays, "epochs": _epochs, "findings": _findings, "forecasters": _forecasters,
    "headlines": _headlines, "minutes": _minutes, "notebooks": _notebooks, "policies": _policies,
}  # fmt: skip
"""The generated parts of the README and of `docs/`."""

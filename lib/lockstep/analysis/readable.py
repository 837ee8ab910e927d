"""Tables as a reader sees them: headings in words with units, intervals beside their numbers, no NaN and no True.

A table stays the data frame that it is; only how it shows itself differs, in a notebook and as text. So nothing that
computes with a table depends on how it is worded.
"""

from __future__ import annotations

import html
import math
import numbers
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from lockstep.analysis.column_words import UNITS, VALUES, WORDS
from lockstep.analysis.figures.style import label
from lockstep.engine.job import IDENTITY
from lockstep.engine.job.strategies import RUNGS, STRATEGIES
from lockstep.engine.units import bits_text, bytes_text

MISSING = "\N{EN DASH}"
_ENDS = ("_low", "_high")
_WORD = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+")
_NOTEBOOK = re.compile(r"(\d\d)_[a-z0-9_]+")
_STRATEGY = re.compile(
    r"\b(?:" + "|".join(sorted((n for n in (*STRATEGIES, *RUNGS) if "_" in n), key=len, reverse=True)) + r")\b(?!=)"
)
_SIZES = ("bytes", "bytes_sent", "link_bytes_sent", "link_bytes_busiest")
_NOTHING = "No rows are stored for this table yet."
_FEW = 3  # from so many rows on, what is alike in all of them is said once
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class ReadableTable(pd.DataFrame):
    """A data frame that shows itself in words, with `attrs["remark"]` below it, if there is one."""

    @property
    def _constructor(self) -> type[ReadableTable]:
        return ReadableTable

    def _repr_html_(self) -> str:
        if self.empty:
            return f"<p>{_NOTHING}</p>"
        body, alike = worded(self)
        note = "".join(f"<p>{html.escape(text)}</p>" for text in self._below(alike))
        with pd.option_context("display.max_colwidth", None):  # a reason is read to its end, or it is none
            return body.to_html(index=False, border=1) + note

    def __repr__(self) -> str:
        if self.empty:
            return _NOTHING
        body, alike = worded(self)
        return "\n".join([body.to_string(index=False), *self._below(alike)])

    def _below(self, alike: Sequence[str]) -> list[str]:
        remark = self.attrs.get("remark")
        return ([f"In all rows: {'; '.join(alike)}."] if alike else []) + ([remark] if remark else [])


def worded(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table with headings and cells in words, and what is alike in all its rows and so has no column."""
    shown: dict[str, list[str]] = {}
    alike: list[str] = []
    table = _with_density(_with_its_index(table))
    for name, columns in _with_intervals([str(column) for column in table.columns]).items():
        cells = [_cell(name, values) for values in table.iloc[:, columns].itertuples(index=False)]
        different = set(cells)
        heading = words(name)
        if name == "variant" and different <= {"once"}:
            continue  # nothing was measured twice
        if different <= {"", MISSING} and len(cells):
            continue  # a column of nothing: nobody has a reason, no cell failed
        if name == "status" and different == {"ok"}:
            continue
        if name in IDENTITY and len(different) == 1 and len(cells) >= _FEW:
            alike.append(f"{heading} {cells[0]}")
            continue
        shown[_unique(heading, shown)] = cells
    return pd.DataFrame(shown, dtype=object), alike


def _with_its_index(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its index as columns where it says something: row numbers do not. Columns that are values of
    something are named by it where they are numbers, as in "nodes 4"."""
    over = table.columns.name
    table = pd.DataFrame(table)
    if isinstance(table.columns, pd.MultiIndex):
        table = table.set_axis([", ".join(map(str, column)) for column in table.columns], axis="columns")
    elif over is not None:
        names = [column if isinstance(column, str) else f"{words(str(over))} {column}" for column in table.columns]
        table = table.set_axis(names, axis="columns")
    said = isinstance(table.index, pd.MultiIndex) or table.index.name is not None or table.index.dtype == object
    return table.reset_index(names=None if any(table.index.names) else "what") if said else table


def _with_density(table: pd.DataFrame) -> pd.DataFrame:
    """The table with top-k called by the share that each row sends, which its label can't know."""
    if not {"strategy", "density"} <= set(table.columns):
        return table
    both = zip(table["strategy"], table["density"], strict=True)
    return table.assign(strategy=[f"top-k, {100 * sent:g} %" if name == "topk" else name for name, sent in both])


def words(name: str) -> str:
    """A column's heading: `step_seconds` is "step (s)"."""
    if name in WORDS:
        return WORDS[name]
    for end in UNITS:
        if name.endswith(end):
            return f"{name.removesuffix(end).replace('_', ' ')} ({UNITS[end]})"
    if name.endswith("_sessions"):
        return f"{words(name.removesuffix('_sessions'))}, by session"
    return name.replace("_", " ")


def _with_intervals(names: Sequence[str]) -> dict[str, list[int]]:
    """The places of the columns that are shown as one, by its name: a number and both ends of its interval."""
    found: dict[str, list[int]] = {}
    last = ""
    for place, name in enumerate(names):
        own = name
        if name in ("low", "high"):
            own = last
        elif name.endswith(_ENDS):
            own = name.rpartition("_")[0]
        found.setdefault(own, []).append(place)
        last = own
    return found


def _cell(name: str, values: Sequence[Any]) -> str:
    """One cell of what may be up to three columns: a number, or a number and its interval."""
    texts = [_text(name, value) for value in values]
    if len(texts) == 1:
        return texts[0]
    *number, low, high = texts
    none = {"", MISSING}
    if len(texts) == 2:
        return MISSING if {low, high} <= none else f"[{low}, {high}]"
    if number[0] in none:
        return MISSING
    return number[0] if {low, high} <= none or low == high == number[0] else f"{number[0]} [{low}, {high}]"


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return _plain(name, value)
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "yes" if value else "no"
    if isinstance(value, numbers.Number):
        return _number(name, float(value))  # type: ignore[arg-type]
    return str(value)


def _plain(name: str, value: str) -> str:
    """A text without the names that only the code knows. Options, which are typed as they stand, stay."""
    value = {"nan": MISSING, "True": "yes", "False": "no", "None": MISSING}.get(value, value)
    value = VALUES.get(name, {}).get(value, value)
    value = _NOTEBOOK.fullmatch(value)[1] if _NOTEBOOK.fullmatch(value) else value  # type: ignore[index]
    known = value in STRATEGIES or value in RUNGS
    if known and (name in ("strategy", "base") or "_" in value):
        return label(value)
    if _WORD.fullmatch(value) or name == "name":
        return WORDS.get(value, value.replace("_", " "))
    return _STRATEGY.sub(lambda found: label(found[0]), value)


def _number(name: str, value: float) -> str:
    """At most four digits: 1.786, 53.71, 1209, 1.28·10¹²; bytes and bits with their prefix."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if name in _SIZES or (name.endswith("_bytes") and "seconds" not in name):
        return bytes_text(value)
    if name.endswith("_bits_per_second"):
        return bits_text(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 1e-4 <= abs(value) < 1e6:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    digits, _, exponent = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}·10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def _unique(heading: str, known: dict[str, Any]) -> str:
    """Two columns of one name would become one."""
    return heading if heading not in known else f"{heading} (2)"

"""What a run folder holds of one notebook: the one thing that figures, tables, findings, verdicts and targets read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pandas as pd

from lockstep.engine.job import LEARNING
from lockstep.records import COLUMNS, CONTENDED, read_records, read_tables

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Stored:
    """Records, a row per repetition of a cell, and what was traced beside them; both may be empty."""

    records: pd.DataFrame
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    """What a reader assumes and nothing measured, by name: an experiment's `drawn_only` parameters, of its notebook."""

    @cached_property
    def quiet(self) -> Stored:
        """The same without the rounds in which other programs used the machine: verdicts rest on these alone."""
        learnt = self.records["experiment"].isin(LEARNING)  # nobody else's work changes what is learnt
        disturbed = self.records["reason"].astype(str).str.contains(CONTENDED) & ~learnt
        if not disturbed.any():
            return self
        rounds = set(self.records.loc[disturbed, "round"])
        tables = {
            name: table[~table["round"].isin(rounds)] if "round" in table else table
            for name, table in self.tables.items()
        }
        return Stored(self.records[learnt | ~self.records["round"].isin(rounds)], tables, self.assumptions)

    def table(self, name: str) -> pd.DataFrame:
        """A traced table such as `resources`; without rows and columns where nothing of the kind was traced."""
        return self.tables.get(name, pd.DataFrame())

    def of(self, experiment: str) -> pd.DataFrame:
        """The records whose column `experiment` holds this name."""
        return self.records[self.records["experiment"] == experiment]


def once(compute: Callable[[Stored], Value]) -> Callable[[Stored], Value]:
    """As a decorator: what is computed of a run folder is computed once, however many figures and verdicts read it."""
    known: WeakKeyDictionary[Stored, Value] = WeakKeyDictionary()

    @wraps(compute)
    def found(stored: Stored) -> Value:
        if stored not in known:
            known[stored] = compute(stored)
        return known[stored]

    return found


def no_records() -> Stored:
    """What is stored of a notebook that has not run: all columns, no rows."""
    return Stored(pd.DataFrame(columns=list(COLUMNS)))


def read_stored(folder: Path) -> Stored:
    """Everything in a results folder. Raises RecordError for files that can't be read, also if there are none."""
    # A copy has its columns of one type side by side in memory, which makes choosing rows several times as fast.
    return Stored(read_records(folder).copy(), read_tables(folder))

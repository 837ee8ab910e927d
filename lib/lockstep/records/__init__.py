"""The results schema, and the only code that writes it.

    results/<run>/<notebook>/   records.csv  one row per cell and round, never only means
                                steps.csv    every measured step of every row
                                run.json     parameters, and the sessions: machine, commit, day
                                resources.csv, figures/, executed.ipynb

The unit of writing and of resuming is a *round*: the cells of one comparison, measured back to back. A round is written
whole (temporary file, fsync, rename) or not at all, so a killed run loses at most the round it was in.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.records.checking_run import read_run
    from lockstep.records.folder import RunFolder
    from lockstep.records.reading import read_records, read_tables, read_traced_table, repeated_by_seed
    from lockstep.records.schema import (
        ADDED,
        COLUMNS,
        COMPUTED,
        CONTENDED,
        MEASURED,
        MEASUREMENTS,
        MEMORY,
        OUTCOME,
        SCHEMA_VERSION,
        SIMULATED,
        TABLES,
        TEXTS_OF_TABLES,
        TRACE,
        Column,
        RecordError,
        Row,
        check_row,
        make_row,
    )
    from lockstep.records.traced import write_computed_table

__all__ = [
    "ADDED",
    "COLUMNS",
    "COMPUTED",
    "CONTENDED",
    "MEASURED",
    "MEASUREMENTS",
    "MEMORY",
    "OUTCOME",
    "SCHEMA_VERSION",
    "SIMULATED",
    "TABLES",
    "TEXTS_OF_TABLES",
    "TRACE",
    "Column",
    "RecordError",
    "Row",
    "RunFolder",
    "check_row",
    "make_row",
    "read_records",
    "read_run",
    "read_tables",
    "read_traced_table",
    "repeated_by_seed",
    "write_computed_table",
]


def __getattr__(name: str) -> Any:
    # On demand: where the repository is must be known without waiting for pandas.
    if name in __all__:
        for module in ("schema", "reading", "folder", "traced", "checking_run"):
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

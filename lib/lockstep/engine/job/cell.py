"""The first part of a job: which cell of which grid it is, and its names for WHAT x WHERE x HOW.

The parts of a job build on each other, one file each, and each adds the checks for which all that it needs is known:

    Cell  <-  Agreement  <-  Where  <-  Cut  <-  What  <-  Execution  <-  Clock  <-  Sizes  <-  Job
    names     HOW            WHERE      the      the       how a step     how long,   of the
                                        model    training  is computed    which round network

Fields stand in the order of the columns of records.csv, so a part further down begins where the one above it ends.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from lockstep.engine.declared import Values
from lockstep.engine.options import JobError, Option, option, options_of

NO_USE_CASE = "none"
"""Of rows that measure the machine, not training."""


@dataclass(frozen=True)
class Cell:
    """Names: each of them stands for something that has a table or a file of its own."""

    experiment: str = option("speed", "which of a notebook's experiments the cell belongs to")
    use_case: str = option("SimpleBig", "WHAT: the model and its images")
    data_source: str = option("synthetic", "whose images", choices=("real", "synthetic", "own"))
    images: int = option(0, "training images of the data set; 0: not known yet", least=0)
    strategy: str = option("sequential", "the row's name in a notebook: a launcher, a sync and their options")
    launcher: str = option("threads", "WHERE: who starts the workers")
    sync: str = option("local", "HOW: how replicas agree")

    def __post_init__(self) -> None:
        self.check()

    @classmethod
    @functools.cache
    def options(cls) -> dict[str, Option]:
        """What each field may hold, by name, in the order of the columns."""
        return options_of(cls)

    @property
    def values(self) -> Values:
        """All fields by name, as strategies' declarations read them."""
        return vars(self)

    def check(self) -> None:
        """Raises JobError, which names the field, its value and the fix. Each part adds its own rules."""
        for name, option_ in self.options().items():
            if (value := getattr(self, name)) is not option_.default:  # those `options_of` has checked, once
                option_.check(value)

    def changed(self, *names: str) -> list[str]:
        """Those of the fields `names` that do not hold their default."""
        return [name for name in names if getattr(self, name) != self.options()[name].default]

    def refuse_changed(self, *names: str, why: str) -> None:
        """Raises JobError for a field that must hold its default; `why` follows its name and value."""
        for name in self.changed(*names):
            raise JobError(f"{name}={getattr(self, name)!r} {why}")

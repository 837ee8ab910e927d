"""The pool: learning curves of settings drawn at random and trained to the end, as a run folder holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockstep.analysis.stored import Stored, once, read_stored
from lockstep.engine.job import Job, JobError
from lockstep.tuning.space import NAMES, Space

TRIALS, CURVES = "trials", "curves"
"""The traced tables: a row per setting, and a row per setting and epoch."""
SPACE = "notebooks/spaces/convlstm.yaml"
"""The notebook's space, from the repository's root."""


@dataclass(frozen=True)
class StoredPool:
    """Settings that were trained, in the order of their numbers, of one space and one number of epochs and images."""

    trials: pd.DataFrame  # indexed by number
    curves: pd.DataFrame
    names: tuple[str, ...]  # of the space

    @cached_property
    def whole(self) -> pd.DataFrame:
        """The settings that were trained to the end; a loss that is no finite number ended the others."""
        return self.trials[self.trials["state"] == "finished"]

    @property
    def epochs(self) -> int:
        return int(self.trials["epochs"].iloc[0])

    @property
    def images(self) -> int:
        """Of the training folder, a fifth of them held out."""
        return int(self.trials["images"].iloc[0])

    @property
    def held_out(self) -> int:
        """Images that a score is of."""
        return int(self.trials["held_out"].iloc[0])

    def values(self, measure: str = "score") -> NDArray[np.float64]:
        """[settings, epochs] of all that were trained to the end, in the order of `whole`."""
        own = self.curves[self.curves["number"].isin(self.whole.index)]
        wide = own.pivot_table(index="number", columns="epoch", values=measure)
        return wide.reindex(self.whole.index).to_numpy(float)

    @property
    def epoch_seconds(self) -> NDArray[np.float64]:
        """[settings]: the mean seconds of a core for an epoch: of CPU time, which others do not stretch."""
        return (self.whole["cpu_seconds"] / self.epochs).to_numpy(float)

    def setting(self, number: int) -> dict[str, Any]:
        """What the job of that setting is given."""
        row = self.trials.loc[number]
        return {name: typed(name, row[name]) for name in self.names if not pd.isna(row[name])}

    def best(self, count: int, below: int | None = None) -> list[int]:
        """The numbers of the settings with the highest scores after the last epoch; of those numbered `below` a number
        alone, if one is given."""
        last = pd.Series(self.values()[:, -1], index=self.whole.index)
        last = last if below is None else last[last.index < below]
        return [int(number) for number in last.sort_values(ascending=False, kind="stable").index[:count]]


def typed(name: str, value: Any) -> Any:
    """A value of a table as the job's option of that name has it: a table knows neither yes and no, nor whole numbers
    in a column that is empty elsewhere."""
    return type(Job.options()[name].default)(value)


@once
def pool_in(stored: Stored) -> StoredPool | None:
    """The pool that is stored, of the space, epochs and images of which most settings are there; None for none."""
    trials, curves = stored.table(TRIALS), stored.table(CURVES)
    if trials.empty or curves.empty:
        return None
    kinds = trials.groupby(["space", "epochs", "images"], sort=False)
    _, own = max(kinds, key=lambda kind: len(kind[1]))
    own = own.drop_duplicates("number").set_index("number").sort_index()
    names = tuple(name for name in NAMES if name in own)
    return StoredPool(own, curves[curves["round"].isin(own["round"])], names)


def pool_of(folder: Path) -> tuple[Stored, StoredPool] | None:
    """What a run folder holds, with its pool; None where nothing of the kind is stored. Raises RecordError for files
    that can't be read."""
    if not (folder / "records.csv").is_file():
        return None
    stored = read_stored(folder)
    pool = pool_in(stored)
    return None if pool is None else (stored, pool)


def read_space(root: Path) -> Space:
    """The notebook's space. Raises JobError where the file is missing or holds none."""
    path = root / SPACE
    if not path.is_file():
        raise JobError(f"{SPACE} does not exist; restore it from the repository")
    return Space.read(path)

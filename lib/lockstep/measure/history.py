"""What a results folder knows about the cells of a grid: read once, and told of each round that is measured since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import CELL
from lockstep.engine.job import Job
from lockstep.engine.training.scores import DIVERGED
from lockstep.measure.durations import Durations
from lockstep.records import COLUMNS, TRACE, RecordError, Row, RunFolder, read_records, repeated_by_seed
from lockstep.records.places import REFERENCE, repository_root

_WHATEVER_DATA = [name for name in CELL if name not in ("data_source", "images")]  # a cell, whichever images it has


class History:
    """The rows of a run folder, each with the place of its cell in `jobs`.

    `rows`: as they were when the folder was opened, with the place in the column `cell`, -1 for a cell that this grid
    does not have. `durations`, and the seeds that cells have learnt with, are kept up to date through `add`.
    """

    def __init__(self, run: RunFolder, jobs: Sequence[Job]) -> None:
        self.sessions, self.same_software = run.comparable, run.same_software
        self.durations = Durations(jobs)
        self._jobs = jobs
        self._places = {tuple(getattr(job, name) for name in CELL): place for place, job in enumerate(jobs)}
        self._seeds: dict[int, set[int]] = {}
        rows = read_records(run.path) if run.rounds_done else pd.DataFrame(columns=list(COLUMNS))
        cells = [self._places.get(key, -1) for key in rows[CELL].itertuples(index=False, name=None)]
        self.rows = rows.assign(cell=cells)
        if run.path != (reference := repository_root() / REFERENCE / run.path.name):
            self._expect(reference)
        self._learn()

    def _expect(self, reference: Path) -> None:
        """What cells took in the committed records, on whatever machines, is expected of them here: a first round must
        end in time, too. The median counts, though half of the visits took longer, so that one slow machine does not
        set it. Whose data these were does not matter; what learns takes time in proportion to its images."""
        try:
            rows = read_records(reference)
        except (RecordError, OSError):
            return
        rows = rows[rows["source"] != TRACE]
        # A pair was visited A B B A, and its rows hold both visits.
        visits = np.where(rows.groupby("round")["round"].transform("size") == 2, 2, 1)
        rows = rows.assign(seconds=rows["measuring_seconds"] / visits)
        known = rows[(rows["status"] == "ok") & (rows["seconds"] > 0)].groupby(_WHATEVER_DATA)
        seconds, images = (known[name].median().to_dict() for name in ("seconds", "images"))
        for place, job in enumerate(self._jobs):
            key = tuple(getattr(job, name) for name in _WHATEVER_DATA)
            if key in seconds:
                more = job.images / images[key] if job.epochs and images[key] else 1.0
                self.durations.expect(place, seconds[key] * more)

    def _learn(self) -> None:
        """Take seeds and durations from the stored rows."""
        known = self.rows[self.rows["cell"] >= 0]
        sizes = self.rows[self.rows["source"] != TRACE].groupby("round").size()
        for row in known[repeated_by_seed(known)].to_dict("records"):
            self._note_seed(row["cell"], row)
        timed = known[(known["status"] == "ok") & (known["source"] != TRACE)]
        here = timed["session"].isin(self.sessions)
        # What a cell took on another machine tells more than what others that are only like it took here.
        heeded = here | ~timed["cell"].isin(timed.loc[here, "cell"])
        for number, rows in timed.assign(heeded=heeded).groupby("round"):
            # A pair was visited A B B A, and its rows hold both visits.
            visits = 2 if sizes[number] == 2 < len(self._jobs) else 1
            for row in rows[rows["heeded"] & (rows["measuring_seconds"] > 0)].to_dict("records"):
                self.durations.note(row["cell"], row["measuring_seconds"] / visits)

    def _note_seed(self, place: int, row: Mapping[str, Any]) -> None:
        if learnt(row):
            self._seeds.setdefault(place, set()).add(int(row["seed"]))

    def add(self, rows: Iterable[Row]) -> None:
        """A round was measured and stored."""
        for row in rows:
            place = self._places[tuple(row[name] for name in CELL)]
            if self._jobs[place].repeated_by_seed:
                self._note_seed(place, row)

    def seeds(self, places: Iterable[int]) -> dict[int, int]:
        """With which seed each of these cells that learn, or are simulated, runs next: the first that is not stored."""
        return {
            place: next(seed for seed in count() if seed not in self._seeds.get(place, ()))
            for place in places
            if self._jobs[place].repeated_by_seed
        }

    def learns(self, place: int) -> bool:
        """Whether this cell learns, or is simulated: what others do on the machine does not change what it gives."""
        return self._jobs[place].repeated_by_seed

    def same(self, places: Sequence[int]) -> bool:
        """Whether these are one and the same cell, measured as variants a and b."""
        return len(places) > 1 and len({self._jobs[place].with_(variant="a") for place in places}) == 1

    def seeds_learnt(self, place: int) -> int:
        """With how many seeds this cell has learnt, in all sessions: what is learnt does not depend on the machine."""
        return len(self._seeds.get(place, ()))

    @property
    def stored_cells(self) -> set[int]:
        """The cells that have any row, of whatever status."""
        return set(self.rows["cell"]) - {-1}

    @property
    def whole_rounds(self) -> int:
        """How many rounds hold every cell of the grid."""
        everything = set(self._places.values())
        return sum(everything <= set(cells) for _, cells in self.rows.groupby("round")["cell"])


def learnt(row: Mapping[str, Any]) -> bool:
    """Whether a row of a cell that learns counts as its seed's: one that diverged will do so again."""
    return row["status"] == "ok" or str(row["reason"]).startswith(DIVERGED)

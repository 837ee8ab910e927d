"""Measuring one round: its cells in the order of their visits, a row for each cell, and every step that it took.

visits    sequential  processes  processes  sequential
rows      sequential: the mean of its two visits; processes: the mean of its two
steps     every measured step of all four
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from lockstep.analysis.tables import TRACE_SECONDS
from lockstep.engine.job import Job
from lockstep.engine.training.scores import DIVERGED
from lockstep.engine.usecases import Source
from lockstep.measure.cell import measure_job
from lockstep.measure.durations import Durations
from lockstep.measure.planning import log_ratio
from lockstep.measure.probes import PROBES
from lockstep.measure.probes.probe import Probes
from lockstep.measure.progress import one_line, say
from lockstep.measure.summary import merged
from lockstep.measure.teams import Teams
from lockstep.measure.traced_tables import OF_A_ROW
from lockstep.records import CONTENDED, TRACE, Row

NO_SAMPLES = "no samples of its workers: this is no trace"


class RoundGivenUp(Exception):
    """A round whose remaining visits can't end in time; the message says how long they would take."""


@dataclass
class Measured:
    """A round: a row for each cell, and its traced tables."""

    rows: list[Row] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    others_worked: bool = False
    """Others used the machine during a visit, be it one that they disturb or not."""

    @property
    def disturbed(self) -> bool:
        """Whether others used the machine during a visit that this disturbs."""
        return any(CONTENDED in str(row["reason"]) for row in self.rows)

    @property
    def failed(self) -> bool:
        return any(row["status"] != "ok" for row in self.rows)

    @property
    def diverged(self) -> bool:
        return any(str(row["reason"]).startswith(DIVERGED) for row in self.rows)

    @property
    def log_ratio(self) -> float:
        """The logarithm of the first row's speed over the second's; of a single row that of its own."""
        return log_ratio(self.rows)


def measure_round(
    jobs: Sequence[Job],
    visits: Sequence[int],
    *,
    number: int,
    seeds: Mapping[int, int],
    session: int,
    sources: Mapping[str, Source],
    teams: Teams,
    durations: Durations,
    probes: Probes = PROBES,
    ends: float = math.inf,
) -> Measured:
    """Measure the cells at these places of the grid, in this order, as round `number`.

    `seeds`: place -> seed of the cells that train until they have learnt; what is learnt varies by its seed, a time by
    itself. How long visits take is noted in `durations`. Raises RoundGivenUp after a visit by which the others can't
    end at `ends` (of time.monotonic).
    """
    found = Measured()
    rows_of: dict[int, list[Row]] = {}
    tables_of: dict[str, list[pd.DataFrame]] = {}
    cells = sorted(set(visits), key=visits.index)
    for index, place in enumerate(visits):
        job = jobs[place].with_(round=number, **({"seed": seeds[place]} if place in seeds else {}))
        began = time.monotonic()
        failed = any(row["status"] != "ok" for rows in rows_of.values() for row in rows)
        if index and not failed and began + (needed := durations.of_visits(visits[index:])) > ends:
            raise RoundGivenUp(
                f"round {number} was given up after {index} of {len(visits)} visits: the others should take "
                f"{needed / 60:.1f} minutes, and {max(0.0, ends - began) / 60:.1f} are left"
            )
        row, tables, others_worked = measure_job(job, sources.get(job.use_case), teams, probes=probes)
        found.others_worked |= others_worked
        row |= {"session": session, "measuring_seconds": time.monotonic() - began}
        if row["status"] == "ok":
            durations.note(place, row["measuring_seconds"])
        again = place in rows_of
        rows_of.setdefault(place, []).append(row)
        for name, frame in tables.items():
            if name in OF_A_ROW:
                visit = {"visit": index} if name == "steps" else {}
                frame = frame.assign(round=number, row=cells.index(place), **visit)
            if again and name != "steps":
                continue  # of what was traced, the first visit's
            tables_of.setdefault(name, []).append(frame)
        say(f"round {number}, {index + 1}/{len(visits)}: {job.experiment} {job.label}: {one_line(row)}")
    found.rows = [merged(rows_of[place]) for place in cells]
    found.tables = {name: pd.concat(frames, ignore_index=True) for name, frames in tables_of.items()}
    return found


def measure_trace(job: Job, *, number: int, session: int, sources: Mapping[str, Source], teams: Teams) -> Measured:
    """Sample the resources of a cell for TRACE_SECONDS of training and while it loads, as round `number`.

    Its team starts anew, so that loading is in the trace; a short run before tells how many steps a minute has.
    """
    job, source = job.with_(round=number), sources.get(job.use_case)
    began = time.monotonic()
    row, tables, others_worked = measure_job(job, source, teams)
    if row["status"] == "ok":
        teams.team(job).close()
        steps = math.ceil(TRACE_SECONDS / row["step_seconds"])
        row, tables, others_worked = measure_job(job.with_(steps=steps), source, teams, traced=True)
    row |= {"session": session, "source": TRACE, "measuring_seconds": time.monotonic() - began}
    if row["status"] == "ok" and "resources" not in tables:  # as of workers that were begun again meanwhile
        row |= {"status": "failed", "reason": "; ".join(filter(None, [row["reason"], NO_SAMPLES]))}
    say(f"round {number}: {job.experiment} {job.label}: a trace of {TRACE_SECONDS:g} s: {one_line(row)}")
    samples = {name: frame for name, frame in tables.items() if name == "resources"}
    return Measured([row], samples, others_worked)

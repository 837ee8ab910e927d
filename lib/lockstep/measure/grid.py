"""Running a grid: round after round, each of one comparison, for as many minutes as there are.

round 0   sequential | processes | processes | sequential      -> written, whole
round 1   threads    | processes | processes | threads         -> written, whole
...       (`lockstep.measure.planning` chooses the next one, from all that is stored)

What two cells share in such a round, a machine that is slow just now or becomes slower evenly, cancels in their ratio.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lockstep.engine.job import NO_USE_CASE, Job, JobError
from lockstep.engine.launch.environment import PROFILES
from lockstep.engine.options import TooShort
from lockstep.engine.usecases import Source, find_images, use_case
from lockstep.measure.cell import depends_on_framework, why_impossible
from lockstep.measure.comparisons import pairs_of, states_of
from lockstep.measure.environment import capture
from lockstep.measure.history import History
from lockstep.measure.outlook import fewest_minutes, not_begun, outlook
from lockstep.measure.parts import chosen_cells, comparisons_of
from lockstep.measure.planning import Compare, Comparison, Progress, choose
from lockstep.measure.probes import PROBES
from lockstep.measure.probes.probe import Probes
from lockstep.measure.progress import Lines, progress_of, say
from lockstep.measure.round import Measured, RoundGivenUp, measure_round, measure_trace
from lockstep.measure.teams import Teams
from lockstep.records import RunFolder
from lockstep.records.places import repository_root


@dataclass(frozen=True)
class Budget:
    """How long to measure: `minutes`, each round where it decides most; or `rounds`, each of all cells, once.

    Raises JobError for anything else.
    """

    minutes: float = 0.0
    rounds: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 0:
            raise JobError(f"rounds={self.rounds!r} is not possible; give a whole number of at least 1")
        if isinstance(self.minutes, bool) or not 0 <= self.minutes < float("inf"):
            raise JobError(f"minutes={self.minutes!r} is not possible; give a number above 0, such as 10")
        if not self.minutes and not self.rounds:
            raise JobError("minutes=0 measures nothing; give a number above 0, such as 10")


def run_grid(
    jobs: Sequence[Job],
    *,
    notebook: str,
    results: str | Path,
    parameters: Mapping[str, Any],
    minutes: float = 0.0,
    rounds: int = 0,
    comparisons: Compare | None = None,
    data_dir: str = "",
    images: int = 0,
    strict: bool = False,
    traced: Callable[[Job], bool] = lambda job: False,
    probes: Probes = MappingProxyType({}),
    only: Collection[str] = (),
) -> Path:
    """Measure a grid into `<results>/<notebook>/`, for `minutes` or for whole `rounds`; returns that folder.

    What is stored there already counts, so a run that was killed, or had only so many minutes, goes on where it was.
    Without `comparisons` each cell stands beside the sequential one (`pairs_of`). A cell that fails or can't run here
    is a row that says why. `images` limits the training photos (see `find_images`); all test photos are used. Photos
    that can't be read are left out, with a warning, and counted in `skipped_images`; `strict` allows none. Cells for
    which `traced` is true get a minute each in which their CPU, memory and threads are sampled. `probes` are the
    experiment's own, beside `lockstep.measure.probes.PROBES`. With `only` a part of the grid is measured
    now (`chosen_cells`), the rest at another time into the same folder: what is simulated needs no quiet machine.

    Raises RecordError, WriteError, DataError or JobError before anything is measured, also for a choice that a use case
    does not offer, a name in `only` that no cell has, and for minutes that hold no round.
    """
    budget = Budget(minutes, rounds)
    repository = repository_root()
    folder = (repository / results if not Path(results).is_absolute() else Path(results)) / notebook
    probes = {**PROBES, **probes}
    _check_simulated(jobs, probes)
    jobs, sources = _with_images(jobs, data_dir, images, strict)
    compared, jobs = comparisons_of(jobs, only, comparisons or pairs_of), chosen_cells(jobs, only)
    with Teams() as teams:
        for job in jobs:
            if why_impossible(job) is None:
                teams.team(job)
        info = {"notebook": notebook, "data": _data(sources), "parameters": dict(parameters)}
        with RunFolder(folder, info, _session(repository, jobs, teams)) as run:
            grid = _Grid(run, jobs, sources, teams, traced, probes, History(run, jobs))
            with progress_of(folder.name) as progress:
                if budget.rounds:
                    grid.measure_rounds(budget.rounds, progress)
                else:
                    grid.measure_for(60 * budget.minutes, compared, progress)
    return folder


def _data(sources: Mapping[str, Source]) -> dict[str, Any]:
    return {
        name: {"source": found.kind, "train_images": found.train_images, "skipped_images": len(found.skipped)}
        for name, found in sources.items()
    }


def _session(repository: Path, jobs: Sequence[Job], teams: Teams) -> dict[str, Any]:
    """The circumstances of this run, for `run.json`."""
    return {
        **capture(repository),
        "day": date.today().isoformat(),
        "environment_profiles": {name: dict(PROFILES[name]) for name in sorted({job.environment for job in jobs})},
        "workers": teams.placements(),
    }


@dataclass(frozen=True)
class _Grid:
    """Cells that are being measured into a folder."""

    run: RunFolder
    jobs: Sequence[Job]
    sources: Mapping[str, Source]
    teams: Teams
    traced: Callable[[Job], bool]
    probes: Probes
    history: History

    def measure_rounds(self, rounds: int, progress: Lines) -> None:
        """Every cell once in each of so many rounds, those that are stored included; not counted are rounds that hold
        some of the cells only, as `minutes` leave them."""
        done = self.history.whole_rounds
        if done:
            say(f"{min(done, rounds)} of {rounds} rounds are in {self.run.path.name} already")
        began = time.monotonic()
        for number in range(done, rounds):
            self._measure(self.teams.in_a_row(self.jobs, range(len(self.jobs))))
            left = (time.monotonic() - began) / (number + 1 - done) * (rounds - number - 1)
            text = f"about {math.ceil(left / 60)} minutes left, {number + 1} of {rounds} rounds measured"
            progress.show((number + 1) / rounds, left, text)

    def measure_for(self, seconds: float, comparisons: Sequence[Comparison], progress: Lines) -> None:
        """Round after round until the time is over, or everything is settled."""
        ends = time.monotonic() + seconds  # no step of the system's clock changes it
        traces = [Comparison((place,), trace=True) for place, job in enumerate(self.jobs) if self.traced(job)]
        comparisons = self._possible([*comparisons, *traces])
        states = states_of(comparisons, self.history)
        self._guess(states)
        least = math.ceil(100 * fewest_minutes(states)) / 100
        if seconds < 60 * least:
            raise TooShort(f"minutes={seconds / 60:g} is too short: give at least {least:g}, which one round takes")
        say(f"{self.run.path.name}: {outlook(states)}")
        last: int | None = None
        while (chosen := self._choose(states, ends, last)) is not None:
            last = chosen
            try:
                self._measure_next(states[chosen], ends)
            except RoundGivenUp as given_up:
                say(str(given_up))
            left = max(0.0, ends - time.monotonic())
            text = f"{math.ceil(left / 60)} of {seconds / 60:g} minutes left, {outlook(states)}"
            progress.show(1 - left / seconds, left, text)
        say(f"{self.run.path.name}: {outlook(states)}")
        if waiting := not_begun(states, ends - time.monotonic()):
            say(f"{self.run.path.name}: {waiting}")

    def _guess(self, states: Sequence[Progress]) -> None:
        """What the first round of those that have none should take."""
        for state in states:
            if not state.seconds:
                state.first_seconds = self.history.durations.of_round(state.comparison)

    def _choose(self, states: Sequence[Progress], ends: float, last: int | None) -> int | None:
        self._guess(states)
        return choose(states, ends - time.monotonic(), last)

    def _measure_next(self, state: Progress, ends: float) -> None:
        """The next round of a comparison. Its first one, whose length can only be guessed, is given up when it can't
        end in time."""
        began = time.monotonic()
        if state.comparison.trace:
            found = self._trace(state.comparison.cells[0])
        else:
            found = self._measure(state.comparison.visits, float("inf") if state.seconds else ends)
        state.seconds.append(time.monotonic() - began)
        state.disturbed_now += found.disturbed
        state.just_disturbed = found.others_worked
        if found.failed and not (state.learns and found.diverged):
            state.failures += 1
        elif state.learns or not found.disturbed:
            state.logs.append(0.0 if found.diverged else found.log_ratio)  # that seed is done
            state.sessions.append(self.run.number)

    def _possible(self, comparisons: Sequence[Comparison]) -> list[Comparison]:
        """The comparisons of cells that can run here; the others get a row each that says why not, once."""
        impossible = [place for place, job in enumerate(self.jobs) if why_impossible(job) is not None]
        if new := [place for place in impossible if place not in self.history.stored_cells]:
            self._measure(new)
        return [each for each in comparisons if not set(each.cells) & set(impossible)]

    def _measure(self, visits: Sequence[int], ends: float = float("inf")) -> Measured:
        """These cells as the next round, whatever was stored before it and how; raises RoundGivenUp."""
        found = measure_round(
            self.jobs, visits, number=self.run.next_round, seeds=self.history.seeds(visits), session=self.run.number,
            sources=self.sources, teams=self.teams, durations=self.history.durations, probes=self.probes, ends=ends,
        )  # fmt: skip
        return self._store(found)

    def _trace(self, place: int) -> Measured:
        found = measure_trace(
            self.jobs[place], number=self.run.next_round, session=self.run.number,
            sources=self.sources, teams=self.teams,
        )  # fmt: skip
        return self._store(found)

    def _store(self, found: Measured) -> Measured:
        self.run.write_round(found.rows, found.tables)
        self.history.add(found.rows)
        return found


def _with_images(jobs: Sequence[Job], data_dir: str, images: int, strict: bool) -> tuple[list[Job], dict[str, Source]]:
    """The jobs, with the number and the kind of their images filled in, and where each use case's images are."""
    for job in jobs:
        _check_choices(job)
    names = dict.fromkeys(job.use_case for job in jobs if job.use_case != NO_USE_CASE)
    sources = {name: find_images(use_case(name), data_dir or None, images, strict) for name in names}

    def with_count(job: Job) -> Job:
        source = sources.get(job.use_case)
        if source is None:
            return job
        # A job may ask for fewer images than there are, to show what changes with the size of a data set.
        count = min(job.images or source.train_images, source.train_images)
        return job.with_(images=count, data_source=source.kind)

    jobs = [with_count(job) for job in jobs]
    held_out = ((job.use_case, job.images) for job in jobs if job.holds_out)
    for name, count in dict.fromkeys(held_out):  # DataError for a class that is too small for it
        use_case(name).open("train", sources[name].root, count, sources[name].skipped, part="held_out")
    return jobs, sources


def _check_simulated(jobs: Sequence[Job], probes: Probes) -> None:
    """Raises JobError for a simulated cell that no probe simulates."""
    for job in jobs:
        if job.simulated and job.experiment not in probes:
            raise JobError(
                f"launcher={job.launcher!r} with experiment={job.experiment!r}: nothing trains in virtual time, and no "
                f"probe of that name simulates it; there are: {', '.join(probes)}"
            )


def _check_choices(job: Job) -> None:
    """Raises JobError for a network or framework that the job's use case does not offer."""
    if job.use_case == NO_USE_CASE:
        return
    case = use_case(job.use_case).for_job(job)
    if job.framework == "tensorflow" and case.network is None and depends_on_framework(job):
        raise JobError(
            f"framework='tensorflow' with use_case={job.use_case!r}, whose network is a torch model; give a use case "
            "of small images, or framework='torch'"
        )

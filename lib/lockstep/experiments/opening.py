"""Opening an experiment in its notebook, which shows what is stored, and measures it first if that is asked for.

run = open_experiment("02", globals())
run.answer()
run.figure("speedup")
run.finding("speedup")
run.table("speedup")
run.verdicts()
run.unjudged()
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from IPython.display import Markdown
from matplotlib.figure import Figure

from lockstep.analysis.figures.recipes import draw, draw_all
from lockstep.analysis.one_session import remark_on_seconds
from lockstep.analysis.published import CLAIM, read_ledger, read_table
from lockstep.analysis.readable import ReadableTable
from lockstep.analysis.sentences import briefly, with_lists
from lockstep.analysis.stored import Stored, no_records, read_stored
from lockstep.engine.job import Job
from lockstep.engine.options import TooShort
from lockstep.experiments.answering import answer_box
from lockstep.experiments.experiment import Experiment, Parameters
from lockstep.experiments.machines import machines
from lockstep.experiments.parameters import read_parameters
from lockstep.experiments.refusals import cells_of
from lockstep.experiments.registry import experiment
from lockstep.experiments.report import (
    Answered,
    claims_table,
    read_all,
    sources,
    targets_table,
    unjudged_table,
)
from lockstep.measure.parts import chosen_cells
from lockstep.records.places import FROM_NOTEBOOKS, REFERENCE, RUN_MARK, repository_root

WHERE = ("measure", "results", "data_dir", "minutes", "rounds", "only")
"""Parameters that say where, how often and which part of it now, not what: a run may go on with others."""


@dataclass(frozen=True)
class Run:
    """An opened experiment: its parameters, and what its results folder holds."""

    experiment: Experiment
    parameters: Parameters
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of the notebook's own cell

    @property
    def folder(self) -> Path:
        """Where its records are, or will be."""
        return repository_root() / self.parameters.results / self.experiment.name

    @property
    def grid(self) -> list[Job]:
        """The cells that these parameters ask for."""
        assert self.experiment.grid is not None, f"{self.experiment.name} measures nothing"
        deciding = {name: value for name, value in self.defaults.items() if name not in self._apart}
        return cells_of(self.experiment.grid, self.parameters, deciding, self.experiment.name)

    @property
    def _apart(self) -> tuple[str, ...]:
        """The parameters on which no cell depends."""
        return *WHERE, *self.experiment.drawn_only

    @cached_property
    def stored(self) -> Stored:
        assumptions = {name: getattr(self.parameters, name) for name in self.experiment.drawn_only}
        measures = self.experiment.grid is not None and (self.folder / "records.csv").is_file()
        own = read_stored(self.folder) if measures else no_records()
        return replace(own, assumptions=assumptions)

    def measure(self) -> None:
        """Measure the grid into the results folder, which may hold its first rounds already, and draw its figures.

        A grid that has new cells by what was found is measured on, in the minutes that are left.
        """
        ends = time.monotonic() + 60 * self.parameters.minutes
        jobs, only = self.grid, vars(self.parameters).get("only", ())
        self._measure(jobs, self.parameters.minutes, only)
        while (more := self.grid) != jobs:
            new = {job.experiment for job in chosen_cells(more, only) if job not in jobs}
            jobs, left = more, (ends - time.monotonic()) / 60
            if not new:
                break
            try:
                if left <= 0 and not self.parameters.rounds:
                    raise TooShort("no minutes are left for them; the same command goes on")
                self._measure(jobs, left, {*only} - {job.experiment for job in more} | new)
            except TooShort as error:
                print(f"{self.experiment.name} has new cells, by what was found ({', '.join(sorted(new))}): {error}")
                break
        if self.experiment.after:
            self.experiment.after(self.stored, self.folder)
            self.__dict__.pop("stored", None)  # it may have written what figures show
        own = self.experiment
        draw_all(own.figures, self.stored.shown, self.folder / "figures", own.findings)

    def _measure(self, jobs: list[Job], minutes: float, only: Collection[str]) -> None:
        from lockstep.measure.grid import run_grid  # torch: only those who measure wait for it

        chosen = vars(self.parameters)
        deciding = {name: value for name, value in chosen.items() if name not in self._apart}
        compared = self.experiment.comparisons
        if self.experiment.planned is not None:
            compared = partial(self.experiment.planned, self.parameters)
        run_grid(
            jobs, notebook=self.experiment.name, results=self.parameters.results, parameters=deciding,
            minutes=minutes, rounds=self.parameters.rounds, comparisons=compared,
            data_dir=self.parameters.data_dir, images=self.parameters.images, strict=self.parameters.strict,
            traced=self.experiment.traced, probes=self.experiment.probes(), only=only,
        )  # fmt: skip
        self.__dict__.pop("stored", None)

    def answer(self) -> Markdown:
        """The question, its answer in two or three computed sentences, and on what they rest: for the first screen."""
        return Markdown(answer_box(self._answered, self.stored))

    def about(self) -> str:
        """One paragraph: the machines and days, the data, the rounds, and how many rows are ok, failed and skipped."""
        return f"{machines(self.folder)}\n{sources(self.stored.records)}"

    def table(self, name: str) -> ReadableTable:
        """A table of the experiment, which shows itself in words. Raises KeyError, listing the tables, for one that it
        has not."""
        made = self._named(self.experiment.tables, name, "table")(self.stored.shown)
        table = ReadableTable(made)
        table.attrs["remark"] = made.attrs.get("remark", "") or remark_on_seconds(self.stored.shown, table)
        return table

    def published(self, paper: str, table: str, columns: Sequence[str]) -> ReadableTable:
        """Columns of a published table (`lockstep.analysis.published.read_table`), to read beside our own."""
        return ReadableTable(read_table(paper, table)[list(columns)])

    def figure(self, name: str) -> Figure:
        """A figure of the experiment. Raises KeyError, listing the figures, for one that it has not."""
        self._named(self.experiment.figures, name, "figure")
        return draw(name, self.experiment.figures, self.experiment.findings, self.stored.shown)

    def finding(self, name: str) -> Markdown:
        """What that figure shows, in a sentence or two; of sessions that differ tables tell each one's number. Raises
        KeyError for a figure without a finding."""
        return Markdown(with_lists(briefly(self._named(self.experiment.findings, name, "finding")(self.stored.shown))))

    def text(self, name: str) -> Markdown:
        """A text of the experiment. Raises KeyError, listing the texts, for one that it has not."""
        return Markdown(self._named(self.experiment.texts, name, "text")(self.stored))

    def verdicts(self) -> ReadableTable:
        """Published, measured and answer, a row per claim that this notebook can speak to; corrected for the number of
        all claims that the run folder answers."""
        return ReadableTable(claims_table(self._answered.judged))

    @cached_property
    def _answered(self) -> Answered:
        everything = read_all(repository_root() / self.parameters.results)
        return next(one for one in everything if one.notebook.name == self.experiment.name)

    def unjudged(self) -> Markdown:
        """Where the paper contradicts itself and what it leaves unsaid on this notebook's subject: a table without
        verdicts, or that there is nothing."""
        ledger = read_ledger()
        own = ledger[(ledger["notebook"] == self.experiment.name) & (ledger["kind"] != CLAIM)].to_dict("records")
        return Markdown(unjudged_table(own) if own else "The ledger lists nothing more that is open here.")

    def targets(self) -> ReadableTable:
        """What we ourselves aim at, what was measured, and whether that reaches it."""
        return ReadableTable(targets_table(self.experiment.targets, self.stored))

    def _named(self, known: Mapping[str, Any], name: str, kind: str) -> Any:
        if name not in known:
            raise KeyError(f"{self.experiment.name} has no {kind} {name!r}; there are: {', '.join(known)}")
        return known[name]


def open_experiment(name: str, values: Mapping[str, Any]) -> Run:
    """The experiment of a notebook with the values of its parameters; if `measure` is True its grid is measured first.

    `values` are the notebook's own variables, `globals()`: the names are read from its parameters cell, so none has to
    be repeated. Raises UnknownExperiment, KeyError for a parameter without a value, ParameterError for a cell that
    can't be read and for a value of another type, and what `lockstep.measure.grid.run_grid` raises. Where nothing is
    stored, answer, findings and figures say so.
    """
    found = experiment(name)
    known = read_parameters(repository_root() / "notebooks" / f"{found.name}.ipynb")
    missing = [each for each in known if each not in values]
    if missing:
        raise KeyError(f"{found.name}: no value for {', '.join(missing)}; run the parameters cell first")
    chosen = {name: parameter.accept(values[name], found.name) for name, parameter in known.items()}
    chosen |= own_results(chosen) if found.grid is not None else {}
    run = Run(found, Parameters(**chosen), {name: parameter.default for name, parameter in known.items()})
    if run.parameters.measure and found.grid is not None:
        run.measure()
    return run


def own_results(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Where a notebook that somebody has opened measures into, unless it names a folder: not into the committed
    records. `lockstep run` says itself where."""
    if not chosen["measure"] or chosen["results"] != REFERENCE or RUN_MARK in os.environ:
        return {}
    print(f"measuring into {FROM_NOTEBOOKS}; set `results` to keep it elsewhere")
    return {"results": FROM_NOTEBOOKS}

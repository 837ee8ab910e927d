"""What an experiment is: one object that a notebook, the report and the command line all read.

A folder `experiments/e02_threads_vs_processes/` holds the same few files as every other:

    grid.py       parameters of the notebook -> the cells to measure
    tables.py     what is stored -> tables, for the notebook and for the figures
    figures.py    what is stored -> figures, by file name (drawings.py: what only this notebook draws)
    findings.py   what is stored -> the sentence or two that a figure shows
    answer.py     what is stored -> the answer to the notebook's title, in two or three sentences
    verdicts.py   a claim of the paper and what is stored -> a verdict
    targets.py    what we ourselves aim at
    measuring.py  what its cells measure where they do not train (most have none)
    __init__.py   EXPERIMENT, which names them all

and `registry.py` has a line for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd

from lockstep.analysis.figures.recipes import Recipe
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import Target
from lockstep.analysis.verdicts import VerdictFunction
from lockstep.engine.job import Job, JobError
from lockstep.measure.planning import Compare, Comparison

if TYPE_CHECKING:  # probes bring torch, for which figures and reports do not wait
    from lockstep.measure.probes.probe import Probes


class Parameters(SimpleNamespace):
    """A notebook's parameters as attributes: `chosen.workers`."""

    def of(self, name: str, use_case: str) -> Any:
        """The value for `use_case` of a parameter that holds one for each. Raises JobError if it has none, and for a
        use case that does not exist."""
        values = getattr(self, name)
        if use_case not in values:
            from lockstep.engine.usecases import USE_CASES  # torch: only a refusal waits for it

            if use_case not in USE_CASES:
                raise JobError(f"use case {use_case!r} does not exist; there are: {', '.join(USE_CASES)}")
            raise JobError(
                f"{name}={dict(values)!r} has no value for use case {use_case!r}; give one, or leave it out of "
                "use_cases"
            )
        return values[use_case]

    def part(self, name: str, key: str) -> Any:
        """One entry of a parameter that holds several things. Raises JobError if it lacks it."""
        values = getattr(self, name)
        if key not in values:
            raise JobError(f"{name}={dict(values)!r} lacks {key!r}; give it, as the notebook's own value does")
        return values[key]


Grid = Callable[[Parameters], list[Job]]
Planned = Callable[[Parameters, Sequence[Job]], Iterable[Comparison]]
Table = Callable[[Stored], pd.DataFrame]
Finding = Callable[[Stored], str]
Text = Callable[[Stored], str]


@dataclass(frozen=True)
class Experiment:
    """One notebook's experiment, under the notebook's own name."""

    name: str  # of the notebook and of its folder of results, such as 02_threads_vs_processes
    question: str
    grid: Grid | None = None  # None: it measures nothing and shows what the others stored
    comparisons: Compare | None = None  # which cells stand back to back; None: each beside the sequential one
    planned: Planned | None = None  # the same, where the notebook's parameters say how often a cell is measured
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Recipe] = field(default_factory=dict)
    answer: Finding | None = None  # to the question, in two or three sentences; 00 has the others' answers
    answer_rests_on: tuple[str, str] = ("", "")  # claim that its first sentence speaks of, and what is open if that is
    findings: Mapping[str, Finding] = field(default_factory=dict)  # by the name of the figure they belong to
    texts: Mapping[str, Text] = field(default_factory=dict)  # Markdown that is no table and no finding
    verdicts: Mapping[str, VerdictFunction] = field(
        default_factory=dict
    )  # by the name that the claims ledger gives them
    targets: Sequence[Target] = ()
    headlines: Sequence[str] = ()  # claims that the README shows
    traced: Callable[[Job], bool] = lambda job: False  # cells whose CPU, memory and threads are sampled
    drawn_only: Sequence[str] = ()  # parameters that decide what is shown and nothing that is measured
    probes: Callable[[], Probes] = dict  # its own, of cells that do not train; called when they are measured
    after: Callable[[Stored, Any], None] | None = None  # writes further files of a run, given its folder

    @property
    def number(self) -> str:
        return self.name.partition("_")[0]

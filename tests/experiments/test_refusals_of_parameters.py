"""Whatever a notebook's parameter is set to: cells come of it, or a sentence that names it. Never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.engine.job import Job, JobError
from lockstep.experiments.experiment import Experiment, Parameters
from lockstep.experiments.opening import Run, open_experiment
from lockstep.experiments.parameters import Parameter, ParameterError, read_parameters
from lockstep.experiments.refusals import cells_of, unlike
from lockstep.experiments.registry import every
from lockstep.measure import grid
from lockstep.measure.comparisons import pairs_of
from lockstep.measure.parts import chosen_cells
from lockstep.measure.probes import PROBES

MEASURING = [found for found in every() if found.grid is not None]
ANYTHING: tuple[Any, ...] = ({}, [], -1, "nonsense", None, 0, True, float("nan"), float("inf"), 1.5)


def known_of(found: Experiment, root: Path) -> dict[str, Parameter]:
    return read_parameters(root / "notebooks" / f"{found.name}.ipynb")


def bad_values(parameter: Parameter) -> Iterator[Any]:
    """Of any type; in lists; for all entries of a dict, for each one, without each one, and beside them."""
    yield from ANYTHING
    if parameter.kind == "list":
        yield from ([each] for each in ANYTHING)
    if parameter.kind == "dict":
        own = parameter.default
        yield from ({"nonsense": 1}, {1: 2})
        for name in own:
            yield {other: value for other, value in own.items() if other != name}
        for each in (*ANYTHING, [-1], ["nonsense"]):
            yield dict.fromkeys(own, each)
            yield from (own | {name: each} for name in own)


def prepared(found: Experiment, chosen: dict[str, Any], defaults: dict[str, Any]) -> list[Job]:
    """All that is done with a notebook's parameters before its data are read and a team starts."""
    assert found.grid is not None
    jobs = cells_of(found.grid, Parameters(**chosen), defaults, found.name)
    grid.Budget(chosen["minutes"], chosen["rounds"])
    for job in jobs:
        grid._check_choices(job)
    grid._check_simulated(jobs, {**PROBES, **found.probes()})
    chosen_cells(jobs, chosen.get("only", ()))
    assert all(set(each.cells) <= set(range(len(jobs))) for each in (found.comparisons or pairs_of)(jobs))
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize("found", MEASURING, ids=lambda found: found.number)
def test_any_value_is_measured_or_refused_in_a_sentence(found: Experiment, root: Path) -> None:
    """Seen: `-p ablation={}` and `-p prices={}` ended in KeyError and TypeError, 02 blamed another parameter."""
    known = known_of(found, root)
    defaults = {name: parameter.default for name, parameter in known.items()}
    refused = 0
    for name, parameter in known.items():
        for value in bad_values(parameter):
            try:
                jobs = prepared(found, defaults | {name: parameter.accept(value, "-p")}, defaults)
            except (ParameterError, JobError) as error:
                refused += 1
                assert len(str(error)) > 20 and "\n" not in str(error), (name, value)
            else:
                assert jobs, (name, value)
    assert refused > 100


@pytest.mark.parametrize(
    ("number", "name", "value", "said"),
    [
        ("07", "ablation", {}, "ablation={} lacks 'pooling'"),
        ("07", "prices", {}, "prices={} lacks"),
        ("07", "use_cases", ["nonsense"], "'nonsense' does not exist; there are: ComplexSmall"),
        ("07", "strategies", ["nonsense"], "no cells can be made of strategies=['nonsense'] (KeyError: 'nonsense')"),
        ("07", "speed_batch_sizes", [0], "speed_batch_sizes=[0]"),
        ("07", "ablation", {"pooling": -1}, "ablation={'pooling': -1}: ['pooling'] is -1, not list; give one like"),
        ("02", "use_cases", ["nonsense"], "'nonsense' does not exist; there are: ComplexSmall"),
        ("02", "scaling_workers", [], "no cells can be made of scaling_workers=[]"),
        ("11", "real_steps", 0, "steps=0 is not possible"),
        ("11", "real_kinds", ["nonsense"], "'nonsense'"),
        ("08", "batch_size", -1, "batch_size=-1: it is -1, and no parameter is negative or infinite"),
    ],
)
def test_it_names_the_value_the_place_and_the_fix(
    number: str, name: str, value: Any, said: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the notebook asks for it: with `measure`, before anything is measured."""
    monkeypatch.setattr(Run, "measure", lambda run: run.grid and None)
    (found,) = [each for each in MEASURING if each.number == number]
    values = {key: parameter.default for key, parameter in known_of(found, root).items()}
    with pytest.raises((ParameterError, JobError)) as caught:
        run = open_experiment(number, values | {"measure": True, name: value})
        for job in run.grid:
            grid._check_choices(job)
    assert said in str(caught.value)


def test_what_is_drawn_with_an_assumption_of_nothing_says_so(root: Path) -> None:
    """Seen: ZeroDivisionError in the figures of 08."""
    (found,) = [each for each in MEASURING if each.number == "08"]
    values = {key: parameter.default for key, parameter in known_of(found, root).items()}
    for name in ("assumed_bits_per_second", "epoch_images"):
        run = open_experiment("08", values | {name: 0})
        with pytest.raises(JobError, match=rf"^{name}=0(\.0)? is not possible; give a number above 0$"):
            run.table("cluster")


def test_a_bug_shows_itself() -> None:
    """An error that the defaults bring is not the reader's."""

    def grid_with_a_bug(chosen: Parameters) -> list[Job]:
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        cells_of(grid_with_a_bug, Parameters(workers=3), {"workers": 2}, "02")


def test_of_two_wrong_parameters_both_are_named() -> None:
    def divides(chosen: Parameters) -> list[Job]:
        return [Job(workers=1 // chosen.a // chosen.b)]

    said = r"02: no cells can be made of a=0, b=0 \(ZeroDivisionError: .*\); give a value like the default, a=1, b=1"
    with pytest.raises(JobError, match=said):
        cells_of(divides, Parameters(a=0, b=0), {"a": 1, "b": 1}, "02")
    # Seen: measure=True and results='elsewhere' among them, where the notebook asks.
    own: Any = SimpleNamespace(grid=divides, name="02", drawn_only=("shown",))
    chosen = {"a": 0, "b": 0, "measure": True, "results": "elsewhere", "minutes": 5.0, "shown": 7}
    defaults = {"a": 1, "b": 1, "measure": False, "results": "results", "minutes": 0.0, "shown": 8}
    with pytest.raises(JobError, match=said):
        assert Run(own, Parameters(**chosen), defaults).grid


@pytest.mark.parametrize(
    ("value", "example", "said"),
    [
        ([1, 2.5], [0.1], ""),
        ([1, True], [2], "[1] is True, not int"),
        ({"x": [1]}, {}, ""),
        ({"a": [1], "new": [2]}, {"a": [3]}, ""),
        ({"new": 2}, {"a": [3]}, "['new'] is 2, not list"),
        ({"new": 2}, {"a": [3], "b": True}, ""),
        ({7: 2}, {"a": 3}, "[7] is named by int, not by str"),
        ({"a": {"b": ["x"]}}, {"a": {"b": [1]}}, "['a']['b'][0] is 'x', not int"),
        (float("nan"), 0.5, "it is nan, not a number"),
        ([1.5, float("nan")], [0.5], "[1] is nan, not a number"),
        (float("inf"), 0.5, "it is inf, and no parameter is negative or infinite"),
    ],
)
def test_what_is_like_a_default(value: Any, example: Any, said: str) -> None:
    assert unlike(value, example) == said

"""A run that was short holds some comparisons only: everything is drawn, told and judged from what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

from lockstep.analysis.judging import judge
from lockstep.analysis.published import read_claims
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.experiment import Experiment
from lockstep.experiments.registry import every
from lockstep.experiments.report import targets_table
from stored_reference import stored_reference

pytestmark = pytest.mark.slow

MEASURING = [own for own in every() if own.grid is not None]


def some(stored: Stored, share: float, seed: int) -> Stored:
    """Single rows: of most cells none, of the others one or two rounds, as after some minutes."""
    rng = np.random.default_rng(seed)
    kept = stored.records[(rng.random(len(stored.records)) < share) & (stored.records["status"] == "ok")]
    skipped = stored.records[(stored.records["status"] == "skipped") & (stored.records["round"] == 0)]
    records = stored.records.loc[sorted({*kept.index, *skipped.index})]
    rounds = set(kept["round"])
    tables = {name: frame[frame["round"].isin(rounds)] for name, frame in stored.tables.items() if "round" in frame}
    return Stored(records, tables if share > 0.1 else {}, stored.assumptions)


def drawn(own: Experiment, stored: Stored) -> list[str]:
    """The names of the figures that show something: a plot, or a text that says what is missing."""
    found = []
    for name, draw in own.figures.items():
        figure = draw(stored)
        figure.draw_without_rendering()
        found += [name] if figure.axes or figure.texts else []
        pyplot.close(figure)
    return found


@pytest.mark.parametrize("own", MEASURING, ids=lambda own: own.name)
def test_without_records_every_figure_is_drawn(own: Experiment) -> None:
    assert drawn(own, no_records()) == list(own.figures)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("own", MEASURING, ids=lambda own: own.name)
def test_a_short_run_is_shown(own: Experiment, share: float, root: Path) -> None:
    stored = some(stored_reference(root / "results" / "reference" / own.name), share, seed=1)
    assert drawn(own, stored) == list(own.figures)
    assert all(isinstance(compute(stored).shape, tuple) for compute in own.tables.values())
    assert all(found(stored) for found in own.findings.values())
    assert all(isinstance(text(stored), str) for text in own.texts.values())
    claims = read_claims()
    for claim in claims[claims["notebook"] == own.name].to_dict("records"):
        assert judge(claim, stored, own.verdicts).reason, claim["id"]
    assert len(targets_table(own.targets, stored)) == len(own.targets)

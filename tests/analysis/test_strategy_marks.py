"""Colours and marks of strategies: the same everywhere, told apart where they stand together, by everybody."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lockstep.analysis.figures.bars import speedup_bars
from lockstep.analysis.figures.style import DECLARED, PALETTE, colour, empty, label, marker
from lockstep.analysis.published import read_table
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.records.reading import read_records

DEUTERANOPIA = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
PROTANOPIA = np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]])
"""Of linear red, green and blue (Machado et al. 2009, severity 1)."""
APART = 10.0  # a distance in CIELAB that is seen at a glance


def lab(colours: np.ndarray, seen_as: np.ndarray) -> np.ndarray:
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ seen_as.T, 0, 1)
    xyz = linear @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).T
    f = np.where((xyz := xyz / [0.9505, 1.0, 1.089]) > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


def distance(one: str, other: str, seen_as: np.ndarray) -> float:
    first, second = lab(np.array([colour(one), colour(other)]), seen_as)
    return float(np.linalg.norm(first - second))


def together(root: Path) -> set[tuple[str, str]]:
    """Pairs of strategies that one experiment of the stored records compares in one use case."""
    pairs: set[tuple[str, str]] = set()
    for folder in sorted((root / "results" / "reference").glob("0*")):
        rows = read_records(folder)
        for _, own in rows[rows["strategy"].isin(list(STRATEGIES))].groupby(["experiment", "use_case"]):
            pairs |= set(itertools.combinations(sorted(own["strategy"].unique()), 2))
    return pairs


def test_what_stands_in_one_figure_is_told_apart_without_red_or_green(root: Path) -> None:
    pairs = together(root)
    assert len(pairs) > 50
    for seen_as in (np.eye(3), DEUTERANOPIA, PROTANOPIA):
        apart = {(one, other): distance(one, other, seen_as) for one, other in pairs}
        alike = [pair for pair, far in apart.items() if far == 0 or (far < APART and len(set(map(marker, pair))) == 1)]
        assert not alike


def test_a_declared_colour_is_one_of_the_palettes() -> None:
    declared = {name: row.colour for name, row in STRATEGIES.items() if row.colour is not None}
    assert declared["gpipe"] >= len(PALETTE) and all(0 <= place < len(DECLARED) for place in declared.values())
    assert all(colour(name) == DECLARED[place] for name, place in declared.items())
    assert len(set(DECLARED)) == len(DECLARED)


@pytest.fixture
def table() -> pd.DataFrame:
    shared = {"use_case": "SimpleBig", "device": "cpu", "precision": "float32", "data_source": "real", "workers": 2}
    shared |= {"global_batch_size": 16, "base": "sequential", "status": "ok", "reason": ""}
    rows = [("processes", "b", 1.01), ("processes", "a", 1.5), ("sequential", "a", 1.0)]
    found = pd.DataFrame([shared | {"strategy": name, "variant": which, "speedup": x} for name, which, x in rows])
    return found.assign(low=found["speedup"] - 0.1, high=found["speedup"] + 0.1)


def test_the_second_of_an_aa_pair_stands_among_no_speedups(table: pd.DataFrame) -> None:
    figure = speedup_bars(table, read_table("single-to-multi", "table1").iloc[:0], "title")
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == [label("sequential"), label("processes")], "the base first"
    assert len(figure.axes[0].patches) == 2 and "1 measured a second time (A/A" in figure.get_suptitle()


def test_a_figure_of_nothing_is_a_sentence_in_a_notebook() -> None:
    figure = empty("Strong scaling", "no records of this experiment")
    assert figure._repr_png_() is None
    assert figure._repr_markdown_() == "*Strong scaling: no records of this experiment.*"

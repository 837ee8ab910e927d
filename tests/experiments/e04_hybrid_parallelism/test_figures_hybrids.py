"""Figures of notebook 04: every number of their tables is drawn, and the map says that all of it is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from drawn_again import check_figures
from fake_pipelines import NO_CUDA, hybrid_records, layers, resources
from lockstep.analysis.figures.bars import in_drawn_order, speedup_bars
from lockstep.analysis.figures.style import row_labels
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.experiments.e04_hybrid_parallelism import tables as hybrids
from lockstep.experiments.e04_hybrid_parallelism.drawings import hybrid_map
from lockstep.experiments.e04_hybrid_parallelism.figures import FIGURES
from lockstep.predict.pipeline_speedups import pipeline_speedup_table
from published_marks import published_marks

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


@pytest.mark.slow  # it draws all of them
def test_every_figure_is_written_and_the_same_when_drawn_again(tmp_path: Path) -> None:
    traced = {"layers": layers(), "resources": resources("hybrid", ("sequential", "1f1b"))}
    stored = Stored(hybrid_records(), traced)
    check_figures(FIGURES, stored, tmp_path, again=("map", "predicted"))


def test_table_2_stands_on_the_rows_of_the_gpu() -> None:
    published = read_table("single-to-multi", "table2")
    table = pipeline_speedup_table(hybrid_records(), "hybrid")
    both = speedup_bars(table, published, "title")
    for axis, use_case in zip(both.axes, ("ComplexSmall", "SimpleBig"), strict=True):
        own = table[table["use_case"] == use_case]
        own = own[(own["status"] != "skipped") | (own["strategy"] == "gpipe")]
        own = in_drawn_order(own[own["variant"] == "a"]).reset_index(drop=True)
        marks = published_marks(axis)
        found = {(own.loc[y, "device"], own.loc[y, "replicas"]): speedup for y, speedup in marks.items()}
        model, hybrid = {"ComplexSmall": (6.74, 2.84), "SimpleBig": (8.01, 3.85)}[use_case]
        assert found == {("cuda", 1): model, ("cuda", 2): hybrid}
    assert texts(both).count(f"skipped: {NO_CUDA}") == 4, "those with a published mark"
    assert any(f"Not shown: 4 rows skipped ({NO_CUDA})" in text for text in texts(both))


def test_replicas_are_named_where_the_workers_do_not_show_them() -> None:
    table = pipeline_speedup_table(hybrid_records(), "hybrid")
    once = table[(table["use_case"] == "SimpleBig") & (table["device"] == "cpu") & (table["variant"] == "a")]
    labels = row_labels(once)
    assert {"1F1B, 2 workers, 1 replica", "1F1B, 4 workers, 1 replica", "1F1B, 4 workers, 2 replicas"} <= set(labels)
    assert "processes, all-reduce, 2 workers" in labels and len(set(labels)) == len(labels)


def test_the_map_is_dotted_and_says_that_all_of_it_is_predicted() -> None:
    table = hybrids.hybrid_map_table(hybrid_records(), layers())
    figure = hybrid_map(table, "title")
    assert len(figure.axes) == 2 * len(hybrids.MAP_RANKS)
    lines = [line for axis in figure.axes for line in axis.lines if len(line.get_xdata()) > 2]
    assert len(lines) == table.groupby(["use_case", "ranks"])["kind"].nunique().sum()
    assert {line.get_linestyle() for line in lines} == {":"}
    assert "all of it predicted;" in " ".join(texts(figure))
    assert "by a model up to 1.27 times off on measured steps" in " ".join(texts(hybrid_map(table, "title", 1.272)))
    tops = {axis.get_ylim()[1] for axis in figure.axes[: len(hybrids.MAP_RANKS)]}
    assert len(tops) == 1 and tops.pop() > 4, "panels of a row share an axis that holds all their lines"

"""Figures of notebook 05: every number of their tables is drawn, predictions look unlike measurements."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from drawn_again import check_figures
from fake_distribution import not_run, records, resources
from lockstep.analysis.figures.bars import in_drawn_order, speedup_bars
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored
from lockstep.analysis.tables import distributed_speedup_table
from lockstep.experiments.e05_mpi_distribution import drawings
from lockstep.experiments.e05_mpi_distribution import tables as distribution
from lockstep.experiments.e05_mpi_distribution.figures import FIGURES
from lockstep.predict.link_model import link_of, message_table
from published_marks import published_marks

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


@pytest.mark.slow  # it draws all of them
def test_every_figure_is_written_and_the_same_when_drawn_again(tmp_path: Path) -> None:
    stored = Stored(records(), {"resources": resources()})
    check_figures(FIGURES, stored, tmp_path, again=("ranking", "links"))


def test_a_ranking_shows_one_and_several_hosts() -> None:
    table = distribution.ranking_table(records())
    figure = drawings.ranking_points(table, "title")
    shown = texts(figure)
    assert {"1 host", "2 hosts"} <= set(shown)
    for row in table.itertuples():
        assert f"{row.ratio:.3f}" in shown


def test_what_is_predicted_is_dotted_and_said_to_be() -> None:
    frame = records()
    link = link_of(frame)
    wire = message_table(frame, "wire", link)
    figure = drawings.message_lines({"emulated link": wire}, "title", link)
    (axis,) = figure.axes
    dotted = [line for line in axis.lines if line.get_linestyle() == ":"]
    predicted = wire[wire["strategy"] == "mpi_allreduce"].sort_values("bytes")["predicted_seconds"]
    assert [list(line.get_ydata()) for line in dotted] == [pytest.approx(predicted.tolist())]
    assert any(text.startswith("all-reduce as predicted from ping-pong") for text in texts(figure))


def test_each_processor_has_its_own_panel_of_links() -> None:
    """Bug: a point of both processors stood beside a point of one, as if the link had made the difference."""
    table = distribution.link_table(records())
    twice = table.assign(**{name: 2 * table[name] for name in ("speedup", "low", "high")})
    figure = drawings.link_lines({"A": table, "B": twice}, "title")
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["A", "B"]
    drawn = [sorted(float(y) for box in axis.containers for y in box.lines[0].get_ydata()) for axis in figure.axes]
    expected = sorted(table["speedup"].dropna())
    assert drawn[0] == pytest.approx(expected) and drawn[1] == pytest.approx([2 * each for each in expected])


def test_without_an_emulated_cluster_figures_say_so() -> None:
    frame = not_run(records(), "skipped", "no root", experiment="wire")
    assert len(drawings.message_lines({"wire": message_table(frame, "wire")}, "title").axes) == 1
    assert "no records" in " ".join(texts(drawings.link_lines({"A": pd.DataFrame()}, "title")))
    assert "no records" in " ".join(texts(drawings.network_bars(pd.DataFrame(), "title")))


def test_marks_of_one_message_stand_side_by_side_without_a_line_through_two_sizes() -> None:
    """Seen: three lines on top of each other, through two points each."""
    wire = message_table(records(), "wire")
    sizes = sorted(wire["bytes"].unique())
    few = wire[wire["bytes"].isin([sizes[0], sizes[-1]])]
    (axis,) = drawings.message_lines({"wire": few}, "title").axes
    marks = [container.lines[0] for container in axis.containers]
    places = [float(x) for line in marks for x in line.get_xdata()]
    assert len(places) == len(set(places)) == len(few)
    assert {line.get_linestyle() for line in marks} == {"None"}
    low, high = axis.get_xlim()
    assert low < min(places) and max(places) < high


def test_each_published_speedup_stands_on_the_row_of_its_device() -> None:
    """Table 3 has a row MPI for the CPU and one for the GPU: both were drawn on the CPU's bar."""
    table = distributed_speedup_table(records(), "weak")
    figure = speedup_bars(table, read_table("single-to-multi", "table3"), "title")
    for axis, use_case in zip(figure.axes, ("ComplexSmall", "Pneumonia", "SimpleBig"), strict=True):
        own = table[table["use_case"] == use_case]
        own = own[(own["status"] != "skipped") | (own["strategy"] == "allreduce")]
        own = in_drawn_order(own).reset_index(drop=True)
        marks = published_marks(axis)
        devices = {own.loc[y, "device"]: speedup for y, speedup in marks.items()}
        expected = {"ComplexSmall": {"cpu": 12.11, "cuda": 4.13}, "SimpleBig": {"cpu": 26.62, "cuda": 11.79}}
        assert devices == expected.get(use_case, {})
        assert set(own.loc[list(marks), "strategy"]) <= {"allreduce"}

"""Figures of notebook 02 from records alone: same bytes twice, all numbers drawn, published never like measured."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from fake_records import records, resources
from lockstep.analysis.figures.bars import phase_stack, speedup_bars
from lockstep.analysis.figures.lines import resource_traces
from lockstep.analysis.figures.recipes import Recipe, draw_all
from lockstep.analysis.figures.style import MEASURED, PUBLISHED, SIMULATED, save_figure
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e02_threads_vs_processes.drawings import exchange_bars, input_bars
from lockstep.experiments.e02_threads_vs_processes.figures import FIGURES
from lockstep.experiments.e02_threads_vs_processes.tables import (
    exchange_table,
    input_table,
    phase_table,
    speedup_table,
)
from published_marks import published_marks

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def speedup_figure(frame: pd.DataFrame) -> Figure:
    return FIGURES["speedup"](Stored(frame))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return draw_all(FIGURES, Stored(records(), {"resources": resources()}), tmp_path_factory.mktemp("figures"))


def test_every_figure_is_written_as_png_and_svg(drawn: list[Path]) -> None:
    assert [path.name for path in drawn] == [f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
    assert all(path.stat().st_size > 3000 for path in drawn)


def test_files_hold_no_date_and_no_version(drawn: list[Path]) -> None:
    for path in drawn:
        content = path.read_bytes()
        assert b"dc:date" not in content and b"Matplotlib v" not in content and b"matplotlib.org" not in content[:400]


@pytest.mark.slow
def test_drawing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    once = save_figure(speedup_figure(records()), tmp_path / "a", "speedup")
    again = save_figure(speedup_figure(records()), tmp_path / "b", "speedup")
    assert [path.read_bytes() for path in once] == [path.read_bytes() for path in again]


@pytest.mark.slow
def test_saving_the_same_figure_twice_and_showing_it_gives_the_same_bytes(tmp_path: Path) -> None:
    figure = speedup_figure(records())
    first = [path.read_bytes() for path in save_figure(figure, tmp_path, "x")]
    assert first == [path.read_bytes() for path in save_figure(figure, tmp_path, "x")]
    assert figure._repr_png_() == first[0]


def test_drawing_leaves_the_callers_settings_alone() -> None:
    before = dict(mpl.rcParams)
    speedup_figure(records())
    assert dict(mpl.rcParams) == before


def test_speedups_are_drawn_with_data_source_batch_and_published() -> None:
    found = texts(speedup_figure(records()))
    table = speedup_table(records())
    shown = table[(table["status"] == "ok") & (table["variant"] == "a")]
    assert len(shown) == 9
    for row in shown.itertuples():
        assert any(text == f"{row.speedup:.2f}" for text in found), "alone: seconds are of other rounds, too"
    for value in (
        "4",
        "6.15",
        "5.76",
        "15.57",
        "1.57",
        "1.25",
        "published (Table 1)",
        "published (Table 1), beyond the axis",
    ):
        assert value in found
    assert "AlexNet (SimpleBig; real photos, 16 images per step)" in found
    assert found.count("skipped: no CUDA device") == 2, "rows with a published mark; the others are a footnote"


def test_skipped_rows_without_a_published_mark_are_a_footnote() -> None:
    """Seen: they filled half of a figure."""
    table = speedup_table(records())
    table.loc[table["strategy"] == "ddp", ["status", "reason"]] = ["skipped", "no gloo here"]
    found = texts(speedup_bars(table, read_table("single-to-multi", "table1"), "title"))
    assert "skipped: no gloo here" not in found
    (footnote,) = [text for text in found if "Not shown: " in text]
    assert f"{(table['strategy'] == 'ddp').sum()} rows skipped (no gloo here)" in footnote


def test_a_failed_row_says_why() -> None:
    found = texts(speedup_figure(records(failed="threads")))
    assert found.count("failed: worker 1 raised ValueError: bad") == 2


def test_published_measured_and_simulated_share_no_style() -> None:
    styles = [(style["linestyle"], style["marker"]) for style in (PUBLISHED, MEASURED, SIMULATED)]
    assert len({line for line, _ in styles}) == len({marker for _, marker in styles}) == 3
    axes = speedup_figure(records()).axes
    marks = [line for axis in axes for line in axis.lines if line.get_markerfacecolor() == "white"]
    assert len(marks) == 6 and {mark.get_marker() for mark in marks} == {"D", ">"}
    assert {mark.get_linestyle() for mark in marks} == {"None"}


def test_a_published_speedup_beyond_the_axis_is_an_arrow_with_its_number() -> None:
    """Seen: a GPU's 15.57 squeezed what was measured into the left fifth."""
    figure = speedup_figure(records())
    measured = speedup_table(records())
    most = measured[["speedup", "high"]].max(axis=None)
    told = {number for axis in figure.axes for number in published_marks(axis).values()}
    assert told == {4, 6.15, 5.76, 15.57, 1.57, 1.25}
    for axis in figure.axes:
        last = axis.get_xlim()[1]
        assert last <= 2 * most, "the axis is of what was measured"
        arrows = [int(line.get_ydata()[0]) for line in axis.lines if line.get_marker() == ">"]
        assert arrows == [y for y, number in published_marks(axis).items() if number > last] != []


def test_the_cost_of_jpeg_input_is_what_it_takes_away() -> None:
    """Seen: two bars of 0.97 and 1.00 from 0 on, labelled "1 x 1 core, none free"."""
    table = input_table(records())
    figure = FIGURES["input"](Stored(records()))
    shown = [bar.get_width() for axis in figure.axes for bar in axis.patches]
    known = table.sort_values("use_case", kind="stable")["ratio"].dropna()
    assert shown == pytest.approx((100 * (1 - known)).tolist())
    labels = [text.get_text() for axis in figure.axes for text in axis.get_yticklabels()]
    assert labels and all("decode" in text and " x " not in text for text in labels)


def test_nothing_lost_has_no_sign() -> None:
    """Seen: -0.0 % of the images lost."""
    table = input_table(records()).assign(ratio=1.0001, low=0.99, high=1.01)
    shown = [text.get_text() for axis in input_bars(table, "x").axes for text in axis.texts]
    assert any(text.startswith("0.0 %") for text in shown) and not any("-0.0" in text for text in shown)


def test_no_bar_is_cut_off_at_the_end_of_its_axis() -> None:
    """Seen: an exchange of 267 ms without an interval ended at 47."""
    table = exchange_table(records())
    table.loc[table["strategy"] == "processes", ["seconds", "seconds_low", "seconds_high"]] = [9.0, None, None]
    axis = exchange_bars(table, "x").axes[0]
    assert axis.get_xlim()[1] > 9000


def test_parts_that_nobody_can_see_have_no_swatch() -> None:
    """Seen: a legend of five parts for bars of two."""
    table = phase_table(records()).assign(wait_seconds=0.0)
    figure = phase_stack(table, "x")
    (legend,) = figure.legends
    assert "wait" not in [text.get_text() for text in legend.get_texts()]
    assert legend.get_title().get_text() == "too short to be seen: wait"


def test_the_copy_bound_is_a_line_and_not_a_bar() -> None:
    figure = exchange_bars(exchange_table(records()), "x")
    axis = figure.axes[0]
    *bars, shaded = axis.patches
    assert len(bars) == 3
    assert shaded.get_x() < 45 < shaded.get_x() + shaded.get_width(), "the bound has an interval, too"
    dashed = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1 and dashed[0].get_xdata()[0] == pytest.approx(45, rel=0.03)


def test_traces_draw_simple_big_solid_and_complex_small_dashed() -> None:
    figure = resource_traces(resources().assign(io_wait_percent=20.0), "x", data="real photos")
    assert len(figure.axes) == 5 * 2, "the framework's threads have a row of their own"
    for axis in figure.axes:
        lines = [line for line in axis.lines if line.get_linestyle() != ":"]  # which marks where training begins
        assert sorted(line.get_linestyle() for line in lines) == ["-", "--"]
        top = max(line.get_ydata().max() for line in lines)
        assert axis.get_ylim()[0] < 0 and axis.get_ylim()[1] > 1.1 * top, "no line lies on the frame"


def test_traces_without_io_wait_are_drawn() -> None:
    figure = resource_traces(resources().assign(io_wait_percent=""), "x")
    figure.canvas.draw()
    assert any(len(axis.lines) for axis in figure.axes), "the other traces are drawn all the same"


def test_waiting_for_io_that_is_hardly_there_is_said_and_not_drawn() -> None:
    """04 and 03 gave a panel to one sample of 13 %, in a trace that was not even drawn."""
    traces = resources().assign(io_wait_percent=0.25)
    later = traces.assign(round=traces["round"].max() + 1, io_wait_percent=40.0)
    figure = resource_traces(pd.concat([traces, later]), "x", data="real photos")
    assert len(figure.axes) == 4 * 2
    assert "Not shown: I/O wait, on average at most 0.25 % of the time" in figure.get_suptitle()
    assert len(resource_traces(resources().assign(io_wait_percent=40.0), "x").axes) == 5 * 2


def test_traces_from_before_threads_were_told_apart_are_drawn_without_that_row() -> None:
    figure = resource_traces(resources().drop(columns=["training_threads", "framework_threads"]), "x")
    assert len(figure.axes) == 3 * 2


def test_a_trace_of_one_sample_is_drawn_as_a_mark() -> None:
    """Steps so short that the sampler came by once."""
    traces = resources().assign(io_wait_percent=20.0)
    traces = traces[traces["phase"] == "train"]
    first = traces["seconds"] == traces["seconds"].min()
    traces = traces[(traces["strategy"] != "threads") | (traces["use_case"] != "SimpleBig") | first]
    figure = resource_traces(traces, "x")
    for axis in figure.axes:
        for line in [each for each in axis.lines if each.get_linestyle() != ":"]:
            assert (line.get_marker() == "o") == (len(line.get_xdata()) == 1), "a line of one point is invisible"
            assert line.get_marker() in ("o", "none")
    marks = [line for axis in figure.axes for line in axis.lines if line.get_marker() == "o"]
    assert len(marks) == 5 and all(line.get_linestyle() == "-" for line in marks)
    solid, dashed, _ = figure.legends[0].get_lines()
    assert (solid.get_marker(), dashed.get_marker()) == ("o", "none")


def ticks_outside(axes: Axes) -> list[Text]:
    """Labels that exist, but are not drawn: those of ticks beyond the limits, or of an axis shared with a neighbour."""
    found = []
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        low, high = sorted(limits)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            found += [text for text, on in ((tick.label1, tick.label1.get_visible()), (tick.label2, False))
                      if not on or not low <= tick.get_loc() <= high]  # fmt: skip
    return found


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_labels_do_not_overlap(draw: Recipe) -> None:
    figure = draw(Stored(records(failed="ddp"), {"resources": resources()}))
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    hidden = {id(text) for axis in figure.axes for text in ticks_outside(axis)}
    shown = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible() and id(t) not in hidden]
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in shown]
    whole = figure.bbox
    assert not [text for text, box in boxes if box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1]
    clashes = [
        (one, two)
        for (one, a), (two, b) in itertools.combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1 and one != two
    ]
    assert not clashes


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_no_records_give_a_figure_that_says_so(draw: Recipe) -> None:
    found = " ".join(texts(draw(no_records())))
    assert "no records" in found or "no resource traces" in found

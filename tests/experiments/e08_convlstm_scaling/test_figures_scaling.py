"""Figures of notebook 08: measured, modelled and published numbers look unlike each other, and all are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from drawn_again import check_figures
from fake_distribution import not_run
from fake_scaling import LINK, flops, records
from lockstep.analysis.figures.style import MARKERS, marker
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e08_convlstm_scaling import EXPERIMENT
from lockstep.experiments.e08_convlstm_scaling import flops as counts
from lockstep.experiments.e08_convlstm_scaling.drawings import (
    flops_points,
    scaling_panels,
    workers_accuracy,
)
from lockstep.experiments.e08_convlstm_scaling.figures import FIGURES
from lockstep.experiments.e08_convlstm_scaling.forecast_drawings import forecast_lines, model_parity, table3_lines
from lockstep.experiments.e08_convlstm_scaling.forecasts import cluster_of, forecast_table
from lockstep.experiments.e08_convlstm_scaling.table3 import modelled_times, published_times
from lockstep.experiments.e08_convlstm_scaling.tables import TABLES, worker_accuracy_table, worker_scaling_table
from lockstep.experiments.parameters import read_parameters
from lockstep.predict import cost_check
from stored_reference import stored_reference

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


def texts(figure: Figure) -> str:
    return " ".join(found.get_text() for found in figure.findobj(Text))


@pytest.mark.slow  # it draws all of them
def test_every_figure_is_written_and_the_same_when_drawn_again(frame: pd.DataFrame, tmp_path: Path) -> None:
    stored = Stored(frame, {"flops": flops()})
    check_figures(FIGURES, stored, tmp_path, again=("scaling", "table3"))


def test_no_interval_of_a_later_panel_is_cut_off(frame: pd.DataFrame) -> None:
    """The limits of a shared axis were fixed by the first panel."""
    strong = worker_scaling_table(frame, "strong")
    higher = strong.assign(speedup=strong["speedup"] * 3, low=strong["low"] * 3, high=strong["high"] * 3)
    figure = scaling_panels({"strong scaling": strong, "weak scaling": higher}, "title")
    highest = higher.loc[higher["variant"] == "a", "high"].max()
    assert highest > 0 and all(axis.get_ylim()[0] == 0 and axis.get_ylim()[1] >= highest for axis in figure.axes)


def test_what_is_modelled_is_dotted_and_without_marks(frame: pd.DataFrame) -> None:
    forecast = forecast_table(frame, (2, 5, 32), LINK, 128, 64)
    strong = worker_scaling_table(frame, "strong")
    figure = forecast_lines(forecast, strong, "title", (5, 6.59))
    dotted = [line for axis in figure.axes for line in axis.lines if line.get_linestyle() == ":"]
    assert len(dotted) == 2 * 2 * 2 and {line.get_marker() for line in dotted} == {"none"}
    own = forecast[(forecast["scaling"] == "strong") & (forecast["network"] == "cnn")]
    drawn = [list(line.get_ydata()) for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    for _, rows in own.groupby("way", sort=False):
        assert pytest.approx(rows["modelled_speedup"].tolist()) in drawn
    shown = texts(figure)
    assert "published: 6.59 on 5 nodes" in shown
    assert "all-reduce (modelled)" in shown and "all-reduce (measured on one machine, no link)" in shown


def test_only_cells_with_a_core_each_stand_beside_the_model(frame: pd.DataFrame) -> None:
    """Bug: below a title that names a link, "measured" were two workers of one machine, which no link joins."""
    forecast = forecast_table(frame, (2, 5), LINK, 128, 64)
    figure = forecast_lines(forecast, worker_scaling_table(frame, "strong"), "50 µs per message, 1 Gbit/s")
    marks = {marker(name) for name in ("allreduce", "parameter_server")}
    points = {float(line.get_xdata()[0]) for line in figure.axes[0].lines if line.get_marker() in marks}
    assert points == {2.0}  # a server would have made it 3 ranks
    shown = texts(figure)
    assert "all-reduce (measured on one machine, no link)" in shown
    assert "parameter server (measured" not in shown, "a legend of what is drawn"


def test_scaling_shows_who_takes_turns(frame: pd.DataFrame) -> None:
    tables = {name: worker_scaling_table(frame, name) for name in ("strong", "weak")}
    figure = scaling_panels(tables, "title")
    assert len(figure.axes) == 4 and "ranks take turns on cores" in texts(figure)
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert {round(float(x)) for line in hollow for x in line.get_xdata()} == {2, 4}  # 2 and the server; 4


def test_a_fit_to_one_point_is_not_drawn(frame: pd.DataFrame) -> None:
    """Bug: Amdahl's line through one point looked like a finding on more workers."""
    strong = worker_scaling_table(frame, "strong")
    assert strong["amdahl_speedup"].notna().any()
    assert "Amdahl's fit" not in texts(scaling_panels({"strong": strong}, "title"))
    more = strong.assign(time_shared=False, cores=strong["workers"])
    assert "Amdahl's fit" in texts(scaling_panels({"strong": more}, "title"))


def test_held_out_cells_are_filled_and_the_others_hollow(frame: pd.DataFrame) -> None:
    table = cost_check.check_table(frame)
    figure = model_parity(table, "title")
    left, right = figure.axes
    for axis in (left, right):
        marks = [line for line in axis.lines if line.get_marker() in MARKERS]
        filled = [line for line in marks if line.get_markerfacecolor() != "white"]
        assert sum(len(line.get_xdata()) for line in marks) == len(table)
        assert sum(len(line.get_xdata()) for line in filled) == (table["part"] == "held out").sum()


def test_the_parity_plot_has_a_diagonal_on_which_both_agree(frame: pd.DataFrame) -> None:
    """Seen: 46 rows of labels, 1 515 px high, in place of one plot."""
    table = cost_check.check_table(frame)
    figure = model_parity(table, "title")
    left, right = figure.axes
    (diagonal,) = [line for line in left.lines if line.get_marker() not in MARKERS]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) and left.get_xlim() == left.get_ylim()
    points = [line for line in left.lines if line.get_marker() in MARKERS]
    drawn = sorted((float(x), float(y)) for line in points for x, y in zip(*line.get_data(), strict=True))
    wanted = sorted(zip(table["step_seconds"], table["modelled_step_seconds"], strict=True))
    assert np.array(drawn) == pytest.approx(np.array(wanted))
    low, high = left.get_xlim()
    assert low < min(map(min, wanted)) and max(map(max, wanted)) < high
    errors = sorted(float(y) for line in right.lines if line.get_marker() in MARKERS for y in line.get_ydata())
    assert errors == pytest.approx(sorted(100 * (table["ratio"] - 1)))
    assert figure.get_figheight() < 8


def test_table_3_is_hollow_grey_and_beside_the_model(frame: pd.DataFrame) -> None:
    published = published_times(read_table("convlstm-d-accel", "table3"))
    forecast = forecast_table(frame, published["nodes"], LINK, 128, 64)
    modelled = modelled_times(forecast, published["nodes"], 5)
    figure = table3_lines(published, modelled, "title")
    (axis,) = figure.axes
    marks = [line for line in axis.lines if line.get_marker() == "D"]
    assert list(marks[0].get_ydata()) == pytest.approx(published["published_times"].tolist())
    assert sum(line.get_linestyle() == ":" for line in axis.lines) == 2
    shown = texts(figure)
    assert "published (Table 3, which does not say: strong or weak)" in shown
    assert "ConvLSTM (modelled: strong scaling, assumed link)" in shown


def test_panels_of_a_forecast_share_their_axis_and_fit_a_page(frame: pd.DataFrame) -> None:
    """Seen: four panels side by side, 1 848 px, each with another axis."""
    figure = forecast_lines(forecast_table(frame, (2, 5, 32), LINK, 128, 64), pd.DataFrame(), "title")
    assert len(figure.axes) == 4 and figure.get_figwidth() <= 9
    assert len({axis.get_ylim() for axis in figure.axes}) == 1
    assert {axis.get_title(loc="left") for axis in figure.axes} >= {"weak scaling, ConvLSTM", "strong scaling, CNN"}


def test_accuracy_has_an_interval_for_every_cell(frame: pd.DataFrame) -> None:
    figure = workers_accuracy(worker_accuracy_table(frame), "title")
    shown = texts(figure)
    assert "batch 32 (measured)" in shown and "batch 128 (measured)" in shown and "published: 100 %" in shown


def test_published_accuracy_stands_beside_the_workers_that_were_measured(frame: pd.DataFrame) -> None:
    figure = workers_accuracy(worker_accuracy_table(frame), "title")
    (axis,) = figure.axes
    (diamond,) = [line for line in axis.lines if line.get_marker() == "D"]
    assert float(diamond.get_xdata()[0]) > 4 * 1.2 and list(diamond.get_ydata()) == [100.0]


def test_measured_servers_are_nodes_of_a_forecast(frame: pd.DataFrame) -> None:
    many = frame.assign(reason=frame["reason"].str.replace("workers share cores", "", regex=False))
    forecast = forecast_table(frame, (2, 5), LINK, 128, 64)
    figure = forecast_lines(forecast, worker_scaling_table(many, "strong"), "title")
    marks = {marker(name) for name in ("allreduce", "parameter_server")}
    points = sorted(float(line.get_xdata()[0]) for line in figure.axes[0].lines if line.get_marker() in marks)
    assert points == [2.0, 3.0, 4.0, 5.0]  # all-reduce on 2 and 4; 2 and 4 workers with a server
    assert "parameter server (measured on one machine, no link)" in texts(figure)


def test_flops_are_drawn_counted_by_equation_and_as_printed() -> None:
    beside = counts.beside_table2(read_table("convlstm-d-accel", "table4"))
    figure = flops_points(counts.counted_table(flops()), beside, "title")
    (axis,) = figure.axes
    (diamonds,) = [line for line in axis.lines if line.get_marker() == "D"]
    assert list(diamonds.get_xdata()) == [3.2e15, 1.28e12, 5.12e12, 2_560_000]
    assert axis.get_xscale() == "log" and not axis.patches, "a log scale has no zero at which a bar could begin"


def test_without_records_figures_say_so(frame: pd.DataFrame) -> None:
    nothing = pd.DataFrame()
    for figure in (
        scaling_panels({"strong": nothing}, "title"), workers_accuracy(nothing, "title"),
        flops_points(nothing, nothing, "title"), model_parity(nothing, "title"),
        forecast_lines(nothing, nothing, "title"),
    ):  # fmt: skip
        assert any(word in texts(figure) for word in ("no records", "no FLOP", "not calibrated"))
    failed = not_run(frame, "failed", "worker 1 raised", experiment="strong", strategy="allreduce")
    figure = scaling_panels({"strong": worker_scaling_table(failed, "strong")}, "title")
    assert "all-reduce (measured)" not in texts(figure) and "parameter server (measured)" in texts(figure)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_of_the_notebook_is_of_what_is_stored(name: str, root: Path) -> None:
    assert len(TABLES[name](stored_reference(root / "results" / "reference" / EXPERIMENT.name)))
    published = name in ("published_times", "superlinear", "table4", "table4_totals", "table4_beside_table2")
    assert TABLES[name](no_records()).empty is not published


def test_a_forecast_is_of_the_cluster_that_the_parameters_assume(frame: pd.DataFrame) -> None:
    assumed = {"assumed_latency_seconds": 1e-3, "assumed_bits_per_second": 1e8, "forecast_nodes": [2, 3]}
    stored = Stored(frame, assumptions=assumed | {"epoch_images": 100})
    cluster = cluster_of(stored)
    assert (cluster.link.alpha_seconds, cluster.link.beta_seconds_per_byte) == pytest.approx((1e-3, 8e-8))
    assert (cluster.batch, cluster.per_worker) == (128, 64), "as measured"
    assert list(TABLES["cluster"](stored).columns) == [2, 3]
    few, many = TABLES["busy"](stored), TABLES["busy"](Stored(frame))
    assert few["modelled_steps_per_epoch"].max() < many["modelled_steps_per_epoch"].max()
    assert str(cluster.link) in texts(FIGURES["cluster"](stored))


def test_what_is_assumed_where_nobody_says_is_what_the_notebook_says(root: Path) -> None:
    defaults = read_parameters(root / "notebooks" / f"{EXPERIMENT.name}.ipynb")
    stored = Stored(no_records().records, assumptions={name: defaults[name].default for name in EXPERIMENT.drawn_only})
    asked, known = cluster_of(stored), cluster_of(no_records())
    assert (asked.link, list(asked.nodes), asked.epoch_images) == (known.link, list(known.nodes), known.epoch_images)
    sizes = (defaults["batch_size"].default, defaults["per_worker_batch_size"].default)
    assert (known.batch, known.per_worker) == sizes

"""Figures of notebook 06: every number of their tables is drawn, and what there is not is said."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from drawn_again import check_figures
from fake_distribution import not_run
from fake_spark import NO_JAVA, records, resources, spark
from lockstep.analysis.figures.bars import in_drawn_order, speedup_bars
from lockstep.analysis.figures.recipes import draw_all
from lockstep.analysis.published import read_table
from lockstep.analysis.stored import Stored, no_records
from lockstep.analysis.tables import start_table
from lockstep.experiments.e06_spark_distribution import drawings
from lockstep.experiments.e06_spark_distribution import tables as spark_tables
from lockstep.experiments.e06_spark_distribution.figures import FIGURES

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


@pytest.mark.slow  # it draws all of them
def test_every_figure_is_written_and_the_same_when_drawn_again(tmp_path: Path) -> None:
    stored = Stored(records(), {"resources": resources(), "spark": spark()})
    check_figures(FIGURES, stored, tmp_path, again=("speedup", "data"))


def test_the_published_speedup_stands_at_sparknet_with_the_most_workers() -> None:
    table = spark_tables.variant_table(records())
    figure = speedup_bars(table, read_table("single-to-multi", "table3"), "title")
    expected = {"ComplexSmall": ("sparknet", 2, 1.14), "SimpleBig": ("sparknet", 2, 0.53)}
    for axis, use_case in zip(figure.axes, ("ComplexSmall", "SimpleBig"), strict=True):
        own = in_drawn_order(table[table["use_case"] == use_case]).reset_index(drop=True)
        (mark,) = [line for line in axis.lines if line.get_marker() == "D"]
        row = own.loc[int(mark.get_ydata()[0])]
        assert (row["strategy"], row["workers"], float(mark.get_xdata()[0])) == expected[use_case]
        beside = [text for text in axis.texts if isinstance(text, Annotation)]  # not the column of our own numbers
        (told,) = [text for text in beside if text.get_text() == f"{expected[use_case][2]:g}"]
        number = expected[use_case][2]
        crossed = row["low"] <= number * 1.5 and row["high"] >= number
        assert told.get_ha() == ("right" if crossed else "left"), "a whisker once struck the number through"
        assert told.get_zorder() > 4 and told.get_bbox_patch() is not None


def test_parts_of_a_step_add_up_to_its_mark() -> None:
    table = spark_tables.parts_table(records(), spark())
    figure = drawings.parts_stack(table, "title")
    for axis, use_case in zip(figure.axes, ("ComplexSmall", "SimpleBig"), strict=True):
        own = in_drawn_order(table[table["use_case"] == use_case]).reset_index(drop=True)
        ends: dict[int, float] = {}
        for bar in axis.patches:
            place = round(bar.get_y() + bar.get_height() / 2)
            ends[place] = max(ends.get(place, 0.0), bar.get_x() + bar.get_width())
        assert ends == {y: pytest.approx(step) for y, step in enumerate(own["step_seconds"])}
    legend = texts(figure)
    assert {"whole step", "exchange: broadcast (driver)"} <= set(legend)
    assert not [text for text in legend if "_seconds" in text]


def test_panels_are_as_high_as_they_have_rows() -> None:
    figure = drawings.parts_stack(spark_tables.parts_table(records(), spark()), "title")
    assert list(figure.axes[0].get_gridspec().get_height_ratios()) == [3, 6]


def test_every_part_has_a_name_of_its_own() -> None:
    (legend,) = drawings.parts_stack(spark_tables.parts_table(records(), spark()), "title").legends
    names = [text.get_text() for text in legend.get_texts()]
    unseen = legend.get_title().get_text().removeprefix("too short to be seen: ").split(", ")
    assert len({*names, *unseen}) == len(names) + len(unseen) == len(spark_tables.PARTS) + 1
    exchange = [name for name in (*names, *unseen) if name.startswith("exchange: ")]
    assert len(exchange) == len(spark_tables.AGREEING), "Bug: one part had the name of all that the text calls exchange"


def test_each_rate_is_a_point_with_its_interval() -> None:
    table = spark_tables.data_table(records())
    (axis,) = drawings.data_lines(table, "title").axes
    drawn = sorted(float(y) for container in axis.containers for y in container.lines[0].get_ydata())
    assert drawn == pytest.approx(sorted(table["images_per_second"]))
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["640", "4000"]
    assert axis.get_title(loc="left") == "title\n(Pneumonia, synthetic photos, 64 images per step, 2 workers)"


def test_a_line_of_one_point_warns_of_nothing() -> None:
    """matplotlib took the float of a Series with one row: the notebook's cell carried pandas's warning."""
    table = spark_tables.data_table(records())
    (axis,) = drawings.data_lines(table[table["images"] == 640], "title").axes
    assert [len(container.lines[0].get_xdata()) for container in axis.containers] == [1, 1, 1]


def test_a_size_that_failed_has_no_point() -> None:
    frame = not_run(records(), "failed", "out of memory", experiment="data", images=4000)
    (axis,) = drawings.data_lines(spark_tables.data_table(frame), "title").axes
    drawn = [[round(float(x), -2) for x in container.lines[0].get_xdata()] for container in axis.containers]
    assert [len(points) for points in drawn] == [1] * 3 and max(max(drawn)) < 800


def test_resources_name_the_batch_of_what_was_sampled() -> None:
    """They said "1 to 16 images per step", which is of all cells beside them. A trace has a round of its own."""
    stored = Stored(records(), {"resources": resources().assign(round=1000)})
    batches = stored.of("speedup").query("strategy == 'sparknet' and workers == 2 and use_case == 'SimpleBig'")
    (batch,) = batches["global_batch_size"].unique()
    assert f", {batch} images per step)" in " ".join(texts(FIGURES["resources"](stored)))
    assert stored.of("speedup")["global_batch_size"].nunique() > 1


def test_a_start_says_how_often_it_was_measured() -> None:
    table = start_table(records())
    figure = drawings.start_bars(table, "title")
    (axis,) = figure.axes
    assert [bar.get_width() for bar in axis.patches] == table["median"].tolist()
    shown = texts(figure)
    assert "8.0 s  (1 start)" in shown and "7.0 s  (1 start)" in shown
    names = {"ranks in Spark's barrier mode, 2 workers", "SparkNet's driver, 1 worker", "MPI's ranks, 2 workers"}
    assert names <= set(shown), "those of the text"


@pytest.mark.parametrize("name", list(FIGURES))
def test_nothing_to_draw_is_said(name: str) -> None:
    said = texts(FIGURES[name](no_records()))
    assert [text for text in said if text.startswith("no ")], said


@pytest.mark.slow
def test_without_java_the_rows_say_so(tmp_path: Path) -> None:
    frame = records()
    for launcher in ("spark", "spark_driver"):
        frame = not_run(frame, "skipped", NO_JAVA, launcher=launcher)
    assert draw_all(FIGURES, Stored(frame, {"resources": resources()}), tmp_path)
    parts = drawings.parts_stack(spark_tables.parts_table(frame, pd.DataFrame()), "title")
    assert any(f"Not shown: 4 rows skipped ({NO_JAVA})" in text for text in texts(parts)), "of both use cases"

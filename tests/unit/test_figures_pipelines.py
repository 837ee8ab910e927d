"""Figures of notebooks 03 and 04: every number of their tables is drawn, predictions look unlike measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fake_distribution import not_run
from fake_pipelines import NO_CUDA, hybrid_records, layers, pipelines, records, resources, tables
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from lockstep import figures
from lockstep.figures import FIGURES, render_all, save_figure
from lockstep.figures.pipelines import ACTION_COLOURS
from lockstep.figures.style import OWN_COLOURS, PALETTE, colour, row_labels
from lockstep.pipelines import forecasts, hybrids
from lockstep.pipelines import tables as told
from lockstep.published import read_table

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")

THREE, FOUR = "03_pipelined_model_parallelism", "04_hybrid_parallelism"
Tables = dict[str, pd.DataFrame]


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


def dotted(axis: Axes) -> list[tuple[float, float]]:
    """x and y of the dotted lines across bars."""
    found = []
    for lines in axis.collections:
        styles = getattr(lines, "get_linestyle", lambda: [])()
        if styles and styles[0][1] is not None:
            found += [(float(path.vertices[0][0]), float(path.vertices[:, 1].mean())) for path in lines.get_paths()]
    return found


@pytest.fixture(scope="module")
def traced() -> Tables:
    return tables()


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return records()


@pytest.mark.parametrize(("name", "again"), [(THREE, ("diagram", "memory")), (FOUR, ("map", "predicted"))])
def test_every_figure_is_written_and_the_same_when_drawn_again(
    tmp_path: Path, frame: pd.DataFrame, traced: Tables, name: str, again: tuple[str, ...]
) -> None:
    stored = {"layers": layers(), "resources": resources("hybrid", ("sequential", "1f1b"))}
    rows, beside = {THREE: (frame, traced), FOUR: (hybrid_records(), stored)}[name]
    paths = render_all(name, rows, beside, tmp_path)
    assert [path.name for path in paths] == [f"{key}.{kind}" for key in FIGURES[name] for kind in ("png", "svg")]
    for key in again:
        first = [(tmp_path / f"{key}.{kind}").read_bytes() for kind in ("png", "svg")]
        drawn = save_figure(FIGURES[name][key](rows, beside), tmp_path / "again", key)
        assert [path.read_bytes() for path in drawn] == first


@pytest.mark.parametrize("name", [THREE, FOUR])
def test_without_records_every_figure_says_so(tmp_path: Path, frame: pd.DataFrame, name: str) -> None:
    assert len(render_all(name, frame.head(0), {}, tmp_path)) == 2 * len(FIGURES[name])


def test_table_2_stands_on_the_rows_of_the_gpu(frame: pd.DataFrame) -> None:
    published = read_table("single-to-multi", "table2")
    one = figures.speedup_bars(told.speedup_table(frame, "speedup"), published, "title")
    assert {"6.74", "8.01"} <= set(texts(one)) and not {"2.84", "3.85"} & set(texts(one)), "those are of the hybrid"
    table = told.speedup_table(hybrid_records(), "hybrid")
    both = figures.speedup_bars(table, published, "title")
    for axis, use_case in zip(both.axes, ("ComplexSmall", "SimpleBig"), strict=True):
        own = table[table["use_case"] == use_case].reset_index(drop=True)
        marks = {
            int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in axis.lines if line.get_marker() == "D"
        }
        found = {(own.loc[y, "device"], own.loc[y, "replicas"]): speedup for y, speedup in marks.items()}
        model, hybrid = {"ComplexSmall": (6.74, 2.84), "SimpleBig": (8.01, 3.85)}[use_case]
        assert found == {("cuda", 1): model, ("cuda", 2): hybrid}
    assert texts(both).count(f"skipped: {NO_CUDA}") == 8


def test_replicas_are_told_where_the_workers_do_not_tell_them() -> None:
    table = told.speedup_table(hybrid_records(), "hybrid")
    labels = row_labels(table[(table["use_case"] == "SimpleBig") & (table["device"] == "cpu")])
    assert {"1F1B, 2 workers, 1 replica", "1F1B, 4 workers, 1 replica", "1F1B, 4 workers, 2 replicas"} <= set(labels)
    assert "processes, all-reduce, 2 workers" in labels and len(set(labels)) == len(labels)


def test_schedules_are_told_apart_and_none_is_grey() -> None:
    assert len({to_hex(colour(job.strategy)) for job in pipelines()}) == 5
    assert to_hex(PALETTE[7]) not in {to_hex(colour(name)) for name in OWN_COLOURS}


def test_speedups_and_bubbles_stand_beside_what_the_formula_allows(frame: pd.DataFrame) -> None:
    table = told.speedup_table(frame, "schedules", told.NAIVE)
    figure = figures.schedule_lines(table, "title")
    left, right = figure.axes
    for axis, name in ((left, "speedup"), (right, "bubble")):
        drawn = sorted(
            round(float(y), 6) for line in axis.lines if line.get_linestyle() == "-" for y in line.get_ydata()
        )
        expected = sorted(round(float(value), 6) for value in table.loc[table["variant"] == "a", name])
        assert drawn == expected
    (ideal,) = [line for line in right.lines if line.get_linestyle() == "--"]
    assert np.asarray(ideal.get_ydata()).tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 5, 1 / 9])
    assert any(text.startswith("what (S-1)/(M+S-1) allows") for text in texts(figure))


def test_the_diagram_has_a_box_for_every_action_with_its_micro_batch(traced: Tables) -> None:
    shown = told.shown_cells(traced["actions"])
    first = shown[shown["round"] == 0]
    figure = figures.pipeline_diagram(shown, "title")
    assert len(figure.axes) == 5
    boxes = sum(len(axis.patches) for axis in figure.axes)
    assert boxes == len(first)
    naive = first[first["strategy"] == "naive_pipeline"].sort_values("start_seconds")
    drawn = sorted((box.get_x(), box.get_width()) for box in figure.axes[0].patches)
    expected = sorted(zip(naive["start_seconds"], naive["seconds"], strict=True))
    assert np.array(drawn) == pytest.approx(np.array(expected))
    numbers = [text.get_text() for text in figure.axes[1].texts]
    assert sorted(numbers) == sorted("0123" * 4), "two ranks, forward and back"
    assert any("GPipe, 4 micro-batches, 2 stages" in text for text in texts(figure))


def test_the_second_stage_of_a_rank_is_paler(traced: Tables) -> None:
    own = told.shown_cells(traced["actions"])
    figure = figures.pipeline_diagram(own[own["strategy"] == "interleaved_1f1b"], "title")
    alphas = [box.get_alpha() for box in figure.axes[0].patches]
    assert alphas.count(0.5) == 16 and alphas.count(1.0) == 16 + 2, "half of the passes, and never the updates"


def test_waiting_is_blank_and_every_action_has_its_colour(traced: Tables) -> None:
    own = told.shown_cells(traced["actions"])
    waits = own.assign(action="receive")
    assert "no actions" in " ".join(texts(figures.pipeline_diagram(waits, "title")))
    assert "receive" not in ACTION_COLOURS and set(own["action"]) <= set(ACTION_COLOURS)
    passes = {to_hex(ACTION_COLOURS[name]) for name in ("forward", "backward", "weight_backward")}
    assert len(passes) == 3


def test_a_prediction_is_a_dotted_line_across_the_measured_bar(frame: pd.DataFrame, traced: Tables) -> None:
    table = forecasts.prediction_table(frame, traced, ["schedules"])
    figure = figures.prediction_bars(table, "title")
    (axis,) = figure.axes
    shown = table[table["variant"] == "a"].reset_index(drop=True)
    assert [bar.get_width() for bar in axis.patches] == pytest.approx(shown["step_seconds"].tolist())
    lines = sorted(dotted(axis), key=lambda found: found[1])
    assert [x for x, _ in lines] == pytest.approx(shown["predicted_step_seconds"].tolist())
    for row in shown.itertuples():
        told_text = f"{row.step_seconds:.3g} s measured, {row.predicted_step_seconds:.3g} s predicted"
        assert any(text.startswith(told_text) for text in texts(figure))


def test_a_cell_that_two_experiments_hold_is_drawn_once(frame: pd.DataFrame, traced: Tables) -> None:
    figure = figures.prediction_bars(forecasts.prediction_table(frame, traced), "title")
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(set(names)) == len(names) and names.count("1F1B, M = 4") == 1
    assert {"1F1B, M = 4, 4 ranks", "1F1B, M = 4, equal layers", "1F1B, M = 4, recomputed"} <= set(names)


def test_what_was_not_predicted_says_why(frame: pd.DataFrame) -> None:
    figure = figures.prediction_bars(forecasts.prediction_table(frame, {}, ["schedules"]), "title")
    assert "its stages were not timed" in texts(figure) and not dotted(figure.axes[0])


def test_a_bound_is_an_outline_below_the_filled_peak(traced: Tables) -> None:
    memory = told.memory_table(traced["stages"])
    figure = figures.stage_memory_bars(memory, "title")
    (axis,) = figure.axes
    filled = [bar for bar in axis.patches if to_hex(bar.get_facecolor()) != "#ffffff"]
    outlines = [bar for bar in axis.patches if to_hex(bar.get_facecolor()) == "#ffffff"]
    gib = 2**30
    assert [bar.get_width() * gib for bar in filled] == pytest.approx(memory["peak_bytes"].tolist())
    ends = [bar.get_x() + bar.get_width() for bar in outlines if bar.get_hatch()]
    assert [end * gib for end in ends] == pytest.approx(memory["bound_bytes"].tolist())
    assert sum("0.90 of its bound" in text for text in texts(figure)) == len(memory)


def test_cuts_and_their_steps_stand_side_by_side(frame: pd.DataFrame, traced: Tables) -> None:
    table = forecasts.partition_table(frame, traced)
    figure = figures.partition_bars(table, "title")
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx(table["slowest_over_best"].tolist())
    assert [bar.get_width() for bar in right.patches] == pytest.approx(table["step_seconds"].tolist())
    assert {"1.50  (cuts at 0, 5)", "1.00  (cuts at 0, 4)"} <= set(texts(figure))
    failed = not_run(frame, "failed", "rank 0 raised", experiment="partition", partition="equal_layers")
    assert "failed: rank 0 raised" in texts(figures.partition_bars(forecasts.partition_table(failed, traced), "title"))


def test_the_map_is_dotted_and_says_that_all_of_it_is_predicted() -> None:
    table = hybrids.whole_map(hybrid_records(), layers())
    figure = figures.hybrid_map(table, "title")
    assert len(figure.axes) == 2 * len(hybrids.MAP_RANKS)
    lines = [line for axis in figure.axes for line in axis.lines if len(line.get_xdata()) > 2]
    assert len(lines) == table.groupby(["use_case", "ranks"])["kind"].nunique().sum()
    assert {line.get_linestyle() for line in lines} == {":"}
    assert "all of it predicted" in " ".join(texts(figure))
    tops = {axis.get_ylim()[1] for axis in figure.axes[: len(hybrids.MAP_RANKS)]}
    assert len(tops) == 1 and tops.pop() > 4, "panels of a row share an axis that holds all their lines"

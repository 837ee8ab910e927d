"""Figures, findings and tables of notebook 11: drawn from what there is, the same twice."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from fake_mitigation import stored
from lockstep.analysis.figures.style import PUBLISHED, render
from lockstep.analysis.stored import Stored, no_records
from lockstep.experiments.e11_straggler_mitigation import EXPERIMENT
from lockstep.experiments.e11_straggler_mitigation.contenders import (
    CONTENDERS,
    DPRO_SHARES,
    NEVER_WAIT,
    OURS,
    WAIT,
    WAYS,
)
from lockstep.experiments.e11_straggler_mitigation.drawings import policy_colour, way_colour
from lockstep.experiments.e11_straggler_mitigation.mitigation import BOUND, mitigation_table

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning", "error::RuntimeWarning")


@pytest.fixture(scope="module")
def made() -> Stored:
    return stored(missed=[(DPRO_SHARES, "bad_node")])


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text)]


@pytest.mark.parametrize("name", ["mitigation", "rivals"])
def test_a_map_and_lines_are_drawn_twice_the_same(made: Stored, name: str) -> None:
    draw = EXPERIMENT.figures[name]
    assert render(draw(made), "png") == render(draw(made), "png")


@pytest.mark.parametrize("name", EXPERIMENT.figures)
def test_every_figure_says_that_it_is_simulated_and_has_a_finding(made: Stored, name: str) -> None:
    words = " ".join(texts(EXPERIMENT.figures[name](made)))
    assert any(word in words for word in ("simulated", "simulator", "arithmetic"))
    said = EXPERIMENT.findings[name](made)
    assert said[0].isupper() and said.endswith(".") and "nan" not in said
    assert re.search(r"\d", said) or name == "simulator", "no real ranks are made up here"


@pytest.mark.parametrize("name", EXPERIMENT.figures)
def test_without_records_it_says_so(name: str) -> None:
    figure = EXPERIMENT.figures[name](no_records())
    assert figure.axes and EXPERIMENT.findings[name](no_records()).startswith("Nothing is stored yet")


def test_a_policy_has_one_colour_in_all_figures(made: Stored) -> None:
    """Beside the rows of a map that of its way, which the legend explains (bug: names were darker, some nearly black);
    as a line, and as the measure of others, darker, and no two of one figure look alike."""
    for name in ("mitigation", "costs", "time_to_loss", "paper_network"):
        labels = [text for axis in EXPERIMENT.figures[name](made).axes for text in axis.get_yticklabels()]
        seen = {text.get_text(): to_rgb(text.get_color()) for text in labels if text.get_text() in CONTENDERS}
        assert len(seen) > 3 and seen == {each: pytest.approx(to_rgb(way_colour(each))) for each in seen}, name
    for name in ("scale", "rivals", "slow_nodes"):
        legend = EXPERIMENT.figures[name](made).legends[0]
        names = [text.get_text() for text in legend.get_texts()]
        known = {each: mark for each, mark in zip(names, legend.legend_handles, strict=True) if each in WAYS}
        assert len(known) > 1
        assert {each: to_rgb(mark.get_color()) for each, mark in known.items()} == {
            each: pytest.approx(policy_colour(each)) for each in known
        }
        assert len({(to_rgb(mark.get_color()), mark.get_marker()) for mark in known.values()}) == len(known)


@pytest.mark.slow
def test_one_seed_alone_is_shown_without_an_interval() -> None:
    one = stored(seeds=1)
    for name, draw in EXPERIMENT.figures.items():
        assert draw(one).axes and EXPERIMENT.findings[name](one)
    assert all(len(table(one).columns) or table(one).empty for table in EXPERIMENT.tables.values())


def test_every_policy_has_its_row_and_what_reaches_98_percent_a_frame() -> None:
    found = stored(saved={DPRO_SHARES: 0.99}, only=["throughput"])
    figure = EXPERIMENT.figures["mitigation"](found)
    axis, bar = figure.axes
    assert bar.get_ylabel() == "mitigated (%)"
    assert set(CONTENDERS) <= {label.get_text() for label in axis.get_yticklabels()}
    table = mitigation_table(found)
    reached = table[table["mitigation"] >= 0.98]
    assert set(reached["contender"]) == {BOUND, DPRO_SHARES} and len(reached) == 2 * 3
    assert len(axis.patches) == 2 * (3 + 1), "under each kind, and on the mean"


def test_who_misses_the_loss_with_a_seed_does_not_always_reach_it(made: Stored) -> None:
    """Seen: "never", of a policy that missed it with one of 16 seeds."""
    assert "not\nalways" in texts(EXPERIMENT.figures["time_to_loss"](made))
    assert "not\nalways" not in texts(EXPERIMENT.figures["time_to_loss"](stored()))


def test_98_percent_stands_at_no_number_of_workers() -> None:
    """Bug: its diamond stood at exactly 256 workers, of which the paper says nothing."""
    figure = EXPERIMENT.figures["bounds"](no_records())
    lines = [line for axis in figure.axes for line in axis.lines]
    assert not [line for line in lines if line.get_marker() == PUBLISHED["marker"]]
    assert [list(line.get_xdata()) for line in lines if set(line.get_ydata()) == {98.0}] == [[0, 1], [0, 1]]
    assert "not said" in figure.legends[0].get_texts()[0].get_text()


def test_published_costs_are_hollow_diamonds(made: Stored) -> None:
    figure = EXPERIMENT.figures["costs"](made)
    diamonds = [line for axis in figure.axes for line in axis.lines if line.get_marker() == PUBLISHED["marker"]]
    values = {round(float(x), 3) for line in diamonds for x in line.get_xdata() if x == x}
    assert values == {0.399, 2.17, 4.896}


def test_tables_of_the_notebook_are_of_what_is_stored(made: Stored) -> None:
    assert set(EXPERIMENT.findings) == set(EXPERIMENT.figures)
    for name, table in EXPERIMENT.tables.items():
        assert len(table(made)), name
    shown = EXPERIMENT.tables["time_to_loss"](made).set_index("contender")
    assert re.match(r"(1.9|2.0)\d \[", shown.loc[WAIT, "mix"]) and shown.loc[DPRO_SHARES, "missed"] == "bad node (10)"
    assert shown.loc[OURS, "settings"] == "8 images at rate 0.2"
    assert shown.loc[NEVER_WAIT, "settings"] == "8 images at rate 0.05"


def test_a_line_is_broken_where_a_loss_was_missed(made: Stored) -> None:
    """It once went straight from no slow node to two, as if one had been measured in between."""
    figure = EXPERIMENT.figures["slow_nodes"](made)
    broken = [line for line in figure.axes[0].lines if len(line.get_ydata()) == 3 and np.isnan(line.get_ydata()[1])]
    assert broken


def test_what_is_not_drawn_is_said_and_nothing_is_minus_zero(made: Stored) -> None:
    """Bug: a column of a figure was empty, and a line ended, without a word; fields of a map said "-0"."""
    assert f"missed the loss: {DPRO_SHARES} with 1 slow)" in " ".join(texts(EXPERIMENT.figures["slow_nodes"](made)))
    table = made.table("policies")
    lost = (table["experiment"] == "rivals") & (table["contender"] == NEVER_WAIT) & (table["workers"] == 8)
    some = Stored(made.records, {"policies": table.assign(seconds_to_loss=table["seconds_to_loss"].mask(lost))})
    said = "with 8 workers at least one seed of asynchronous training missed the loss: not drawn"
    drawn = [" ".join(texts(EXPERIMENT.figures["rivals"](each))) for each in (made, some)]
    assert said not in drawn[0] and said in drawn[1]
    rows = EXPERIMENT.figures["rivals"](some).axes[0].containers
    first = {row.get_label(): float(row.lines[0].get_ydata()[0]) for row in rows}  # type: ignore[attr-defined]
    assert np.isfinite(first[OURS]) and np.isnan(first[NEVER_WAIT]), "ours was not drawn either: an empty figure"
    nothing = stored(saved={OURS: -0.001}, noise=0.0, only=["throughput"])
    assert "-0" not in texts(EXPERIMENT.figures["mitigation"](nothing))


def test_logarithmic_axes_have_numbers_as_one_writes_them(made: Stored) -> None:
    for name in ("rivals", "scale", "stand_ins"):
        figure = EXPERIMENT.figures[name](made)
        render(figure, "png")
        assert not [text for text in texts(figure) if "mathdefault" in text], name

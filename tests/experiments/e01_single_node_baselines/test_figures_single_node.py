"""Figures of notebook 01: every number of their tables is drawn, what was not measured says why."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from drawn_again import check_figures
from fake_single_node import MEAN_PACE, NO_UNITS, operators, records, resources
from lockstep.analysis.figures.recipes import draw_all
from lockstep.analysis.stored import Stored, no_records, read_stored
from lockstep.experiments.e01_single_node_baselines import drawings
from lockstep.experiments.e01_single_node_baselines import tables as baselines
from lockstep.experiments.e01_single_node_baselines.figures import FIGURES
from lockstep.experiments.e01_single_node_baselines.findings import FINDINGS
from lockstep.experiments.e01_single_node_baselines.findings_roofs import operators_against_roofs
from lockstep.experiments.e01_single_node_baselines.targets import TARGETS
from lockstep.records import RunFolder
from sessions import SESSION

# A notebook that warns is not committed.
pytestmark = pytest.mark.filterwarnings("error::FutureWarning", "error::UserWarning")


def texts(figure: Figure) -> list[str]:
    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]


@pytest.mark.slow  # it draws all of them
def test_every_figure_is_written_and_the_same_when_drawn_again(tmp_path: Path) -> None:
    stored = Stored(records(), {"operators": operators(), "resources": resources()})
    check_figures(FIGURES, stored, tmp_path, again=("ladder", "roofline"))


def test_the_ladder_shows_each_speedup_gain_and_ceiling() -> None:
    table = baselines.ladder_table(records())
    table = table[table["variant"] == "a"].reset_index(drop=True)
    figure = FIGURES["ladder"](Stored(records()))
    shown = texts(figure)
    assert "1.90  (gain 1.06 [1.06, 1.06])" in shown and "1.00" in shown
    assert not [text for text in shown if text.startswith("skipped")], "skipped rows once filled half of it"
    (title,) = [" ".join(text.split()) for text in shown if "Not shown: " in text]
    assert f"4 rows skipped ({NO_UNITS})" in title and "2 rows skipped (no CUDA device)" in title
    assert {axis.get_xscale() for axis in figure.axes} == {"log"}, "as the speedups of the other notebooks"
    ceilings = [c for axis in figure.axes for c in axis.collections if c.get_linestyle()[0][1]]
    assert len(ceilings) == table["ceiling"].notna().sum()
    big = figure.axes[1]
    assert "AlexNet (SimpleBig; real photos, 8 images per step)" in [big.get_title(loc="left")]


def test_a_ladder_without_intervals_shows_its_bars_to_their_end_and_no_empty_brackets() -> None:
    """Seen: bars of 2.31 and 5.28 ended at 2.1, and gains read [nan, nan]."""
    frame = records(2)
    table = baselines.ladder_table(frame)
    above = table["strategy"] != "sequential"
    assert table.loc[above, "low"].isna().all() and table["speedup"].max() > 1
    figure = drawings.ladder_bars(table.assign(speedup=table["speedup"].where(~above, 10 * table["speedup"])), "title")
    assert max(axis.get_xlim()[1] for axis in figure.axes) > 10 * table["speedup"].max()
    assert not [text for text in texts(figure) if "nan" in text]


def test_a_rung_that_is_the_base_of_a_gain_is_drawn_without_a_bar() -> None:
    """Bug: VGG16's bfloat16 was measured on an AMD EPYC beside the rungs around it and not beside the baseline. It was
    not drawn, though the gain that stood on the next row was over it."""
    first = records()
    first = first[first["experiment"] == "ladder"]
    names = {"fused": "bfloat16", "channels_last": "copies"}
    renamed = first[first["strategy"].isin(("sequential", "intra_op", *names))]
    own = renamed["strategy"].map(names)
    renamed = renamed.assign(strategy=own.fillna(renamed["strategy"]))
    renamed["precision"] = renamed["precision"].mask(own.notna(), "bfloat16")
    rungs = renamed.groupby("round")["strategy"].transform(lambda found: " ".join(sorted(found)))
    lost = renamed[rungs != "bfloat16 sequential"].assign(session=1, round=renamed["round"] + first["round"].max() + 1)
    both = Stored(pd.concat([renamed, lost], ignore_index=True), units={0: "amx", 1: "avx512_bf16"})
    figure = FIGURES["ladder"](both)
    axis = figure.axes[1]
    assert axis.get_title(loc="left").startswith("AlexNet")
    labels = [tick.get_text() for tick in axis.get_yticklabels()]
    y = labels.index("+ bfloat16, CPUs with AVX-512 BF16")
    assert labels[y + 1] == "+ casts avoided, CPUs with AVX-512 BF16"
    at = {text.get_position()[1]: text.get_text() for text in axis.texts if text.get_position()[0] > 1}
    assert "(gain 1.05 [" in at[y + 1] and not at.get(y, "").startswith("nan")
    assert (0.01, y, "not measured beside the baseline") in [(*t.get_position(), t.get_text()) for t in axis.texts]


def test_parts_of_a_step_add_up_to_its_mark() -> None:
    table = baselines.ladder_table(records())
    figure = drawings.step_stack(table, "title")
    for axis, use_case in zip(figure.axes, ("ComplexSmall", "SimpleBig"), strict=True):
        own = table[(table["use_case"] == use_case) & (table["status"] != "skipped")]
        own = own[own["variant"] == "a"].reset_index(drop=True)
        ends = {
            round(bar.get_y() + bar.get_height() / 2): bar.get_x() + bar.get_width()
            for bar in axis.patches if bar.get_width() > 0
        }  # fmt: skip
        assert ends == {y: pytest.approx(step) for y, step in enumerate(own["step_seconds"]) if step > 0}


def test_the_roofline_holds_the_roofs_and_what_computes() -> None:
    roofs, kinds = baselines.roof_table(records()), operators_against_roofs(records(), operators())
    figure = drawings.roofline(roofs, kinds, "title")
    (axis,) = figure.axes
    assert axis.get_title(loc="left") == "float32, 2 cores", "no panel for what was skipped or not profiled"
    (roof, *points) = axis.lines
    assert max(roof.get_ydata()) == pytest.approx(240 * MEAN_PACE)
    drawn = sorted(float(point.get_ydata()[0]) for point in points)
    assert drawn == pytest.approx(sorted(kinds[kinds["flops_per_second"] > 0]["flops_per_second"] / 1e9))


def test_operators_are_one_bar_a_rung_and_say_how_near_their_roof_they_are() -> None:
    """Seen: 18 bars, one below the other, of what adds up to a pass."""
    kinds = operators_against_roofs(records(), operators())
    figure = drawings.operator_bars(kinds, "title")
    (axis,) = figure.axes
    rungs = kinds.groupby(["use_case", "strategy"])["share"].sum()
    assert len(axis.get_yticks()) == len(rungs)
    ends: dict[int, float] = {}
    for bar in axis.patches:
        y = round(bar.get_y() + bar.get_height() / 2)
        ends[y] = max(ends.get(y, 0.0), bar.get_x() + bar.get_width())
    assert sorted(ends.values()) == pytest.approx(sorted(100 * rungs))
    assert f"60%\n({kinds.iloc[0]['of_peak']:.0%} of peak)" in texts(figure)


def test_the_roofline_says_how_near_an_operator_is_to_its_own_roof() -> None:
    """Seen: 12 % of the peak was 36 % of what the bandwidth allows."""
    roofs, kinds = baselines.roof_table(records()), operators_against_roofs(records(), operators())
    figure = drawings.roofline(roofs, kinds, "title")
    roof = roofs[(roofs["status"] == "ok") & (roofs["cores"] == 2)].iloc[-1]
    for row in kinds[kinds["flops_per_second"] > 0].to_dict("records"):
        there = min(roof["flops_per_second"], row["intensity"] * roof["bandwidth_bytes_per_second"])
        text = f"{row['flops_per_second'] / there:.0%} of its roof\n({row['of_peak']:.0%} of the peak)"
        assert any(text in each for each in texts(figure))


def test_the_roofline_names_its_session_and_says_what_its_finding_does() -> None:
    """Bug: the figure said 54 % of a roof that was the mean of several processors', its notebook's target 92 %."""
    first = records()
    other = first[(first["status"] == "ok") & (first["experiment"] == "machine")]
    other = other.assign(session=1, round=other["round"] + first["round"].max(), flops_per_second=1e15)
    both = Stored(pd.concat([first, other], ignore_index=True), {"operators": operators()}, units={0: "amx"})
    for name in ("roofline", "operators"):
        figure = FIGURES[name](both)
        assert "Profiles and roofs of one session: CPUs with AMX (session 0)" in figure.get_suptitle()
        assert any("70% of " in text for text in texts(figure)), "the profile's 0.7 of the peak beside it"
    roofs = [line.get_ydata() for line in FIGURES["roofline"](both).axes[0].lines if len(line.get_ydata()) == 3]
    assert [max(roof) for roof in roofs] == [pytest.approx(240 * MEAN_PACE)]
    told = FINDINGS["roofline"](both)
    assert told.startswith("On CPUs with AMX (session 0) of our matrix-product peak the convolution reaches")
    assert "convolutions 70 % [70, 70]" in told
    (target,) = [each for each in TARGETS if "float32 matrix peak" in each.name]
    assert str(target.read(both).ratio) == "0.7 [0.7, 0.7]"


def test_marks_that_lie_on_each_other_have_one_text_or_two_apart() -> None:
    """Seen: "151% of its rooff", two texts on one place."""
    roofs, kinds = baselines.roof_table(records()), operators_against_roofs(records(), operators())
    one = kinds[kinds["operators"] == "convolution"].iloc[[0]].assign(use_case="A")
    for factor, many in ((1.0, 1), (1.05, 2)):
        other = one.assign(use_case="B", flops_per_second=one["flops_per_second"] * factor)
        drawn = pd.concat([one, other.assign(of_peak=other["of_peak"] * factor)], ignore_index=True)
        found = [text for text in drawings.roofline(roofs, drawn, "t").axes[0].texts if "roof" in text.get_text()]
        assert len(found) == many and len({text.xyann[1] for text in found}) == many
    assert found[1].get_text().startswith("B: ")


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_to_draw_is_said(name: str) -> None:
    assert texts(FIGURES[name](no_records()))[0] in (
        "no records of this experiment",
        "no resource traces are stored",
    )


def test_only_skipped_roofs() -> None:
    frame = records()
    figure = drawings.roofline(
        baselines.roof_table(frame[frame["precision"] == "bfloat16"]), pd.DataFrame(), "How near the machine's roofs"
    )
    assert "no records of this experiment" in texts(figure)


@pytest.mark.slow
def test_what_was_stored_is_drawn(tmp_path: Path) -> None:
    """An unmeasured number of a traced table, such as the bytes of copies, once came back as text."""
    folder = tmp_path / "01_single_node_baselines"
    frame, kinds = records(1), operators(1)
    assert kinds["bytes"].isna().any()
    rows = [{k: (None if pd.isna(v) else v) for k, v in row.items()} for row in frame.to_dict("records")]
    with RunFolder(folder, {"parameters": {}}, SESSION) as run:
        run.write_round(rows, {"operators": kinds, "resources": resources()})
    stored = read_stored(folder)
    assert list(stored.tables) == ["resources", "operators"]
    drawn = operators_against_roofs(stored.records, stored.table("operators"))
    assert drawn[drawn["operators"] == "other"]["bytes_per_second"].isna().all()
    assert len(draw_all(FIGURES, stored, tmp_path / "figures")) == 2 * len(FIGURES)

"""The look of all figures: seaborn's, without waiting for it where nothing is drawn."""

from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import seaborn

from lockstep.analysis.figures.style import PALETTE, look, new_figure, render


def test_the_palette_is_seaborns() -> None:
    assert list(PALETTE) == list(seaborn.color_palette("colorblind"))


def test_the_look_is_seaborns_white_grid_and_leaves_the_callers_settings() -> None:
    before = dict(mpl.rcParams)
    with look():
        for name, value in seaborn.axes_style("whitegrid").items():
            assert name == "font.sans-serif" or mpl.rcParams[name] == value, name
        assert mpl.rcParams["font.sans-serif"] == ["DejaVu Sans"], "what every matplotlib brings"
    assert dict(mpl.rcParams) == before


def test_a_figure_rendered_again_has_the_same_bytes_in_any_order() -> None:
    def drawn() -> mpl.figure.Figure:
        with look():
            figure = new_figure(3, 2)
            figure.subplots().plot([0, 1, 4], label="steps")
            figure.axes[0].set_title("a title")
        return figure

    figure, other = drawn(), drawn()
    png, svg = render(figure, "png"), render(figure, "svg")
    assert (render(other, "svg"), render(other, "png")) == (svg, png)
    assert (render(figure, "png"), render(figure, "svg")) == (png, svg)
    assert png.startswith(b"\x89PNG") and b"Software" not in png
    assert b"<svg" in svg and b"<dc:date>" not in svg


def test_reading_needs_no_seaborn() -> None:
    code = (
        "import sys, lockstep.experiments.registry as r; r.every(); "
        "assert 'matplotlib' in sys.modules and not {'seaborn', 'torch', 'tensorflow', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

"""The message of a figure: short, never stronger than its interval, inside the picture, and in words beside it."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from lockstep.analysis.figures.messages import LONGEST, headline, with_message
from lockstep.analysis.figures.recipes import draw, draw_all
from lockstep.analysis.figures.style import StoredFigure, empty, look, new_figure, render
from lockstep.analysis.stored import Stored, no_records
from lockstep.engine.job.strategies import STRATEGIES

FINDING = (
    "Two processes train AlexNet 1.49 times as fast as one core [1.47, 1.51] (sessions differ: session 0: 1.48 [1.46, "
    "1.5]; session 1: 1.5 [1.48, 1.52]). What threads gain is not known yet."
)
MESSAGE = "Two processes train AlexNet 1.49 times as fast as one core [1.47, 1.51] (sessions differ)"


def drawn(width: float = 6.0, title: str = "Speedup\n(real photos)") -> StoredFigure:
    with look():
        figure = new_figure(width, 3.0)
        figure.suptitle(title)
        figure.subplots().plot([0, 1])
    return figure


def titled(width: float = 6.0, finding: str = FINDING) -> Figure:
    return with_message(drawn(width), finding)


@pytest.mark.parametrize(
    ("finding", "message"),
    [
        (FINDING, MESSAGE),
        ("VGG16: not known yet (one round stored). AlexNet is 2 times as fast [1.9, 2.1].",
         "AlexNet is 2 times as fast [1.9, 2.1]"),
        ("These records do not answer this yet: one round.", "These records do not answer this yet: one round"),
        ("A is 1.2 [1.1, 1.3]; B is 1.4 (of C; D) [1.3, 1.5].", "A is 1.2 [1.1, 1.3]; B is 1.4 (of C; D) [1.3, 1.5]"),
        (f"A is 1.2 [1.1, 1.3]; {'long ' * 50}.", "A is 1.2 [1.1, 1.3]"),
        (f"A (at best, b) is 1.2 (no interval yet) {'x' * 230}.", f"A is 1.2 (no interval yet) {'x' * 230}"),
        (f"SparkNet (images as files) and (1 %) {'x' * 230}.", f"SparkNet (images as files) and (1 %) {'x' * 230}"),
    ],
)  # fmt: skip
def test_a_title_is_the_first_sentence_that_says_something(finding: str, message: str) -> None:
    assert headline(finding) == message


def test_a_shortened_title_keeps_every_interval_of_what_it_says() -> None:
    """A number without its interval would be stronger than the finding."""
    parts = "; ".join(f"way {number} trains 1.{number} times as fast [1.0, 1.9]" for number in range(1, 9))
    short = headline(f"{parts}.")
    assert len(short) <= LONGEST and short != parts and parts.startswith(short + ";")
    assert len(re.findall(r"times as fast", short)) == len(re.findall(r"\[1\.0, 1\.9\]", short)) > 1


@pytest.mark.parametrize("width", [4.0, 6.0, 11.0])
def test_titles_fit_the_width_and_lie_above_what_is_drawn(width: float) -> None:
    figure = titled(width)
    render(figure, "png")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in figure.findobj(Text) if text.get_text()}
    (message,) = [text for text in boxes if text.startswith("Two processes")]
    (subject,) = [text for text in boxes if text.startswith("Speedup")]
    assert " ".join(message.split()) == MESSAGE and subject == "Speedup\n(real photos)"
    for name in (message, subject):
        assert boxes[name].x0 >= 0 and boxes[name].x1 <= figure.bbox.x1 and boxes[name].y1 <= figure.bbox.y1
    top = figure.axes[0].get_window_extent(renderer).y1
    lines = message.rstrip().count("\n") + 1
    middle = boxes[message].y1 - boxes[message].height * lines / (lines + 2)
    assert middle >= boxes[subject].y1 - 1 and boxes[subject].y0 >= top, "message, subject, picture"


def test_a_figure_without_a_title_of_its_own_takes_that_of_its_panel_for_its_subject() -> None:
    with look():
        figure = new_figure(6, 3)
        figure.subplots().set_title("FLOP of each layer", loc="left")
    shown = with_message(figure, FINDING)
    assert isinstance(shown, StoredFigure) and shown.alternative == f"FLOP of each layer: {MESSAGE}."


def test_a_notebook_gets_the_alternative_text_beside_the_picture() -> None:
    """As nbconvert reads it; the committed outputs of every notebook are checked in tests/notebooks."""
    from IPython.core.formatters import DisplayFormatter

    data, metadata = DisplayFormatter().format(titled())
    assert data["image/png"].startswith(b"\x89PNG")
    assert metadata["image/png"] == {"alt": f"Speedup (real photos): {MESSAGE}."}
    assert data["text/plain"] == metadata["image/png"]["alt"], "for a front end that shows no picture"


def test_files_hold_the_alternative_text_and_are_the_same_again(tmp_path: Path) -> None:
    recipes, findings = {"one": lambda _: drawn()}, {"one": lambda _: FINDING}
    png, svg = draw_all(recipes, no_records(), tmp_path / "a", findings)
    again = draw_all(recipes, no_records(), tmp_path / "b", findings)
    assert [png.read_bytes(), svg.read_bytes()] == [path.read_bytes() for path in again]
    words = f"Speedup (real photos): {MESSAGE}."
    assert Image.open(io.BytesIO(png.read_bytes())).text["Description"] == words  # type: ignore[attr-defined]
    (title,) = ElementTree.parse(svg).getroot().findall("{http://www.w3.org/2000/svg}title")
    assert title.text == words


def test_a_figure_without_a_finding_stays_as_it_is() -> None:
    figure = draw("one", {"one": lambda _: drawn()}, {}, no_records())
    assert figure.get_suptitle() == "Speedup\n(real photos)"
    assert isinstance(figure, StoredFigure) and not figure.alternative and isinstance(figure._repr_png_(), bytes)


def test_nothing_stored_is_a_message_too() -> None:
    figure = with_message(empty("Speedup", "no records of this experiment"), "Nothing is stored yet: measure it first.")
    assert figure.get_suptitle().startswith("Nothing is stored yet: measure it first")


def test_the_finding_that_is_shown_is_of_what_is_drawn() -> None:
    seen: list[Stored] = []

    def finding(stored: Stored) -> str:
        seen.append(stored)
        return FINDING

    stored = no_records()
    draw("one", {"one": lambda given: seen.append(given) or drawn()}, {"one": finding}, stored)  # type: ignore[func-returns-value]
    assert seen == [stored, stored]


def test_colour_and_mark_together_are_of_one_strategy_alone() -> None:
    """Seen: all-reduce was pink, blue and green."""
    from lockstep.analysis.figures.style import colour, marker

    looks = [(colour(name), marker(name)) for name in STRATEGIES]
    assert len(set(looks)) == len(looks)
    assert "D" not in {mark for _, mark in looks}, "the mark of what is published"
    together = {
        "03 schedules": ("naive_pipeline", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"),
        "05 weak": ("allreduce", "local_sgd", "parameter_server", "sharded_server"),
        "05 messages": ("processes_allreduce", "mpi_allreduce"),
        "06 data": ("sparknet", "sparknet_files", "mpi_allreduce"),
        "07 time": ("sequential", "processes", "parameter_server", "naive_pipeline", "gpipe"),
        "08 scaling": ("engines_shared_memory", "allreduce", "parameter_server", "naive_pipeline", "gpipe"),
    }
    alike = {name for name, shown in together.items() if len({colour(each) for each in shown}) < len(shown)}
    assert not alike, "lines of one figure have colours of their own"
    assert colour("allreduce") == colour("processes_allreduce")

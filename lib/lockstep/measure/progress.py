"""What a reader sees while a grid is being measured: how much is done, how long the rest takes, and the last message.

In an opened notebook that is a bar, drawn anew in its place; on a terminal and under `lockstep run` one line, written
anew; elsewhere, as in a log file, a line whenever a minute has passed.
"""

from __future__ import annotations

import html
import math
import os
import sys
import uuid
from types import TracebackType

from lockstep.measure.summary import ACCURACIES
from lockstep.records import Row
from lockstep.records.places import RUN_MARK

KEPT = "stopped; whole rounds are kept, and measuring again goes on after them"


def say(text: str) -> None:
    """Show a message: below the bar if there is one, else as a line on stderr."""
    if _open:
        _open[-1].note(text)
    else:
        print(text, file=sys.stderr, flush=True)


class Lines:
    """Progress in a log file: every message is a line, and so is the time left when it is another number of minutes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._told = -1

    def __enter__(self) -> Lines:
        _open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        _open.remove(self)
        self.end(KEPT if kind is not None else "")

    def show(self, done: float, seconds_left: float, text: str) -> None:
        """`done`: the share (0 to 1) of the measurement that is done; `text`: time left and what has been reached."""
        if (minutes := math.ceil(seconds_left / 60)) != self._told:
            self._told = minutes
            self.note(f"{self.name}: {text}")

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """The last that is shown: nothing more, or why the measurement ended early."""
        if text:
            self.note(f"{self.name}: {text}")


_open: list[Lines] = []  # the last one shows what is said


class OneLine(Lines):
    """Progress on a terminal: messages are lines, and below them one line, written anew, says how much is done."""

    _shown = ""

    def show(self, done: float, seconds_left: float, text: str) -> None:
        line = f"{self.name}: {done:.0%}, {text}"
        print(f"\r{line.ljust(len(self._shown))}", end="", file=sys.stderr, flush=True)
        self._shown = line

    def note(self, text: str) -> None:
        print(f"\r{text.ljust(len(self._shown))}" if self._shown else text, file=sys.stderr, flush=True)
        self._shown = ""

    def end(self, text: str) -> None:
        if text or self._shown:
            self.note(f"{self.name}: {text}" if text else self._shown)


class UnderRunner(OneLine):
    """Progress under `lockstep run`: its bar shows the line, and its log file gets one whenever a minute has passed."""

    def show(self, done: float, seconds_left: float, text: str) -> None:
        Lines.show(self, done, seconds_left, text)
        super().show(done, seconds_left, text)


class Bar(Lines):
    """Progress in a notebook: a bar in HTML, which needs no widgets, above the last message."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._display_id: str | None = None
        self._done, self._text, self._note = 0.0, "measuring begins", ""

    def __enter__(self) -> Lines:
        self._draw()
        return super().__enter__()

    def show(self, done: float, seconds_left: float, text: str) -> None:
        self._done, self._text = min(1.0, max(0.0, done)), text
        self._draw()

    def note(self, text: str) -> None:
        self._note = text
        self._draw()

    def end(self, text: str) -> None:
        if text:
            self._text = text
        else:
            self._done = 1.0
        self._draw()

    def _draw(self) -> None:
        """The first time as an output of its own, then in its place."""
        from IPython.display import display

        name, text, note = (html.escape(each) for each in (self.name, self._text, self._note))
        bar = f'<progress value="{self._done:.3f}" max="1" style="width: 20em" aria-label="{name}"></progress>'
        shown = {"text/html": f"<div>{bar} {self._done:.0%} of {name}: {text}<br><small>{note}</small></div>",
                 "text/plain": f"{self._done:.0%} of {self.name}: {self._text}"}  # fmt: skip
        again = self._display_id is not None
        self._display_id = self._display_id or uuid.uuid4().hex
        display(shown, raw=True, display_id=self._display_id, update=again)


def progress_of(name: str) -> Lines:
    """The kind of progress that can be seen here. Under `lockstep run` a kernel's stderr is what the terminal shows."""
    if RUN_MARK in os.environ:
        return UnderRunner(name)
    if _in_notebook():
        return Bar(name)
    return OneLine(name) if sys.stderr.isatty() else Lines(name)


def _in_notebook() -> bool:
    """Whether a front end of Jupyter shows what is displayed; IPython on a terminal does not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def one_line(row: Row) -> str:
    """The most telling measurements of a row, in a few words."""
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason']}"
    if row["updates_done"]:
        scored = [f"{row[name]:.1%} {name.split('_')[0]}" for name in ACCURACIES if row[name] is not None]
        return ", ".join([f"{row['updates_done']} updates in {row['training_seconds']:.1f} s", *scored])
    if row["images_per_second"]:
        return f"{row['images_per_second']:.1f} images/s, {row['step_seconds']:.3f} s a step"
    rates = [f"{row['flops_per_second'] / 1e9:.0f} GFLOP/s"] if row["flops_per_second"] else []
    rates += [f"{row['bandwidth_bytes_per_second'] / 1e9:.1f} GB/s"] if row["bandwidth_bytes_per_second"] else []
    if not rates and row["step_seconds"] is None:
        return "measured, in a table of its own"
    return ", ".join(rates) or f"{row['step_seconds']:.4f} s"

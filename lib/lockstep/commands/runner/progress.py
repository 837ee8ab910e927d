"""What a run shows while it runs: a bar of cells, and the notebook's own progress lines above it."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class CellProgress:
    """A bar on a terminal; plain lines elsewhere, for a log file or CI. Always on stderr.

    It is also the file that the notebook's stderr is written to: a line is shown whole, and a line that the
    notebook keeps overwriting (carriage return) is shown in the bar.
    """

    def __init__(self, name: str, cells: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.name = name
        self.cells = cells
        self._pending = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=cells, note="")

    def __enter__(self) -> CellProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._show(self._pending)
        self._bar.stop()

    def cell_started(self, index: int) -> None:
        self._bar.update(self._task, completed=index, note="")
        if not self.console.is_terminal:
            self._show(f"{self.name}: cell {index + 1} of {self.cells}")

    def finished(self) -> None:
        self._bar.update(self._task, completed=self.cells, note="")

    def write(self, text: str) -> None:
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            self._show(line.split("\r")[-1])
        if "\r" in self._pending:
            parts = [part.strip() for part in self._pending.split("\r") if part.strip()]
            self._bar.update(self._task, note=parts[-1] if parts else "")

    def flush(self) -> None:
        """Nothing is held back but an unfinished line."""

    def _show(self, line: str) -> None:
        if line.strip():
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

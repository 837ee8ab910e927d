"""A progress bar for a reader who waits: images done, images per second, and the time that is left."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, TextIO

from tqdm import tqdm

_EVERY_SECONDS = 0.25


def watched() -> bool:
    """Does somebody look on: is this a terminal, or a notebook?"""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or hasattr(shell, "kernel")


class StepsBar:
    """A context manager: while it is open, a bar on stderr follows the step of the first worker of `team`.

    It looks at the board that the workers write to (`lockstep.engine.groups.board`), and so costs them nothing. A team
    without a board, or a bar that is not `shown`, shows nothing. Its thread ends with it.
    """

    def __init__(self, team: Any, steps: int, images_per_step: float, shown: bool, file: TextIO | None = None) -> None:
        self.team, self.steps, self.images_per_step = team, steps, images_per_step
        self.shown, self.file = shown, file
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StepsBar:
        if self.shown and hasattr(self.team, "board"):
            self._thread = threading.Thread(target=self._follow, name="lockstep-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = kind is None
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self) -> None:
        total = round(self.steps * self.images_per_step)
        bar = tqdm(total=total, unit=" images", desc="starting workers", file=self.file, dynamic_ncols=True)
        begun = False
        with bar:
            while not self._over.wait(_EVERY_SECONDS):
                phase, step = self._seen()
                if not begun and phase not in ("start", "idle"):
                    # Images per second without the start of the workers, and without what an earlier run has done.
                    begun, bar.initial, bar.n = True, round(step * self.images_per_step), 0
                    bar.start_t = bar.last_print_t = time.time()
                    bar.n = bar.last_print_n = bar.initial
                    bar.set_description_str("training")
                if begun:
                    bar.set_description_str("scoring" if phase == "evaluate" else "training", refresh=False)
                    bar.update(round(step * self.images_per_step) - bar.n)
            if self._ended:
                bar.set_description_str("trained", refresh=False)
                bar.update(total - bar.n)

    def _seen(self) -> tuple[str, int]:
        """What the first worker does, and how many steps it has made."""
        board = self.team.board
        return ("start", 0) if board is None else (board.phase(0), min(board.step(0), self.steps))

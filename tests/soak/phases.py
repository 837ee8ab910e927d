"""What a run is doing, by what it writes: its messages, and the boards on which its ranks note where they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import numpy as np

from lockstep.engine.groups.board import PHASES as OF_BOARD
from soak import recorded

STARTING, WARM_UP, MEASURING, BETWEEN, ENDING = "starting", "warm-up", "measuring", "between visits", "ending"
PHASES = (STARTING, WARM_UP, MEASURING, BETWEEN, ENDING)
WARM_UP_STEPS = 1
"""Of every notebook of the soak."""
_ENDS = ("stopped by ", "the kernel died", "the kernel was ended", "the kernel was interrupted")
_LARGEST_BOARD = 64 * 32  # bytes: what is larger is shared memory


def phase_of(pids: Iterable[int], text: str) -> str:
    """The phase of a run of these processes that has told `text` so far."""
    if any(sign in text for sign in _ENDS):
        return ENDING
    ranks = [(OF_BOARD[int(phase)], int(step)) for board in boards(pids) for phase, step, *_ in board]
    working = [step for phase, step in ranks if phase not in ("start", "idle")]
    if working:
        return WARM_UP if min(working) < WARM_UP_STEPS else MEASURING
    return BETWEEN if recorded.rounds_told(text) and all(phase == "idle" for phase, _ in ranks) else STARTING


def boards(pids: Iterable[int]) -> Iterator[np.ndarray]:
    """The boards of teams that these processes hold: phase, step and two more numbers of each rank."""
    seen: set[int] = set()
    for pid in pids:
        try:
            handles = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # it has ended
        for handle in handles:
            try:
                path = f"/proc/{pid}/fd/{handle}"
                if not os.readlink(path).startswith("/memfd:lockstep"):
                    continue
                told = os.stat(path)
                if told.st_ino in seen or told.st_size > _LARGEST_BOARD or told.st_size % 32:
                    continue
                seen.add(told.st_ino)
                with open(path, "rb") as stream:
                    board = np.frombuffer(stream.read(), np.int64).reshape(-1, 4)
            except OSError:
                continue
            if ((board[:, 0] >= 0) & (board[:, 0] < len(OF_BOARD))).all():
                yield board

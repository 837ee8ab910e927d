"""A thread that communicates while the rank computes."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from lockstep.engine.thread_names import name_training_thread

_CLOSE_SECONDS = 1.0


class Background:
    """Runs pieces of work one after the other, in the order of submission, so that the ranks' collectives match.

        rank thread     | layer 8 | layer 7 | layer 6 | ... | drain
        background               | sum 8   | sum 7  | ...  |

    The thread starts with the first piece and ends with `close`.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done = threading.Semaphore(0)
        self._given = 0
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` after everything submitted before; it is dropped if an earlier piece failed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lockstep-exchange", daemon=True)
            self._thread.start()
        self._given += 1
        self._work.put(work)

    def drain(self) -> None:
        """Wait until everything is done. Raises the exception of a piece that failed."""
        for _ in range(self._given):
            self._done.acquire()
        self._given = 0
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread without waiting for it: if it is in a collective, it ends when the group does."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join(_CLOSE_SECONDS)
            self._thread = None

    def _run(self) -> None:
        name_training_thread("sync")
        while (work := self._work.get()) is not None:
            with contextlib.ExitStack() as always:
                always.callback(self._done.release)
                try:
                    if self._error is None:
                        work()
                except BaseException as error:  # raised again in the rank's own thread, by `drain`
                    self._error = error
            del work  # it refers to the gradients

"""How an MPI rank waits: it polls, and sleeps longer the longer nothing arrives. Blocking MPI calls would spin.

    poll, yield, poll, yield ...            while the answer may come at any moment (`eager_seconds`)
    poll 16 times, sleep 20 us ... 1 ms     afterwards; each sleep is a twentieth of the time waited so far

A waiting rank must not occupy its core: decoding threads share it, and where ranks outnumber cores the rank that is
waited for may need it. MPI makes progress only while it is polled, and polling is also how a rank learns that another
one aborted. Over TCP one poll moves only some kilobytes, so a rank polls several times before it sleeps again: 16 MiB
between two emulated hosts at 1 Gbit/s took 0.25 s with one poll and 0.147 s with 16, for the same CPU time; the wire
alone takes 0.134 s.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep.engine.groups.base import GroupAborted
from lockstep.engine.groups.library import MPI
from lockstep.engine.thread_names import name_training_thread

EAGER_SECONDS = 0.0002
_SHORTEST, _LONGEST = 20e-6, 1e-3  # seconds of one sleep
_POLLS = 16  # between two sleeps
_CHECK_EVERY = 64  # polls without sleep, after which the rank checks whether another one aborted
_ABORT_TAG = 1


class MpiProcess:
    """The state that all groups of one MPI process share: whether a rank aborted, and the messages under way."""

    def __init__(self, world: Any) -> None:
        self._abort_messages = world.Dup()  # a communicator of its own, apart from all other messages
        self._reason: str | None = None
        self._raised: list[GroupAborted] = []
        self._under_way: list[tuple[Any, Any]] = []  # (request, the buffer it reads)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def wait(self, done: Callable[[], Any], eager_seconds: float = EAGER_SECONDS, until: float | None = None) -> bool:
        """Poll until `done()`; False if the time `until` (of time.monotonic) came first. Raises GroupAborted."""
        if done():
            return True
        began = time.monotonic()
        polls = 0
        while True:
            polls += 1
            waited = time.monotonic() - began
            eager = waited < eager_seconds
            if not eager or polls % _CHECK_EVERY == 0:
                self.check()
            if any(done() for _ in range(1 if eager else _POLLS)):
                return True
            if until is not None and time.monotonic() >= until:
                return False
            if eager:
                os.sched_yield()
            else:
                time.sleep(min(_LONGEST, max(_SHORTEST, waited / 20)))

    def keep(self, request: Any, buffer: Any) -> None:
        """Hold `buffer` until MPI has sent it, whatever this rank does meanwhile.

        A large message moves only while its sender calls MPI, so a thread of its own does that; it sleeps while
        nothing is under way.
        """
        if request.Test():
            return
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._push, name="lockstep-mpi-sends", daemon=True)
                self._thread.start()
            self._under_way.append((request, buffer))
            self._changed.notify()

    def _push(self) -> None:
        name_training_thread("send")
        while True:
            with self._changed:
                while not self._under_way:
                    self._changed.wait()
                for _ in range(_POLLS):
                    self._under_way = [item for item in self._under_way if not item[0].Test()]
            time.sleep(_LONGEST / 5)

    def abort(self, reason: str) -> None:
        """Every rank's present and next wait raises GroupAborted with the first reason that reaches it."""
        self._reason = self._reason or reason
        text = np.frombuffer(reason.encode() or b"?", dtype=np.uint8)
        for other in range(self._abort_messages.size):
            if other != self._abort_messages.rank:
                self.keep(self._abort_messages.Isend([text, MPI.BYTE], other, _ABORT_TAG), text)

    def check(self) -> None:
        """Raises GroupAborted if this rank or another one has aborted."""
        if self._reason is None:
            status = MPI.Status()
            message = self._abort_messages.Improbe(MPI.ANY_SOURCE, _ABORT_TAG, status)
            if message is None:
                return
            text = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            message.Recv([text, MPI.BYTE])
            self._reason = text.tobytes().decode(errors="replace")
        # The exception holds the frames that it passed, and these hold the buffers that MPI may still write into. If
        # they were freed, the process would crash before it has reported why.
        self._raised.append(GroupAborted(self._reason))
        raise self._raised[-1]

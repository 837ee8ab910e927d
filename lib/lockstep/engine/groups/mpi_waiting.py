"""How an MPI rank waits: it looks, and sleeps longer the longer nothing comes. Blocking MPI calls spin instead.

    look, yield, look, yield ...   while the answer may come any moment (`eager_seconds`)
    look 16 times, sleep 20 us ... 1 ms     then: a twentieth of the time waited so far

Decoding threads share the rank's cores, and where ranks outnumber cores the one that is waited for needs this
very core. Looking is also what MPI progresses by, and where a rank learns that another one gave up. Over TCP a look
moves some kilobytes only, so a rank looks several times before it sleeps again: 16 MiB between two emulated hosts took
0.25 s at 1 Gbit/s with one look, 0.147 s with 16 (the wire alone: 0.134 s), for the same CPU time.
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

EAGER_SECONDS = 0.0002
_SHORTEST, _LONGEST = 20e-6, 1e-3  # of a sleep, seconds
_LOOKS = 16  # between two sleeps
_CHECK_EVERY = 64  # looks without sleep, for one at whether somebody gave up
_ABORT_TAG = 1


class MpiProcess:
    """What all groups of one MPI process share: who gave up, and the messages under way."""

    def __init__(self, world: Any) -> None:
        self._news = world.Dup()  # apart from all other messages
        self._reason: str | None = None
        self._raised: list[GroupAborted] = []
        self._under_way: list[tuple[Any, Any]] = []  # (request, the buffer it reads)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def wait(self, done: Callable[[], Any], eager_seconds: float = EAGER_SECONDS, until: float | None = None) -> bool:
        """Look until `done()`; False if `until` (of time.monotonic) came first. Raises GroupAborted."""
        if done():
            return True
        began = time.monotonic()
        looks = 0
        while True:
            looks += 1
            waited = time.monotonic() - began
            eager = waited < eager_seconds
            if not eager or looks % _CHECK_EVERY == 0:
                self.check()
            if any(done() for _ in range(1 if eager else _LOOKS)):
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
        while True:
            with self._changed:
                while not self._under_way:
                    self._changed.wait()
                for _ in range(_LOOKS):
                    self._under_way = [item for item in self._under_way if not item[0].Test()]
            time.sleep(_LONGEST / 5)

    def abort(self, reason: str) -> None:
        """Every rank's present and next wait raises GroupAborted with the first reason it hears."""
        self._reason = self._reason or reason
        text = np.frombuffer(reason.encode() or b"?", dtype=np.uint8)
        for other in range(self._news.size):
            if other != self._news.rank:
                self.keep(self._news.Isend([text, MPI.BYTE], other, _ABORT_TAG), text)

    def check(self) -> None:
        """Raises GroupAborted if this rank or another one gave up."""
        if self._reason is None:
            status = MPI.Status()
            message = self._news.Improbe(MPI.ANY_SOURCE, _ABORT_TAG, status)
            if message is None:
                return
            text = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            message.Recv([text, MPI.BYTE])
            self._reason = text.tobytes().decode(errors="replace")
        # An error holds the frames it passed, and those the buffers that MPI may still write into: freed, they would
        # take the process down before it has said why.
        self._raised.append(GroupAborted(self._reason))
        raise self._raised[-1]

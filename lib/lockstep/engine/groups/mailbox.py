"""A mailbox, in which the messages for a rank wait until it asks for them."""

from __future__ import annotations

import threading
import time
from collections import deque

from torch import Tensor

from lockstep.engine.groups.base import ANY, GroupAborted, GroupTimeout


class Mailbox:
    """Messages of one rank, in order per (source, tag). Delivered by other threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: deque[tuple[int, str, Tensor]] = deque()
        self._aborted: str | None = None

    def deliver(self, source: int, tag: str, tensor: Tensor) -> None:
        with self._changed:
            self._messages.append((source, tag, tensor))
            self._changed.notify_all()

    def abort(self, reason: str) -> None:
        """Wake every waiting thread; each present and later `take` raises GroupAborted."""
        with self._changed:
            self._aborted = self._aborted or reason
            self._changed.notify_all()

    def take(self, source: int, tag: str, deadline_seconds: float | None) -> tuple[int, Tensor]:
        """The oldest message from `source` (or ANY) under `tag`.

        Raises GroupTimeout when none came in `deadline_seconds`, GroupAborted when the group was aborted.
        """
        end = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        with self._changed:
            while True:
                for index, (sender, label, tensor) in enumerate(self._messages):
                    if label == tag and source in (sender, ANY):
                        del self._messages[index]
                        return sender, tensor
                if self._aborted is not None:
                    raise GroupAborted(self._aborted)
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    origin = "any rank" if source == ANY else f"rank {source}"
                    raise GroupTimeout(f"no message {tag!r} from {origin} within {deadline_seconds} s")
                self._changed.wait(left)

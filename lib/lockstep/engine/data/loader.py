"""Batches for a training loop, decoded in the background while the step before them computes."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike

from lockstep.engine.data.decoding import Decoder, Task
from lockstep.engine.data.sources import Ids, ImageData, Labels, Samples

AHEAD = 2  # batches prefetched at most
_HELD = 2  # taken batches whose memory is not reused yet


@dataclass(frozen=True, eq=False)
class Batch:
    """Images float32 [n, channels, height, width], labels int64 [n] and sample ids int64 [n]; a reader's own images and
    labels may have another shape and type (see `ImageData`).

    `images` is memory of the loader: valid until the second next `take` (or for as long as the loader, if preloaded).
    """

    images: Samples
    labels: Labels
    sample_ids: Ids
    epoch: int

    def __len__(self) -> int:
        return len(self.sample_ids)


class Loader:
    """Decodes batches of `data` in `threads` background threads, which run on the cores of the thread that makes it.

    `prefetch` starts a batch, `take` returns it. With `memory=True`, `preload` decodes batches once and `take` returns
    those. One thread uses a loader. A context manager; `close` ends its threads.

    `decode_seconds` is the CPU time that decoding has taken, `input_seconds` the time that `take` has waited, both
    summed since the loader was made. Raises ValueError for fewer than one thread.
    """

    def __init__(self, data: ImageData, seed: int, threads: int = 1, memory: bool = False) -> None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ValueError(f"threads={threads!r} can't decode; give a whole number of at least 1")
        self.data = data
        self.memory = memory
        self.input_seconds = 0.0
        self._decoder = Decoder(data, seed)
        self._ahead: deque[Task] = deque()
        self._held: deque[Samples] = deque()
        self._kept: dict[tuple[int, bytes], Batch] = {}
        # The threads refer to the decoder only, so that a loader that nobody closed can still be collected and they
        # end.
        self._finalizer = weakref.finalize(self, self._decoder.stop)
        self._threads = [
            threading.Thread(target=self._decoder.run, name=f"lockstep-decode-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def decode_seconds(self) -> float:
        return self._decoder.seconds

    def prefetch(self, epoch: int, ids: ArrayLike) -> None:
        """Starts to decode a batch. If two are being decoded, the older one is dropped; `take` decodes it anew."""
        self._check_open()
        ids = np.asarray(ids, dtype=np.int64)
        if _key(epoch, ids) in self._kept or self._find(epoch, ids) is not None:
            return
        if len(self._ahead) == AHEAD:
            self._decoder.give_up(self._ahead.popleft())
        self._ahead.append(self._decoder.submit(epoch, ids))

    def take(self, epoch: int, ids: ArrayLike) -> Batch:
        """The batch of these ids in this epoch: preloaded, prefetched, or decoded now.

        Raises what decoding raised (DataError for a photo that can't be read), with the decoding thread's traceback.
        """
        self._check_open()
        began = time.perf_counter()
        ids = np.asarray(ids, dtype=np.int64)
        try:
            kept = self._kept.get(_key(epoch, ids))
            return self._wait(epoch, ids) if kept is None else kept
        finally:
            self.input_seconds += time.perf_counter() - began

    def labels(self, epoch: int, ids: ArrayLike) -> Batch:
        """The batch without its images (float32 [n, 0]): for ranks that receive activations instead of images."""
        ids = np.asarray(ids, dtype=np.int64)
        return Batch(np.empty((len(ids), 0), np.float32), self.data.labels[ids], ids, epoch)

    def preload(self, epoch: int, ids: ArrayLike) -> None:
        """Decodes a batch and keeps it for every later `take` of the same ids and epoch. ValueError unless
        memory=True."""
        self._check_open()
        if not self.memory:
            raise ValueError(
                "preload keeps batches in memory, and this loader has memory=False; make it with memory=True"
            )
        ids = np.array(ids, dtype=np.int64)
        if _key(epoch, ids) in self._kept:
            return
        task = self._decoder.submit(epoch, ids, urgent=True)
        self._decoder.wait(task)
        self._kept[_key(epoch, ids)] = self._batch(task)

    def close(self) -> None:
        """Ends and joins the threads and forgets all batches; a second call does nothing."""
        self._finalizer()
        for thread in self._threads:
            thread.join()
        for forgotten in (self._ahead, self._held, self._kept):
            forgotten.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, epoch: int, ids: Ids) -> Batch:
        task = self._find(epoch, ids)
        if task is None:
            task = self._decoder.submit(epoch, ids, urgent=True)
        else:
            self._ahead.remove(task)
        self._decoder.wait(task)
        self._held.append(task.memory)
        if len(self._held) > _HELD:
            self._decoder.hand_back(self._held.popleft())
        return self._batch(task)

    def _batch(self, task: Task) -> Batch:
        return Batch(task.images, self.data.labels[task.ids], task.ids, task.epoch)

    def _find(self, epoch: int, ids: Ids) -> Task | None:
        for task in self._ahead:
            if task.epoch == epoch and np.array_equal(task.ids, ids):
                return task
        return None

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("this loader is closed; make a new one")


def _key(epoch: int, ids: Ids) -> tuple[int, bytes]:
    return epoch, ids.tobytes()

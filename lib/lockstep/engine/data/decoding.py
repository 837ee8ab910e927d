"""The decoding threads of a loader: a queue of chunks, the oldest batch first, and the buffers of the batches."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lockstep.engine.data.sources import Ids, ImageData, Samples, sample_dtype
from lockstep.engine.thread_names import name_training_thread

# Samples per chunk: few enough that all threads finish a batch together, so many that the lock costs nothing.
CHUNK = 8


@dataclass(eq=False)
class Task:
    """A batch being filled."""

    epoch: int
    ids: Ids
    memory: Samples  # the whole buffer, at least as long as the batch
    images: Samples = field(init=False)
    next: int = 0  # the first sample that no thread has started to decode
    running: int = 0  # chunks being decoded
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.images = self.memory[: len(self.ids)]

    @property
    def started(self) -> bool:
        return self.error is not None or self.next >= len(self.ids)

    @property
    def done(self) -> bool:
        return self.started and self.running == 0


class Decoder:
    """The part of a Loader that its threads use. `changed` is the lock of all fields."""

    def __init__(self, data: ImageData, seed: int) -> None:
        self.data = data
        self.seed = seed
        self.changed = threading.Condition()
        self.queue: deque[Task] = deque()  # batches with chunks that no thread has started
        self.free: list[Samples] = []  # buffers that nobody reads or writes
        self.orphans: list[Task] = []  # no longer wanted, while a thread was still writing them
        self.seconds = 0.0  # CPU time of decoding
        self.closed = False

    def submit(self, epoch: int, ids: Ids, urgent: bool = False) -> Task:
        """Starts to fill a batch, before all others if urgent."""
        with self.changed:
            task = Task(epoch, ids.copy(), self._buffer(len(ids)))
            if not task.started:  # an empty batch is full already
                self.queue.insert(0 if urgent else len(self.queue), task)
            self.changed.notify_all()
        return task

    def wait(self, task: Task) -> None:
        """Waits until the batch is full. Raises the exception of a decoding thread, with that thread's traceback."""
        with self.changed:
            while not (task.done or self.closed):
                self.changed.wait()
            if task.error is not None:
                self._recycle(task)
                raise task.error
            if not task.done:
                raise RuntimeError(
                    "the loader was closed while a batch was being decoded; close it after the last take"
                )

    def give_up(self, task: Task) -> None:
        """Drops a batch that is no longer wanted; its buffer is free once no thread writes to it."""
        with self.changed:
            if task in self.queue:
                self.queue.remove(task)
            task.next = len(task.ids)
            self._recycle(task)

    def hand_back(self, memory: Samples) -> None:
        with self.changed:
            self.free.append(memory)

    def stop(self) -> None:
        """Asks the threads to end after their present chunk."""
        with self.changed:
            self.closed = True
            self.queue.clear()
            self.free.clear()
            self.changed.notify_all()

    def run(self) -> None:
        """The loop of each thread, until `stop`."""
        name_training_thread("decode")
        while True:
            with self.changed:
                while not (self.queue or self.closed):
                    self.changed.wait()
                if self.closed:
                    return
                task = self.queue[0]
                start = task.next
                end = task.next = min(start + CHUNK, len(task.ids))
                task.running += 1
                if task.started:
                    self.queue.popleft()
            self._decode(task, start, end)
            del task  # otherwise an idle thread would keep the last batch alive

    def _decode(self, task: Task, start: int, end: int) -> None:
        error: BaseException | None = None
        began = time.thread_time()
        try:
            self.data.load(task.ids[start:end], task.epoch, self.seed, task.images[start:end])
        except BaseException as raised:  # raised again in the thread that takes this batch
            error = raised
        spent = time.thread_time() - began
        with self.changed:
            self.seconds += spent
            task.running -= 1
            if error is not None and task.error is None:
                task.error = error
                if task in self.queue:
                    self.queue.remove(task)
            if task.done:
                self.changed.notify_all()
            self.orphans = [orphan for orphan in self.orphans if not self._recycled(orphan)]

    def _recycle(self, task: Task) -> None:
        if not self._recycled(task):
            self.orphans.append(task)

    def _recycled(self, task: Task) -> bool:
        if task.done:
            self.free.append(task.memory)
        return task.done

    def _buffer(self, length: int) -> Samples:
        # A new array of 20 MB costs 5 000 page faults per batch; a reused one costs none.
        for place, memory in enumerate(self.free):
            if len(memory) >= length:
                return self.free.pop(place)
        self.free.clear()  # all of them are too small, because batches have grown
        return np.empty((length, *self.data.shape), dtype=sample_dtype(self.data))

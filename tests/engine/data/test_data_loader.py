"""The loader: the same batches however they are asked for, bounded memory, errors that arrive, nothing left behind."""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.data.decoding import CHUNK
from lockstep.engine.data.errors import DataError
from lockstep.engine.data.loader import AHEAD, Batch, Loader


class Numbers:
    """Images filled with sample id + 1000 × epoch + seed / 4; counts what is loaded; can be held up and can fail."""

    classes = ("even", "odd")
    shape = (1, 2, 3)
    source = "own"

    def __init__(self, count: int = 200) -> None:
        self.labels = np.arange(count, dtype=np.int64) % 2
        self.loaded: list[tuple[int, int]] = []
        self.go = threading.Event()
        self.go.set()
        self.bad: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, ids: np.ndarray, epoch: int, seed: int, out: np.ndarray | None = None) -> np.ndarray:
        assert out is not None
        self.go.wait(30)
        if self.bad in ids.tolist():
            raise DataError(f"photo of sample {self.bad} can't be read")
        self.loaded += [(epoch, sample) for sample in ids.tolist()]
        out[:] = (ids + 1000 * epoch + seed / 4)[:, None, None, None]
        return out


def check(batch: Batch, epoch: int, ids: object, seed: int = 0) -> None:
    ids = np.asarray(ids, dtype=np.int64)
    assert batch.epoch == epoch
    np.testing.assert_array_equal(batch.sample_ids, ids)
    np.testing.assert_array_equal(batch.labels, ids % 2)
    assert batch.images.shape == (len(ids), 1, 2, 3)
    assert batch.images.dtype == np.float32
    assert batch.images.flags.c_contiguous
    np.testing.assert_array_equal(batch.images[:, 0, 0, 0], ids + 1000 * epoch + seed / 4)


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


def decoding_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lockstep-decode")]


@pytest.mark.parametrize("threads", [1, 3])
def test_prefetched_or_not_a_batch_is_the_same(threads: int) -> None:
    data = Numbers()
    with Loader(data, seed=3, threads=threads) as loader:
        ids = np.arange(50)[::-1]
        loader.prefetch(1, ids)
        check(loader.take(1, ids), 1, ids, seed=3)
        check(loader.take(2, ids), 2, ids, seed=3)
        assert len(loader.take(0, [])) == 0
    assert len(data.loaded) == 100, "each sample is decoded once per take"


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=25),
)
def test_any_sequence_of_calls_gives_the_batches_asked_for(threads: int, calls: list[tuple[bool, int, int]]) -> None:
    latest: list[tuple[Batch, int, np.ndarray]] = []
    with Loader(Numbers(), seed=0, threads=threads) as loader:
        for ahead, epoch, size in calls:
            ids = np.arange(size) * 3
            if ahead:
                loader.prefetch(epoch, ids)
                continue
            latest = [*latest[-1:], (loader.take(epoch, ids), epoch, ids)]
            for batch, its_epoch, its_ids in latest:  # the one before is still valid
                check(batch, its_epoch, its_ids)


def test_prefetching_happens_before_take() -> None:
    data = Numbers()
    with Loader(data, seed=0) as loader:
        loader.prefetch(0, [1, 2, 3])
        loader.prefetch(0, [1, 2, 3])
        assert eventually(lambda: len(data.loaded) == 3)
        check(loader.take(0, [1, 2, 3]), 0, [1, 2, 3])
    assert len(data.loaded) == 3, "asking twice decodes once"


def test_no_more_than_two_batches_are_under_way() -> None:
    data = Numbers()
    data.go.clear()
    with Loader(data, seed=0) as loader:
        for epoch in range(5):
            loader.prefetch(epoch, range(4 * CHUNK))
        data.go.set()
        assert eventually(lambda: {(3, 31), (4, 31)} <= set(data.loaded))
        # Of those given up, at most the chunk that a thread had begun is decoded.
        assert len(data.loaded) <= AHEAD * 4 * CHUNK + CHUNK
        for epoch in (4, 0, 3):
            check(loader.take(epoch, range(4 * CHUNK)), epoch, range(4 * CHUNK))


def test_memory_is_used_again() -> None:
    with Loader(Numbers(), seed=0, threads=2) as loader:
        seen = set()
        loader.prefetch(0, range(20))
        for step in range(30):
            loader.prefetch(step + 1, range(20))
            seen.add(loader.take(step, range(20)).images.__array_interface__["data"][0])
        assert len(seen) <= AHEAD + 3


def test_an_urgent_batch_goes_first() -> None:
    data = Numbers()
    with Loader(data, seed=0) as loader:
        data.go.clear()
        loader.prefetch(0, range(10 * CHUNK))
        assert eventually(lambda: loader._decoder.queue[0].running == 1)
        loader.prefetch(1, range(10 * CHUNK))

        def release() -> None:
            eventually(lambda: loader._decoder.queue[0].epoch == 2)
            data.go.set()

        threading.Thread(target=release).start()
        check(loader.take(2, [5, 6]), 2, [5, 6])
        assert data.loaded.index((2, 5)) == CHUNK
        check(loader.take(0, range(10 * CHUNK)), 0, range(10 * CHUNK))


def test_preloaded_batches_are_decoded_once_and_kept() -> None:
    data = Numbers()
    with Loader(data, seed=0, memory=True) as loader:
        for epoch in (0, 1):
            loader.preload(epoch, range(30))
            loader.preload(epoch, range(30))
        decoded = loader.decode_seconds
        first = loader.take(0, range(30))
        for _ in range(4):
            loader.prefetch(1, range(30))
            check(loader.take(1, range(30)), 1, range(30))
            assert loader.take(0, range(30)) is first
            check(first, 0, range(30))
        assert loader.decode_seconds == decoded
        check(loader.take(2, [3]), 2, [3])
    assert len(data.loaded) == 61


def test_preloading_needs_memory() -> None:
    with Loader(Numbers(), seed=0) as loader, pytest.raises(ValueError, match="memory=False; make it with memory=True"):
        loader.preload(0, [1])


@pytest.mark.parametrize("ahead", [True, False])
def test_an_error_arrives_with_the_threads_own_traceback(ahead: bool) -> None:
    data = Numbers()
    data.bad = 70
    with Loader(data, seed=0, threads=2) as loader:
        if ahead:
            loader.prefetch(0, range(100))
            loader.prefetch(0, [1, 2])
        with pytest.raises(DataError, match="sample 70") as raised:
            loader.take(0, range(100))
        frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert frames[-1] == "load"
        check(loader.take(0, [1, 2]), 0, [1, 2])
        data.bad = None
        check(loader.take(0, range(100)), 0, range(100))


def test_time_is_recorded() -> None:
    class Busy(Numbers):
        def load(self, ids: np.ndarray, epoch: int, seed: int, out: np.ndarray | None = None) -> np.ndarray:
            began = time.thread_time()
            while time.thread_time() < began + 0.005:
                pass
            return super().load(ids, epoch, seed, out)

    with Loader(Busy(), seed=0, threads=2) as loader:
        assert (loader.decode_seconds, loader.input_seconds) == (0.0, 0.0)
        loader.take(0, range(4 * CHUNK))
        # CPU time of all threads together; waiting can't be shorter than half of it with two threads.
        assert loader.decode_seconds >= 0.02
        assert loader.input_seconds > 0.009


@pytest.mark.linux
def test_threads_run_on_the_cores_of_their_maker() -> None:
    seen: set[frozenset[int]] = set()

    class Where(Numbers):
        def load(self, ids: np.ndarray, epoch: int, seed: int, out: np.ndarray | None = None) -> np.ndarray:
            seen.add(frozenset(os.sched_getaffinity(0)))
            return super().load(ids, epoch, seed, out)

    before = os.sched_getaffinity(0)
    core = max(before)
    try:
        os.sched_setaffinity(0, {core})
        loader = Loader(Where(), seed=0, threads=2)
    finally:
        os.sched_setaffinity(0, before)
    with loader:
        loader.take(0, range(100))
    assert seen == {frozenset({core})}


def test_closing_leaves_nothing() -> None:
    before = len(decoding_threads())
    data = Numbers()
    data.go.clear()
    loader = Loader(data, seed=0, threads=3)
    assert len(decoding_threads()) == before + 3
    loader.prefetch(0, range(100))
    loader.prefetch(1, range(100))
    data.go.set()
    loader.close()
    loader.close()
    assert len(decoding_threads()) == before
    for use in (loader.take, loader.prefetch, loader.preload):
        with pytest.raises(RuntimeError, match="this loader is closed; make a new one"):
            use(0, [1])


def test_a_forgotten_loader_ends_its_threads() -> None:
    before = len(decoding_threads())
    loader = Loader(Numbers(), seed=0, threads=2)
    loader.take(0, range(20))
    del loader
    gc.collect()
    assert eventually(lambda: len(decoding_threads()) == before)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_impossible_thread_counts(threads: object) -> None:
    with pytest.raises(ValueError, match=rf"threads={threads} can't decode; give a whole number of at least 1"):
        Loader(Numbers(), seed=0, threads=threads)  # type: ignore[arg-type]

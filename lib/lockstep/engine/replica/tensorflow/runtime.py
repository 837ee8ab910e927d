"""TensorFlow, started once per process: it takes seconds, and its threads can't be set afterwards."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

_STARTING = threading.Lock()


class NoTensorFlow(ImportError):
    """TensorFlow can't be used in this process; the message says why and what helps."""


def start_tensorflow(threads: int) -> Any:
    """The module `tensorflow`, whose operators use `threads` threads and no GPU.

    Ranks that are threads of one process share its runtime, and its threads can't change. Raises NoTensorFlow.
    """
    with _STARTING:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # notices of what it was built for
        if "keras" not in sys.modules:
            os.environ["KERAS_BACKEND"] = "tensorflow"
        try:
            import keras
            import tensorflow as tf
        except ImportError as error:
            raise NoTensorFlow(f"framework='tensorflow' can't start ({error}); pip install -r requirements.lock, or "
                               "give framework='torch'") from error  # fmt: skip
        if keras.backend.backend() != "tensorflow":
            raise NoTensorFlow(
                f"Keras runs on {keras.backend.backend()} here; unset KERAS_BACKEND, or import keras after lockstep"
            )
        cores = _cores_of_process()
        try:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            # A graph runs in one thread of this pool (see `one_by_one`): as many as graphs can run at a time.
            tf.config.threading.set_inter_op_parallelism_threads(len(cores) or os.cpu_count() or 1)
            tf.config.set_visible_devices([], "GPU")  # its memory would be taken whole
            with _on(cores):
                tf.config.list_logical_devices()  # makes the threads
        except RuntimeError as error:
            raise NoTensorFlow(f"TensorFlow runs in this process already, not with threads={threads}: {error}; train "
                               "with a launcher, whose workers are processes of their own") from error  # fmt: skip
        return tf


def one_by_one(tf: Any) -> contextlib.AbstractContextManager[None]:
    """Operators of the graphs that are called inside follow each other in one thread."""
    return tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR")


def _cores_of_process() -> set[int]:
    """The cores of the main thread, which include those of all ranks; empty where the system has no affinity."""
    return os.sched_getaffinity(os.getpid()) if hasattr(os, "sched_getaffinity") else set()


@contextlib.contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    """Threads that are started in this context may run on `cores`, not only on those of one rank."""
    if not cores:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)

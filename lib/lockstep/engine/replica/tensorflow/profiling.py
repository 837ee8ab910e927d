"""Seconds of every operator that a call of TensorFlow ran, by TensorFlow's own profiler."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OPERATOR = re.compile(r"[^:\s]+:(\w+)")
"""An event of the graph's executor: `name of the node:type of the operator`; other events hold spaces or `::`."""


def operator_seconds(tf: Any, call: Callable[[], object]) -> list[tuple[str, float]]:
    """(type, seconds) of each operator that `call` runs, in the order in which they ended up in the trace.

    Only graphs that run in the default executor leave any: the single-threaded one does not name its operators. Raises
    RuntimeError if another profile is under way in this process, and if none was found.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory(prefix="lockstep-profile-") as folder:
        try:
            tf.profiler.experimental.start(folder, options=options)
        except tf.errors.AlreadyExistsError as error:
            raise RuntimeError("a profile of TensorFlow is under way in this process; stop it first") from error
        try:
            call()
        finally:
            tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        for path in Path(folder).rglob("*.xplane.pb"):
            space.MergeFromString(path.read_bytes())
    found = []
    for plane in space.planes:
        for event in (event for line in plane.lines for event in line.events):
            if match := _OPERATOR.fullmatch(plane.event_metadata[event.metadata_id].name):
                found.append((match[1], event.duration_ps / 1e12))
    if not found:
        raise RuntimeError("TensorFlow's profile names no operator: it knows its events by other names than "
                           f"TensorFlow {tf.__version__} gives them, or the graph ran in another executor")  # fmt: skip
    return found

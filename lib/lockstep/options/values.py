"""The values that a `Job`'s fields may hold, and who reads which of them."""

from __future__ import annotations

import re
from typing import Any


class JobError(ValueError):
    """A job that can't be run; the message names the field, its value and the fix."""


# Identity columns of strategies that are not built yet: a record must not claim what did not run.
FIXED: dict[str, object] = {"delays": "none"}
ONE_HOST = ("threads", "processes")
"""Launchers of one machine."""
ON_SPARK = ("spark", "spark_driver")
"""Launchers on a Spark cluster."""

READ_BY: dict[str, tuple[str, ...]] = {
    "bucket": ("allreduce",),
    "overlap": ("allreduce",),
    "transport": ("allreduce",),
    "exchange_every": ("local_sgd", "gossip", "parameter_server", "sparknet"),
    "state_averaged": ("local_sgd", "sparknet"),
    "compression": ("allreduce", "parameter_server"),
    "density": ("allreduce", "parameter_server"),
    "policy": ("parameter_server",),
    "servers": ("parameter_server",),
    "shards": ("parameter_server",),
    "opt_weight": ("parameter_server", "sparknet"),
    "executor_data": ("sparknet",),
}
"""The syncs that read an option; with any other it must stand at its default."""

OF_PIPELINES = (
    "stages", "stages_per_rank", "schedule", "micro_batches", "partition", "activations", "stage_memory_bytes",
)  # fmt: skip
"""Options that model_parallel='pipeline' alone reads."""

# Of the text fields whose values are a fixed set; launcher, sync and strategy have tables of their own.
CHOICES: dict[str, tuple[str, ...]] = {
    "data_source": ("real", "synthetic", "own"),
    "framework": ("torch", "tensorflow"),
    "device": ("cpu", "cuda"),
    "compression": ("none", "topk", "terngrad"),
    "transport": ("messages", "rma", "sockets"),
    "host_workers": ("processes", "threads"),
    "policy": ("none", "wait_for_all"),
    "model_parallel": ("none", "pipeline", "head"),
    "schedule": ("none", "naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"),
    "partition": ("none", "balanced", "equal_layers", "equal_parameters"),
    "activations": ("kept", "recomputed"),
    "opt_weight": ("none", "mean", "best"),
    "executor_data": ("none", "rdd", "files"),
    "network": ("default", "cnn", "convlstm", "convlstm2d"),
    "pooling": ("default", "max", "average", "none"),
    "class_weights": ("none", "balanced"),
    "augmentation": ("default", "none", "flip", "shift", "affine"),
    "learning_rate_rule": ("constant", "linear"),
    "learning_rate_decay": ("none", "cosine"),
    "scored_on": ("none", "validation", "test"),
    "precision": ("float32", "bfloat16"),
    "input": ("jpeg", "memory", "none"),
    "optimiser": ("plain", "fused"),
    "memory_format": ("contiguous", "channels_last"),
    "copies": ("kept", "avoided"),
    "variant": ("a", "b"),
}


def at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise JobError(f"{name}={value!r} is not possible; give a whole number of at least {least}")


def bucket_elements(bucket: str) -> int | None:
    """float32 numbers in a bucket of that size; None for `whole` and `layer`. Raises JobError."""
    if bucket in ("whole", "layer"):
        return None
    found = re.fullmatch(r"([1-9]\d*)(B|KiB|MiB)", bucket) if isinstance(bucket, str) else None
    if found is None:
        raise JobError(f"bucket={bucket!r} is no size; give 'whole', 'layer' or a size such as '64KiB' or '4MiB'")
    return max(1, int(found[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[found[2]] // 4)

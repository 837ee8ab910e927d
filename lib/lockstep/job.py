"""One cell of an experiment's grid, as data.

A `Job` says WHAT is trained (use case, data, batch), WHERE (launcher, workers, cores) and HOW the
replicas agree (sync). It is JSON: it travels to the workers, and its fields are the identity columns
of `records.csv`, in this order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import lockstep.strategies as strategies

NO_USE_CASE = "none"
"""Of rows that measure the machine, not training."""


class JobError(ValueError):
    """A job that can't be run; the message names the field, its value and the fix."""


@dataclass(frozen=True)
class Job:
    """WHAT x WHERE x HOW. Every field is a column of `records.csv` (see `lockstep.records.COLUMNS`)."""

    experiment: str = "speed"
    use_case: str = "SimpleBig"
    data_source: str = "synthetic"  # real | synthetic
    images: int = 0  # training images of the data set, 0 = not known yet
    strategy: str = "sequential"  # the notebook's row name
    launcher: str = "threads"
    sync: str = "local"
    compression: str = "none"
    policy: str = "none"
    delays: str = "none"
    framework: str = "torch"
    device: str = "cpu"
    hosts: int = 1
    workers: int = 1
    servers: int = 0
    threads_per_worker: int = 1
    cores_per_worker: int = 1  # affinity: computing and decoding share these cores
    stages: int = 1
    micro_batches: int = 1
    schedule: str = "none"
    global_batch_size: int = 32
    per_worker_batch_size: int = 32
    precision: str = "float32"  # float32 | bfloat16
    input: str = "jpeg"  # jpeg: decoded as training goes | memory: tensors decoded before the clock starts
    environment: str = "tuned"  # environment profile, lockstep.launch.environment.PROFILES
    optimiser: str = "fused"  # plain: torch's own default, a pass over memory for each operation | fused: one pass
    memory_format: str = "contiguous"  # of images and activations: contiguous (NCHW) | channels_last (NHWC)
    copies: str = "kept"  # kept: as torch does by default | avoided: see lockstep.replica.bfloat16
    link_bits_per_second: float = 0.0  # emulated link, 0 = none
    steps: int = 1  # measured optimiser steps
    warmup_steps: int = 1  # discarded before them
    seed: int = 0
    round: int = 0
    variant: str = "a"  # a | b: the two halves of an A/A pair
    selected: bool = False

    def __post_init__(self) -> None:
        for name in ("workers", "hosts", "threads_per_worker", "cores_per_worker", "steps", "stages", "micro_batches"):
            _at_least(name, getattr(self, name), 1)
        for name in ("warmup_steps", "servers", "round", "images", "seed"):
            _at_least(name, getattr(self, name), 0)
        for name in ("global_batch_size", "per_worker_batch_size"):
            _at_least(name, getattr(self, name), 1)
        for name, only in FIXED.items():
            if getattr(self, name) != only:
                raise JobError(f"{name}={getattr(self, name)!r} is not built yet; the only value now is {only!r}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise JobError(f"{name}={getattr(self, name)!r} does not exist; there are: {', '.join(allowed)}")
        if self.copies == "avoided" and self.precision != "bfloat16":
            raise JobError("copies='avoided' has nothing to avoid in float32; give precision='bfloat16'")

    def cautions(self, usable_cores: int) -> list[str]:
        """What is allowed but worth a warning and a note in the records."""
        found = []
        if self.workers * self.cores_per_worker > usable_cores:
            asked = f"{self.workers} workers x {self.cores_per_worker} cores"
            found.append(f"{asked} on {usable_cores} usable cores: workers share cores")
        if self.images and self.workers > self.images:
            found.append(f"{self.workers} workers for {self.images} training images: some have nothing to train on")
        if self.global_batch_size % self.workers:
            large = -(-self.global_batch_size // self.workers)
            found.append(
                f"global batch {self.global_batch_size} is not divisible by {self.workers} workers: shares of {large} "
                f"and {self.global_batch_size // self.workers}, the largest decides the step"
            )
        return found

    @classmethod
    def of(cls, strategy: str, *, workers: int = 1, per_worker_batch_size: int = 32, **others: Any) -> Job:
        """The job of a row of `lockstep.strategies.STRATEGIES`; weak scaling: the batch grows with the workers.

        Raises JobError for a strategy that does not exist and for impossible values.
        """
        if strategy not in strategies.STRATEGIES:
            raise JobError(f"strategy={strategy!r} does not exist; there are: {', '.join(strategies.STRATEGIES)}")
        _at_least("workers", workers, 1)
        _at_least("per_worker_batch_size", per_worker_batch_size, 1)
        chosen: dict[str, Any] = dict(strategies.STRATEGIES[strategy].fields)
        chosen.update(others)
        count = workers if strategies.STRATEGIES[strategy].distributed else 1
        # The same batch whether a budget of cores is spent on workers or inside one worker's operators.
        parts = workers if strategies.STRATEGIES[strategy].intra_op else count
        chosen.setdefault("global_batch_size", per_worker_batch_size * parts)
        # A budget of cores that a strategy spends on threads of one worker is spelt threads_per_worker.
        if strategies.STRATEGIES[strategy].intra_op:
            chosen.setdefault("threads_per_worker", workers)
        chosen.setdefault("cores_per_worker", chosen.get("threads_per_worker", 1))
        return cls(strategy=strategy, workers=count, per_worker_batch_size=per_worker_batch_size, **chosen)

    def with_(self, **changes: Any) -> Job:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Raises JobError if a field is unknown."""
        values = json.loads(text)
        unknown = set(values) - set(IDENTITY)
        if unknown:
            raise JobError(f"unknown job field(s) {sorted(unknown)}; there are: {', '.join(IDENTITY)}")
        return cls(**values)

    @property
    def label(self) -> str:
        """Short name for progress and errors."""
        size = f"{self.workers}x{self.threads_per_worker}"
        return f"{self.use_case} {self.strategy} {size} {self.precision} {self.input} batch {self.global_batch_size}"


def of_use_case(values: Mapping[str, Any], use_case: str, name: str) -> Any:
    """The value of a notebook's parameter `name` that holds one for each use case. Raises JobError if it has none."""
    if use_case not in values:
        raise JobError(
            f"{name}={dict(values)!r} has no value for use case {use_case!r}; give one, or leave it out of use_cases"
        )
    return values[use_case]


def _at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise JobError(f"{name}={value!r} is not possible; give a whole number of at least {least}")


# Identity columns of strategies that are not built yet: a record must not claim what did not run.
FIXED: dict[str, object] = {
    "compression": "none",
    "policy": "none",
    "delays": "none",
    "schedule": "none",
    "hosts": 1,
    "servers": 0,
    "stages": 1,
    "micro_batches": 1,
    "link_bits_per_second": 0.0,
}
# Of the text fields whose values are a fixed set; launcher, sync and strategy have tables of their own.
CHOICES: dict[str, tuple[str, ...]] = {
    "data_source": ("real", "synthetic", "own"),
    "framework": ("torch",),
    "device": ("cpu", "cuda"),
    "precision": ("float32", "bfloat16"),
    "input": ("jpeg", "memory", "none"),
    "optimiser": ("plain", "fused"),
    "memory_format": ("contiguous", "channels_last"),
    "copies": ("kept", "avoided"),
    "variant": ("a", "b"),
}
IDENTITY: tuple[str, ...] = tuple(field.name for field in fields(Job))

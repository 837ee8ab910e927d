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
from lockstep.options import JobError, at_least, check

NO_USE_CASE = "none"
"""Of rows that measure the machine, not training."""


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
    bucket: str = "whole"  # gradients are exchanged in pieces: whole | layer | so many B, KiB or MiB, such as 4MiB
    overlap: bool = False  # pieces are exchanged while the backward pass still runs
    transport: str = "messages"  # of sums over ranks: messages | rma (one-sided MPI) | sockets (plain TCP)
    exchange_every: int = 1  # local steps between two exchanges of parameters; 0: once per epoch
    state_averaged: bool = False  # the optimiser's state (momentum) is averaged with the parameters
    compression: str = "none"
    density: float = 1.0  # share of the gradient's entries that are sent
    policy: str = "none"
    shards: int = 1  # ranks that each look after a slice of the parameters: the servers, or the first workers
    opt_weight: str = "none"  # none: workers send gradients | mean, best: they send weights (Algorithm 1)
    executor_data: str = "none"  # of SparkNet: executors get images as a cached RDD (rdd) | read them as files (files)
    delays: str = "none"
    framework: str = "torch"
    device: str = "cpu"
    hosts: int = 1
    host_workers: str = "processes"  # the workers of one host are processes | threads of one process
    workers: int = 1
    servers: int = 0
    threads_per_worker: int = 1
    cores_per_worker: int = 1  # affinity: computing and decoding share these cores
    model_parallel: str = "none"  # what of the model is split over ranks: none | pipeline | head
    stages: int = 1  # of the whole model
    stages_per_rank: int = 1
    micro_batches: int = 1  # of each replica's share of a step
    schedule: str = "none"  # the order of micro-batches in a pipeline; naive: the whole batch, one stage after another
    partition: str = "none"  # where the model is cut: balanced (by measured times) | equal_layers | equal_parameters
    activations: str = "kept"  # for the backward pass: kept | recomputed (activation checkpointing)
    stage_memory_bytes: int = 0  # no stage of partition='balanced' may need more; 0: no bound
    global_batch_size: int = 32
    per_worker_batch_size: int = 32
    network: str = "default"  # the use case's own | cnn, convlstm, convlstm2d: of use cases with small images
    pooling: str = "default"  # of the CNN: the network's own (max) | max | average | none
    dropout: float = 0.0  # after each pooling and before the output
    weight_decay: float = 0.0  # L2: times the parameters, added to the gradient
    batch_norm: bool = False  # after each convolution; every worker normalises by its own share's statistics
    class_weights: str = "none"  # balanced: a sample counts images / (classes x images of its class)
    augmentation: str = "default"  # of training images: the use case's own | none | flip | shift, affine (and flip)
    standardise: bool = False  # each image to mean 0 and standard deviation 1: an X-ray's exposure is arbitrary
    learning_rate: float = 0.0  # 0: the use case's own
    learning_rate_rule: str = "constant"  # linear: times global batch / 32
    learning_rate_decay: str = "none"  # cosine: to 0 over all steps
    rate_warmup_epochs: int = 0  # the rate grows from 0, step by step, for so many epochs
    epochs: int = 0  # whole epochs instead of warmup_steps + steps
    updates: int = 0  # optimiser steps instead of epochs
    scored_on: str = "none"  # validation: a fifth of the training images, and test | test: all are trained on
    early_stopping_epochs: int = 0  # epochs without a lower validation loss that are waited for; 0: never stop early
    precision: str = "float32"  # float32 | bfloat16
    message_bytes: int = 0  # of rows that exchange and train nothing: how much; 0: as the model has
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
    selected: bool = False  # a finalist: quoted if validation data choose its setting

    def __post_init__(self) -> None:
        check(self)

    @property
    def ranks(self) -> int:
        """Workers and dedicated servers together; the servers are the last ranks."""
        return self.workers + self.servers

    @property
    def pipeline_ranks(self) -> int:
        """Ranks that one pipeline is spread over; rank = replica * pipeline_ranks + place in the pipeline."""
        return self.stages // self.stages_per_rank

    @property
    def replicas(self) -> int:
        """Copies of the whole model: those that share out the global batch."""
        return self.workers // self.pipeline_ranks

    @property
    def learns(self) -> bool:
        """Does this train for whole epochs or a number of updates, not for a number of measured steps?"""
        return bool(self.epochs or self.updates)

    @property
    def synchronous(self) -> bool:
        """Does this train as one worker would: the same parameters up to rounding, whatever the workers?

        Where parameters are averaged in every step, that holds for optimisers that are linear in the gradient (SGD).
        """
        exact = self.compression == "none" or (self.compression == "topk" and self.density == 1.0)
        # Statistics of a worker's share, or of a micro-batch, are not those of the global batch.
        exact = exact and (not self.batch_norm or self.workers == 1)
        together = self.workers == 1 or (self.exchange_every == 1 and self.opt_weight != "best")
        return exact and together and (self.sync != "gossip" or self.workers <= 3)

    @property
    def averages_parameters(self) -> bool:
        """Does every worker step on parameters of its own, which are averaged?"""
        return self.sync in ("local_sgd", "gossip") or self.opt_weight != "none"

    def cautions(self, usable_cores: int) -> list[str]:
        """What is allowed but worth a warning and a note in the records."""
        found = []
        if self.ranks * self.cores_per_worker > usable_cores:
            served = f" and {self.servers} servers" if self.servers else ""
            asked = f"{self.workers} workers{served} x {self.cores_per_worker} cores"
            found.append(f"{asked} on {usable_cores} usable cores: workers share cores")
        if self.images and self.replicas > self.images:
            found.append(f"{self.replicas} workers for {self.images} training images: some have nothing to train on")
        if self.global_batch_size % self.replicas:
            large = -(-self.global_batch_size // self.replicas)
            found.append(
                f"global batch {self.global_batch_size} is not divisible by {self.replicas} workers: shares of {large} "
                f"and {self.global_batch_size // self.replicas}, the largest decides the step"
            )
        found += self._missing_exchange()
        pipelined = self.model_parallel == "pipeline"
        if self.overlap and self.replicas > 1 and (pipelined or self.framework == "tensorflow"):
            whose = "the pipeline's" if pipelined else "TensorFlow's"
            found.append(f"overlap=True overlaps nothing: the exchange begins behind {whose} backward pass")
        if not self.synchronous:
            found.append("not synchronous SGD: other parameters than one worker would reach")
        elif self.averages_parameters and self.workers > 1:
            found.append("averages parameters in every step: synchronous SGD only with a linear optimiser (SGD)")
        return found

    def _missing_exchange(self) -> list[str]:
        """A remark where the measured steps do not hold their share of exchanges of parameters."""
        every, what = self.exchange_every, f"{self.exchange_every} steps"
        if not every and self.images:
            every = -(-self.images // self.global_batch_size)
            what = f"epoch, of {every} steps"
        if self.workers == 1 or self.learns or not every or not self.steps % every:
            return []
        return [f"one exchange per {what}: the {self.steps} measured step(s) do not hold their share of it"]

    @classmethod
    def of(cls, strategy: str, *, workers: int = 1, per_worker_batch_size: int = 32, **others: Any) -> Job:
        """The job of a row of `lockstep.strategies.STRATEGIES`; weak scaling: the batch grows with the workers.

        Raises JobError for a strategy that does not exist and for impossible values.
        """
        if strategy not in strategies.STRATEGIES:
            raise JobError(f"strategy={strategy!r} does not exist; there are: {', '.join(strategies.STRATEGIES)}")
        at_least("workers", workers, 1)
        at_least("per_worker_batch_size", per_worker_batch_size, 1)
        chosen: dict[str, Any] = dict(strategies.STRATEGIES[strategy].fields)
        chosen.update(others)
        count = workers if strategies.STRATEGIES[strategy].distributed else 1
        if chosen.get("shards") == strategies.PER_WORKER:
            chosen["shards"] = count
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
        if self.model_parallel == "pipeline":
            size += f" {self.stages} stages, {self.micro_batches} micro-batches,"
        chosen = [name for name in (self.network, self.framework) if name not in ("default", "torch")]
        what = " ".join([self.use_case, *chosen, self.strategy])
        return f"{what} {size} {self.precision} {self.input} batch {self.global_batch_size}"


def of_use_case(values: Mapping[str, Any], use_case: str, name: str) -> Any:
    """The value of a notebook's parameter `name` that holds one for each use case. Raises JobError if it has none."""
    if use_case not in values:
        raise JobError(
            f"{name}={dict(values)!r} has no value for use case {use_case!r}; give one, or leave it out of use_cases"
        )
    return values[use_case]


IDENTITY: tuple[str, ...] = tuple(field.name for field in fields(Job))

"""How many steps a job trains for, what each sample counts, and the learning rate of each step.

A learning rate is the use case's own (or the job's) times a factor of the step:

    linear rule   x global batch / 32     Goyal et al. 2017, "Accurate, large minibatch SGD"; 32 is the papers' batch
    warm-up       x (step + 1) / steps of the warm-up, until it is 1
    cosine        x (1 + cos(pi step / steps)) / 2     Loshchilov and Hutter 2017, without restarts

Every sync steps a torch optimiser once per step of the plan, wherever it keeps it: on a worker, on a slice of the
parameters, on a server. So steps are counted in the optimizer's own parameter groups, which a
checkpoint keeps, and no sync has to pass the number on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.optim import Optimizer

from lockstep.engine.data.sources import ImageData
from lockstep.engine.job import Job
from lockstep.engine.sync.plan import OptimiserFactory, Plan

BATCH_OF_THE_RATE = 32
"""The global batch size for which a use case's learning rate is stated."""
Factor = Callable[[int], float]
BASE_RATE, STEPS_DONE = "lockstep_base_rate", "lockstep_steps"
"""What is kept in an optimiser's groups: the rate that it was made with, and its steps until now."""


def plan_of(job: Job, data: ImageData) -> Plan:
    """What each step of `job` trains on, of `data`."""
    weights = sample_weights(data.labels) if job.class_weights == "balanced" else None
    steps = job.warmup_steps + job.steps
    plan = Plan(len(data), job.global_batch_size, steps, job.seed, job.values["micro_batch"], weights)
    if not job.learns:
        return plan
    return plan.lasting(job.updates or job.epochs * plan.steps_per_epoch)


def sample_weights(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The weight of each sample: samples / (occurring classes x samples of its class). The mean is 1."""
    counts = np.bincount(labels)
    return (len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1)))[labels]


def rate_factor(job: Job, plan: Plan) -> Factor | None:
    """The factor of the learning rate as a function of the step; None if it is always 1."""
    fixed = job.global_batch_size / BATCH_OF_THE_RATE if job.learning_rate_rule == "linear" else 1.0
    rising = job.rate_warmup_epochs * plan.steps_per_epoch
    falling = job.learning_rate_decay == "cosine"
    if fixed == 1.0 and not rising and not falling:
        return None

    def factor(step: int) -> float:
        up = min(1.0, (step + 1) / rising) if rising else 1.0
        down = 0.5 * (1.0 + math.cos(math.pi * step / plan.steps)) if falling else 1.0
        return fixed * up * down

    return factor


def scheduled(make: OptimiserFactory, factor: Factor | None) -> OptimiserFactory:
    """`make`, whose optimisers multiply their learning rate by `factor` of the steps that they have made."""
    if factor is None:
        return make

    def set_rate(optimiser: Optimizer, *_: Any) -> None:
        for group in optimiser.param_groups:
            group["lr"] = group[BASE_RATE] * factor(group[STEPS_DONE])
            group[STEPS_DONE] += 1

    def made(tensors: Any) -> Optimizer:
        optimiser = make(tensors)
        for group in optimiser.param_groups:
            group |= {BASE_RATE: group["lr"], STEPS_DONE: 0}
        optimiser.register_step_pre_hook(set_rate)
        return optimiser

    return made

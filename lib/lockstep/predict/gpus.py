"""What GPUs of the paper's years could give, where there is none to measure: bounds, and a model of a step on them.

    step        FLOP of the batch / (utilisation x peak)  +  the update's bytes / memory bandwidth
    exchange    bytes of all gradients x 2 (g - 1) / g over PCIe; or x 2 (g - 1), where one GPU gathers and spreads them
    pipeline    the slower half's turns, one more than there are micro-batches, and what is sent between the halves

A paper that names no GPU, no batch and no link leaves a range of answers. So every unknown is drawn
(`drawn_machines`): one of the GPUs in `data/published/gpu-specifications.csv`, how much of its peak a network reaches,
images per GPU, the share of PCIe that arrives, how gradients are summed, and whether that overlaps with computing. A
Range is what 95 % of these draws hold: the model's error, and no interval of measurements. Decoding is left out, as if
images were at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from lockstep.analysis.published import read_table
from lockstep.engine.units import digits
from lockstep.predict.networks import ImageNetwork, network

UTILISATION = (0.2, 0.6)
"""Of its peak FP32 rate, what a GPU reaches in training a convolutional network; drawn evenly."""
BATCHES = (8, 256)
"""Images per GPU and step; drawn evenly on a logarithmic scale."""
LINK_SHARE = (0.5, 0.9)
"""Of the published rate of PCIe, what arrives."""
MICRO_BATCHES = (2, 4, 8, 16, 32)
ETHERNET_BYTES_PER_SECOND = 1.25e9
"""The paper's 10 Gbit/s between its nodes (section 4.2)."""
GPUS_DESCRIBED = 2
"""Section 3.3.1: "the first GPU takes approximately the same time than the second GPU"."""
UPDATE_BYTES = 20
"""Per parameter: SGD with momentum reads parameter, gradient and momentum and writes two of them."""
DRAWS = 20_000
_BACKWARD_SHARE = 2 / 3
"""Of a step's computing: what a sum of gradients can overlap with."""


@dataclass(frozen=True)
class Range:
    """The median of all draws, and what 95 % of them hold."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{digits(self.value)} [{digits(self.low)}, {digits(self.high)}]"

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high


def range_of(draws: np.ndarray) -> Range:
    low, value, high = np.quantile(draws, (0.025, 0.5, 0.975))
    return Range(float(value), float(low), float(high))


def chance_that(holds: np.ndarray) -> float:
    """The share of draws, of which an infinite number could still hold one more."""
    return (float(holds.sum()) + 1) / (len(holds) + 1)


@dataclass(frozen=True)
class Machines:
    """What a paper left unsaid, drawn: an array each, one value per draw."""

    flops_per_second: np.ndarray  # reached
    memory_bytes_per_second: np.ndarray
    link_bytes_per_second: np.ndarray  # of PCIe, reached
    batch: np.ndarray  # images per GPU
    micro_batches: np.ndarray
    through_one: np.ndarray  # bool: one GPU gathers all gradients, as torch's DataParallel does; else a ring
    overlaps: np.ndarray  # bool: gradients are summed while others are still computed


@cache
def specifications() -> pd.DataFrame:
    """The published rates of GPUs (FP32, without tensor cores) and where they stand."""
    return read_table("gpu", "specifications")


@cache
def drawn_machines(draws: int = DRAWS, seed: int = 0) -> Machines:
    """The same draws each time, so that nothing changes from one reading to the next."""
    known, random = specifications(), np.random.default_rng(seed)
    rows = known.iloc[random.integers(len(known), size=draws)]
    reached = random.uniform(*UTILISATION, draws) * rows["tflops"].to_numpy() * 1e12
    link = random.uniform(*LINK_SHARE, draws) * rows["pcie_gigabytes_per_second"].to_numpy() * 1e9
    batch = np.exp(random.uniform(math.log(BATCHES[0]), math.log(BATCHES[1]), draws))
    return Machines(
        reached,
        rows["memory_gigabytes_per_second"].to_numpy() * 1e9,
        link,
        batch,
        random.choice(MICRO_BATCHES, draws),
        random.random(draws) < 0.5,
        random.random(draws) < 0.5,
    )


# Bounds


def fewest_gpus(speedup: float) -> int:
    """N GPUs give at most N times what one gives, if all get their images in the same way."""
    return max(1, math.ceil(speedup))


# The model


def compute_seconds(own: ImageNetwork, drawn: Machines, batch: np.ndarray) -> np.ndarray:
    return own.training_flops * batch / drawn.flops_per_second


def update_seconds(own: ImageNetwork, drawn: Machines) -> np.ndarray:
    return own.parameters * UPDATE_BYTES / drawn.memory_bytes_per_second


def step_seconds(use_case: str, drawn: Machines) -> np.ndarray:
    """Of one GPU that trains its batch alone."""
    own = network(use_case)
    return compute_seconds(own, drawn, drawn.batch) + update_seconds(own, drawn)


def images_per_second(use_case: str, drawn: Machines) -> np.ndarray:
    """Of one GPU."""
    return drawn.batch / step_seconds(use_case, drawn)


def data_parallel(use_case: str, gpus: int, drawn: Machines, nodes: int = 1) -> np.ndarray:
    """Speedup of `gpus` replicas with a batch each over one of them; on several `nodes` the Ethernet between them sums
    the gradients instead of PCIe."""
    own = network(use_case)
    step, ring = step_seconds(use_case, drawn), 2 * (gpus - 1) / gpus
    if nodes > 1:
        exchange = own.gradient_bytes * ring / ETHERNET_BYTES_PER_SECOND + np.zeros_like(step)
    else:
        sent = np.where(drawn.through_one, 2.0 * (gpus - 1), ring)
        exchange = own.gradient_bytes * sent / drawn.link_bytes_per_second
    backward = _BACKWARD_SHARE * compute_seconds(own, drawn, drawn.batch)
    seen = np.where(drawn.overlaps, np.maximum(exchange - backward, 0.0), exchange)
    return gpus * step / (step + seen)


def pipeline(use_case: str, drawn: Machines) -> np.ndarray:
    """Speedup of two GPUs with half the model each over one with all of it, at the same batch.

    Small micro-batches are taken to use a GPU as well as large ones, which favours the pipeline.
    """
    own = network(use_case)
    turns = (drawn.micro_batches + 1) / drawn.micro_batches
    computing = compute_seconds(own, drawn, drawn.batch) / 2 * own.imbalance * turns
    sending = 2 * own.sent_bytes * drawn.batch / drawn.link_bytes_per_second
    seen = np.where(drawn.overlaps, np.maximum(sending - computing, 0.0), sending)
    update = max(half.parameters for half in own.halves) / own.parameters * update_seconds(own, drawn)
    return step_seconds(use_case, drawn) / (computing + seen + update)


def fewest_images(use_case: str, speedup: float, gpus: int) -> Range:
    """Images per GPU and step from which `gpus` replicas, a node each behind the Ethernet, reach a speedup; without
    overlap. Infinite where no batch does."""
    drawn, own = drawn_machines(), network(use_case)
    if speedup >= gpus:
        return Range(math.inf, math.inf, math.inf)
    exchange = own.gradient_bytes * 2 * (gpus - 1) / gpus / ETHERNET_BYTES_PER_SECOND
    step = speedup * exchange / (gpus - speedup)
    computing = np.maximum(step - update_seconds(own, drawn), 0.0)
    return range_of(computing * drawn.flops_per_second / own.training_flops)

"""The machine's limits: matrix products, copies and photo decoding, as rows beside what training reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.training.loop import Site, Trace
from lockstep.engine.usecases import use_case
from lockstep.measure.probes.bandwidth import copy_bandwidth

# Side of the square matrices: large enough that packing and edges no longer count, small enough for a few tries.
MATRIX_SIDE = 2048
DECODED_PHOTOS = 192


def matrix_peak(
    precision: str = "float32",
    side: int = MATRIX_SIDE,
    seconds_budget: float = 1.0,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """FLOP per second of a product of two square matrices, with this thread's number of torch threads.

    A product is 2 x side^3 FLOP. It is repeated for `seconds_budget`, at least 3 times, and the best one counts, since
    disturbances only make it slower. `precision` is `float32` or `bfloat16`. Raises ValueError for a side below 1.
    """
    if side < 1:
        raise ValueError(f"side={side} is no matrix; give at least 1")
    kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
    a = torch.ones(side, side, dtype=kind, device=device)
    b, out = a.clone(), torch.empty_like(a)
    torch.mm(a, b, out=out)
    best, spent, tries = float("inf"), 0.0, 0
    while tries < 3 or spent < seconds_budget:
        start = clock()
        torch.mm(a, b, out=out)
        if device != "cpu":
            torch.cuda.synchronize()
        seconds = clock() - start
        best, spent, tries = min(best, seconds), spent + seconds, tries + 1
    return 2.0 * side**3 / best


def run_machine(job: Job, group: Group, site: Site | None = None) -> Trace:
    """The limits of `job.threads_per_worker` cores: matrix products in `job.precision`, and copies."""
    del site
    group.enter("compute")
    scores = {"flops_per_second": matrix_peak(job.precision, device=job.device)}
    if job.device == "cpu":
        scores["bandwidth_bytes_per_second"] = copy_bandwidth(threads=job.threads_per_worker)
    return Trace(group.rank, scores=scores)


def run_decode(job: Job, group: Group, site: Site | None = None) -> Trace:
    """Photos per second that one core decodes from JPEG files to normalized tensors, one after the other.

    The first photos are decoded twice and only the second time counts, so that files come from the page cache.
    """
    assert site is not None
    case = (site.use_case or use_case(job.use_case)).for_job(job)
    data = case.open("train", site.data_root, job.images, site.skipped)
    ids = np.random.default_rng(job.seed).permutation(len(data))[:DECODED_PHOTOS]
    group.enter("input")
    out = np.empty((len(ids), *data.shape), dtype=np.float32)
    data.load(ids, 0, job.seed, out)
    start = time.perf_counter()
    data.load(ids, 0, job.seed, out)
    seconds = time.perf_counter() - start
    return Trace(group.rank, scores={"images_per_second": len(ids) / seconds, "step_seconds": seconds})

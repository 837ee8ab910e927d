"""What a calibration has workers do besides training: their own memory, the optimizer, the memory bus, decoding.

Every function here is `function(job, group, site) -> Trace`, as a team runs them; what it found is in `Trace.scores`.
"""

from __future__ import annotations

import contextlib
import math
import resource
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from lockstep.engine.data.errors import DataError
from lockstep.engine.data.folders import open_folder
from lockstep.engine.groups import Group
from lockstep.engine.groups.base import SubGroup, first_ranks
from lockstep.engine.job import Job
from lockstep.engine.peers import run_function
from lockstep.engine.resident_memory import reset_peak_rss, rss_bytes
from lockstep.engine.training.loop import Site, Trace, run_job

PEAK = "peak_bytes"
_COPY_SECONDS = 0.15
_UPDATES = 3
_DECODED = 8


def train_visit(job: Job, group: Group, site: Site) -> Trace:
    """`job` on the first ranks of a team that may have more; the others sleep. `scores` holds the most memory that
    this rank had meanwhile."""
    among = first_ranks(group, job.ranks)
    if among is None:
        return Trace(group.rank)
    forget_peak(job.device)
    trace = run_function(job.sync)(job, among, site)
    trace.scores[PEAK] = float(peak_bytes(job.device))
    return trace


def empty_visit(job: Job, group: Group, site: Site) -> Trace:
    """The memory of a worker that has built nothing yet."""
    del site
    used = torch.cuda.memory_allocated() if job.device == "cuda" else rss_bytes()
    return Trace(group.rank, scores={PEAK: float(peak_bytes(job.device) if math.isnan(used) else used)})


def forget_peak(device: str) -> None:
    """The next `peak_bytes` is of what comes from now on, where the system can do that."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    reset_peak_rss()


def peak_bytes(device: str) -> int:
    """The most memory that this process (or, of a GPU, torch in this process) has held: since `forget_peak` on Linux,
    since it began elsewhere."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    found = rss_bytes(peak=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int((most if sys.platform == "darwin" else most * 1024) if math.isnan(found) else found)


def machine_visit(job: Job, group: Group, site: Site) -> Trace:
    """On the first rank: seconds of a step of the optimizer alone on `message_bytes` of parameters, and the bytes per
    second of copies."""
    if group.rank:
        return Trace(group.rank)
    from lockstep.measure.probes.bandwidth import copy_bandwidth  # with all probes, which other calls do without

    assert site.use_case is not None
    group.enter("update")
    parameters = nn.Parameter(torch.zeros(max(1, job.message_bytes // 4), device=job.device))
    parameters.grad = torch.full_like(parameters, 1e-3)
    optimiser, seconds = site.use_case.optimiser([parameters]), []
    for _ in range(1 + _UPDATES):
        start = time.perf_counter()
        optimiser.step()
        if job.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    group.enter("compute")
    found = {"optimiser_seconds": statistics.median(seconds[1:])}
    return Trace(group.rank, scores=found | {"copy_bytes_per_second": copy_bandwidth(seconds_budget=_COPY_SECONDS)})


def memory_visit(job: Job, group: Group, site: Site, batches: Sequence[int]) -> Trace:
    """Each of the first ranks trains by itself with a batch of its own, `batches[rank]` (0: it sleeps): the memory of
    processes that have trained nothing else."""
    batch = batches[group.rank] if group.rank < len(batches) else 0
    if not batch:
        return Trace(group.rank)
    alone = job.with_(workers=1, global_batch_size=batch, per_worker_batch_size=batch, sync="local")
    forget_peak(job.device)
    trace = run_job(alone, SubGroup(group, [group.rank], f"rank {group.rank}"), site)
    trace.scores[PEAK] = float(peak_bytes(job.device))
    return trace


def decode_visit(job: Job, group: Group, site: Site) -> Trace:
    """On the first rank: seconds of decoding one photo of the folder `site.data_root`, by one thread; `job.round` says
    which are taken. `scores` is empty if none of them can be read."""
    if group.rank:
        return Trace(group.rank)
    photos = open_folder(str(site.data_root), "train", site.skipped)
    group.enter("input")
    chosen, seconds = np.random.default_rng(max(job.round, 0)).integers(len(photos), size=_DECODED), []
    for sample_id in chosen:
        start = time.perf_counter()
        with contextlib.suppress(DataError):
            photos.load(np.array([sample_id]), 0, job.seed)
            seconds.append(time.perf_counter() - start)
    return Trace(group.rank, scores={"decode_seconds": statistics.mean(seconds)} if seconds else {})

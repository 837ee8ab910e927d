"""Ranks that are threads of this process, and training step by step without the loop: no process is started."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tiny
from lockstep.engine.data.loader import Batch
from lockstep.engine.groups import Group, GroupAborted
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.replica import TorchReplica
from lockstep.engine.sync import Plan

DATA = tiny.arrays()
PLAN = Plan(len(DATA.labels), 8, 12)  # epochs of five steps, the last of five samples
SGD = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def batch(ids: np.ndarray, epoch: int) -> Batch:
    return Batch(DATA.images[ids], DATA.labels[ids], ids, epoch)


def trained(group: Group, make: Any, steps: int = 12) -> tuple[Tensor, Tensor, list[float], list[float]]:
    """Own parameters, the model, bytes of each step, and losses."""
    made, sync = replica(), make()
    sync.attach(made, group)
    sent, losses = [], []
    for _ in range(steps):
        share = sync.next()
        loss = made.backward(batch(share.sample_ids, share.epoch), share.weights) / share.scale
        sync.observe(loss, float(share.weights.sum()) / share.scale)
        losses.append(loss)
        sent.append(sync.step().bytes_sent)
    return made.parameters, sync.model(), sent, losses


def on_ranks(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(group, *arguments)` on `size` threads of this process: a team without processes. Results by rank."""

    def guarded(group: Group) -> Any:
        try:
            return function(group, *arguments)
        except BaseException as error:
            group.abort(str(error))
            raise

    with ThreadPoolExecutor(size, thread_name_prefix="lockstep-rank") as pool:
        futures = [pool.submit(guarded, group) for group in ThreadGroup.of(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:  # those that were aborted never hide the first cause
        raise min(errors, key=lambda error: isinstance(error, GroupAborted))
    return [future.result() for future in futures]


_BUILDING = threading.Lock()  # torch's generator is one per process, and some tests' ranks are threads


def replica() -> TorchReplica:
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TorchReplica(tiny.net())

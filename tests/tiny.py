"""Small models, data and misbehaving parts for tests that start real workers."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import time
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.data.sources import Arrays, Ids, Images
from lockstep.engine.groups import Group
from lockstep.engine.usecases import UseCase

SGD = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, fused=True)
SAMPLES = 37  # prime: no batch and no worker count divides it


def net() -> nn.Module:
    """Odd sizes throughout: 871 parameters, which 2, 3 and 4 workers do not divide; dropout in between."""
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3)),
        *(nn.Linear(5 * 5 * 4, 7), nn.ReLU(), nn.Linear(7, 3)),
    )


def deep_net(p: float = 0.3) -> nn.Module:
    """Six layers with parameters, 1,146 in all: enough for a stage more than two ranks have; dropout with `p`."""
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3), nn.ReLU(inplace=True), nn.Conv2d(5, 4, 2), nn.ReLU(inplace=True), nn.Flatten()),
        *(nn.Dropout(p), nn.Linear(4 * 4 * 3, 7), nn.ReLU(inplace=True), nn.Dropout(p)),
        *(nn.Linear(7, 6), nn.ReLU(inplace=True), nn.Linear(6, 5), nn.Linear(5, 3)),
    )


def normalised_net() -> nn.Module:
    """With running statistics, which differ between ranks until they are averaged."""
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 5 * 4, 3))


class Dropping(nn.Module):
    """Dropout that is no `nn.Dropout`: what it draws can't be keyed by sample."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.3, self.training)


def drawing_net() -> nn.Module:
    """`net` with such dropout in place of its own."""
    return nn.Sequential(*(Dropping() if isinstance(layer, nn.Dropout) else layer for layer in net()))


class Spare(nn.Module):
    """A model with a layer that is never used and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.twice = nn.Linear(9, 9)
        self.head = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)[:, :9]
        output: Tensor = self.head(torch.relu(self.twice(torch.relu(self.twice(x)))))
        return output


def arrays(samples: int = SAMPLES) -> Arrays:
    """float32 images of an odd shape, 3 classes."""
    dice = np.random.default_rng(7)
    images = dice.normal(size=(samples, 3, 7, 6)).astype(np.float32)
    return Arrays(images, np.arange(samples) % 3)


def case(**changes: object) -> UseCase:
    values: dict[str, object] = {"model": net, "optimiser": SGD, "train": arrays(), "test": arrays(11)}
    return UseCase("own", **(values | changes))  # type: ignore[arg-type]


# --- parts that misbehave on one rank only; workers find their rank in the name of their thread ---


def rank() -> int:
    import threading

    return int(threading.current_thread().name.rpartition("-")[2])


def misbehave(how: str) -> None:
    """raise | exit | leave | kill | stop | segfault | hang."""
    if how == "raise":
        raise RuntimeError("a tyre burst")
    if how == "exit":
        sys.exit(3)
    if how == "leave":
        os._exit(4)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "segfault":
        ctypes.string_at(0)
    time.sleep(3600)


class FaultyNet(nn.Module):
    """Misbehaves in the forward pass of rank 1."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.inner, self.how = net(), how

    def forward(self, x: Tensor) -> Tensor:
        if rank() == 1:
            misbehave(self.how)
        output: Tensor = self.inner(x)
        return output


class FaultyData(Arrays):
    """Misbehaves while sample 5 is loaded."""

    def __init__(self, how: str) -> None:
        whole = arrays()
        super().__init__(whole.images, whole.labels)
        self.how = how

    def load(self, ids: Ids, epoch: int, seed: int, out: Images | None = None) -> Images:
        if 5 in ids:
            misbehave(self.how)
        return super().load(ids, epoch, seed, out)


class FaultySGD(torch.optim.SGD):
    """Misbehaves in the update of rank 1."""

    def __init__(self, tensors: Iterable[Tensor], how: str) -> None:
        super().__init__(tensors, lr=0.05)
        self.how = how

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        if rank() == 1:
            misbehave(self.how)
        super().step()


def faulty_in(phase: str, how: str) -> UseCase:
    """A use case whose rank 1 (in `input`: whichever loads sample 5) misbehaves in that phase."""
    if phase == "input":
        return case(train=FaultyData(how))
    if phase == "compute":
        return case(model=functools.partial(FaultyNet, how))
    if phase == "update":
        return case(optimiser=functools.partial(FaultySGD, how=how))
    if phase == "start":
        return case(model=functools.partial(_faulty_start, how))
    raise ValueError(phase)


def _faulty_start(how: str) -> nn.Module:
    if rank() == 1:
        misbehave(how)
    return net()


# --- functions for Team.call ---


def say_rank(group: Group) -> tuple[int, int, int]:
    return group.rank, group.size, os.getpid()


def fault_in_phase(group: Group, phase: str, how: str) -> None:
    """Rank 1 misbehaves while the board says `phase`; the others wait for it in that phase."""
    group.at_step(3)
    group.enter(phase)
    if group.rank == 1:
        misbehave(how)
    group.enter("wait")
    group.barrier()

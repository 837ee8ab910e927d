"""Ranks that fail while others wait for them: what tests of failures share."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, Launcher, Team, WorkerFailed
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from lockstep.engine.sync.transports import transport_of
from lockstep.engine.training.loop import Site
from lockstep.engine.usecases import UseCase

END_SECONDS = 60.0  # on a busy machine: a hang lasts for ever
REASONS = {
    "raise": "raised RuntimeError",
    "exit": "raised SystemExit: 3",
    "leave": "left with exit code 4",
    "kill": "was killed by SIGKILL",
    "segfault": "was killed by SIGSEGV",
    "stop": "was stopped (SIGSTOP)",
}
KINDS = {"raise": "raises", "exit": "raises", "leave": "ends", "kill": "ends", "segfault": "ends", "stop": "stops"}
"""What the others can see of it: a rank that raises says so, a process that ends is gone, a stopped one is silent."""
SEEN = ("raise", "exit", "segfault", "stop")
"""Failures that leave the line that failed in the worker's output; the kernel gives the others no time for it."""


def fail(team: Team, *call: object, **options: float) -> WorkerFailed:
    """The failure of a call or a run, which must come in time and leave no worker."""
    team.start()
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as caught:
        team.call(*call, **options) if callable(call[0]) else team.run(*call, **options)  # type: ignore[arg-type]
    assert time.monotonic() - began < END_SECONDS
    assert team.pids == []
    return caught.value


# --- where the others wait ---


def in_barrier(group: Group, how: str) -> None:
    """Rank 1 misbehaves in an exchange; the others wait in a barrier, the thread beside it in that of their host."""
    group.at_step(3)
    group.barrier()  # all have begun
    group.enter("exchange")
    if group.rank == 1:
        tiny.misbehave(how)
    group.enter("wait")
    if group.rank == 0 and group.node.size < group.size:
        group.node.barrier()
    group.barrier()


def in_sums(group: Group, how: str, transport: str) -> None:
    """Rank 1 misbehaves before its third sum, when the others have begun theirs."""
    carrier = transport_of(transport, group)
    whole = carrier.buffer(torch.empty(300_000))
    group.at_step(3)
    group.enter("exchange")
    try:
        for number in range(1_000_000):
            if group.rank == 1 and number == 2:
                time.sleep(0.3)
                tiny.misbehave(how)
            carrier.allreduce(whole)
    finally:
        carrier.close()


class _Backward(torch.autograd.Function):
    """Misbehaves on the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        ctx.how = how
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        if _stage_rank() < 2:
            tiny.misbehave(ctx.how)
        return gradients[0], None


def _stage_rank() -> int:
    """Of this process: a stage is on one rank of the first replica, and in a hybrid on another one of the second."""
    return torch.distributed.get_rank()


class FaultyStage(nn.Module):
    """Misbehaves in training, on the first replica's rank that has it."""

    def __init__(self, how: str, backward: bool) -> None:
        super().__init__()
        self.how, self.backward = how, backward

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if self.backward:
            output: Tensor = _Backward.apply(x, self.how)
            return output
        if _stage_rank() < 2:
            tiny.misbehave(self.how)
        return x


def staged_net(how: str, backward: bool) -> nn.Module:
    """`tiny.deep_net` with a faulty last stage."""
    layers = list(tiny.deep_net().children())
    return nn.Sequential(*layers[:-1], FaultyStage(how, backward), layers[-1])


class _FaultyReLU(nn.ReLU):
    """Misbehaves on rank 1 on the way back: between the units of one layer of a split head and those of the next."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        if tiny.rank() == 1 and output.requires_grad:
            output.register_hook(lambda _: tiny.misbehave(self.how))
        return output


def _split_net(how: str) -> nn.Module:
    model = tiny.net()
    assert isinstance(model, nn.Sequential)
    model[5] = _FaultyReLU(how)
    return model


@dataclass(frozen=True)
class Waiting:
    """A place where ranks wait for one that has failed in `phase`, and how they come there: by a job or by a call."""

    phase: str
    fields: dict[str, Any] = field(default_factory=dict)
    case: Callable[[str], UseCase] | None = None  # by default rank 1 fails in `phase`
    call: tuple[Any, ...] = ()  # function(group, how, *more)
    launchers: tuple[str, ...] = ("processes", "mpiexec")

    def use_case(self, how: str) -> UseCase:
        return self.case(how) if self.case else tiny.faulty_in(self.phase, how)


_EVERYWHERE = ("threads", "processes", "mpiexec", "engines", "host_threads")
_PLAIN = ("threads", "processes", "mpiexec")
_SERVED = {"sync": "parameter_server", "policy": "wait_for_all", "servers": 1}
_LAYERS = {"sync": "allreduce", "bucket": "layer", "overlap": True}
_STAGES = {
    "sync": "local", "model_parallel": "pipeline", "stages": 2, "micro_batches": 4, "schedule": "1f1b",
    "partition": "equal_layers",
}  # fmt: skip
WAITING = {
    "start": Waiting("start", {"sync": "shared_memory"}, launchers=_EVERYWHERE),
    "barrier": Waiting("exchange", call=(in_barrier,), launchers=_EVERYWHERE),
    "common memory": Waiting("compute", {"sync": "shared_memory"}, launchers=_EVERYWHERE),
    "all-reduce": Waiting("update", {"sync": "allreduce"}, launchers=(*_PLAIN, "engines")),
    "all-reduce under way": Waiting("compute", _LAYERS, launchers=_PLAIN),
    "messages to a server": Waiting("compute", _SERVED, launchers=_PLAIN),
    # Of one worker and one server the server is rank 1, and alone updates.
    "messages of a server": Waiting("update", _SERVED | {"workers": 1}, launchers=_PLAIN),
    "DDP": Waiting("compute", {"sync": "ddp"}),
    "next stage": Waiting("compute", _STAGES, lambda how: tiny.case(model=functools.partial(staged_net, how, False))),
    "previous stage": Waiting(
        "compute", _STAGES, lambda how: tiny.case(model=functools.partial(staged_net, how, True))
    ),
    "split head": Waiting(
        "compute",
        {"sync": "allreduce", "model_parallel": "head"},
        lambda how: tiny.case(model=functools.partial(_split_net, how)),
    ),
    "sockets": Waiting("exchange", call=(in_sums, "sockets")),
    "window": Waiting("compute", _LAYERS | {"transport": "rma"}, launchers=("mpiexec",)),
}
"""What differs is where a rank waits, not which sync brought it there: gossip, local SGD, shards and compressed sums
wait for the same messages and collectives."""


def job_of(launcher: str, fields: dict[str, Any]) -> Job:
    """Six steps of two workers, of four on two hosts."""
    values: dict[str, Any] = {"use_case": "own", "workers": 2, "global_batch_size": 8, "steps": 6, "warmup_steps": 0}
    if launcher == "host_threads":
        return Job.of("host_threads", **(values | {"hosts": 2, "workers": 4}))
    return Job(strategy="own", launcher=launcher, **(values | fields))


def ready(launcher: str, ranks: int) -> Launcher:
    """A launcher for so many ranks; `host_threads` has two hosts, each a process with two threads."""
    with warnings.catch_warnings(action="ignore"):  # more ranks than cores
        if launcher == "host_threads":
            return Mpiexec(4, hosts=2, host_workers="threads")
        return LAUNCHERS[launcher](ranks)


def failure_of(launcher: str, how: str, waiting: Waiting) -> WorkerFailed:
    """What a team reports of it."""
    job = job_of(launcher, waiting.fields)
    with ready(launcher, job.ranks) as team:
        if waiting.call:
            function, *more = waiting.call
            return fail(team, function, how, *more)
        return fail(team, job, Site(use_case=waiting.use_case(how)))

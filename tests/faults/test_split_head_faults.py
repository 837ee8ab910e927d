"""A rank that fails between the two exchanges of a split head, while the other waits there for its rows: all end."""

from __future__ import annotations

import functools
import time

import pytest
from torch import Tensor, nn

import tiny
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed
from lockstep.engine.training.loop import Site

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers")]
END_SECONDS = 10.0
REASONS = {
    "raise": "raised RuntimeError: a tyre burst",
    "kill": "was killed by SIGKILL",
    "stop": "was stopped (SIGSTOP)",
}


class FaultyReLU(nn.ReLU):
    """Misbehaves on rank 1: between the units of the one layer and those of the next."""

    def __init__(self, how: str, backward: bool) -> None:
        super().__init__()
        self.how, self.backward = how, backward

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        if tiny.rank() == 1 and not self.backward:
            tiny.misbehave(self.how)
        if tiny.rank() == 1 and output.requires_grad:
            output.register_hook(lambda _: tiny.misbehave(self.how))
        return output


def faulty_net(how: str, backward: bool) -> nn.Module:
    model = tiny.net()
    assert isinstance(model, nn.Sequential)
    model[5] = FaultyReLU(how, backward)
    return model


@pytest.mark.parametrize(
    ("launcher", "how", "backward"),
    [
        *(("processes", how, backward) for how in REASONS for backward in (False, True)),
        *(("mpiexec", how, True) for how in ("raise", "kill")),
    ],
)
def test_while_the_other_waits_for_its_rows(launcher: str, how: str, backward: bool) -> None:
    job = Job(
        use_case="own", strategy="own", launcher=launcher, sync="allreduce", model_parallel="head", workers=2,
        global_batch_size=8, steps=6, warmup_steps=0,
    )  # fmt: skip
    case = tiny.case(model=functools.partial(faulty_net, how, backward))
    with LAUNCHERS[launcher](2) as team:
        team.start()
        began = time.monotonic()
        with pytest.raises(WorkerFailed) as caught:
            team.run(job, Site(use_case=case))
        assert time.monotonic() - began < END_SECONDS
        assert team.pids == []
    assert REASONS[how] in str(caught.value)
    assert (caught.value.rank, caught.value.where) == (1, "step 0, phase compute")

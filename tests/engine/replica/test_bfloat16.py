"""Training in bfloat16: the loss tracks float32's, and avoiding autocast's copies changes nothing but the copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.peers.ddp_replica import DDPReplica
from lockstep.engine.replica import Bfloat16Replica, TorchReplica, bfloat16_replica_class
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job

STEPS = 20


def train(path: Path | None = None, **changes: object) -> Trace:
    values: dict[str, object] = {"global_batch_size": 8, "steps": STEPS, "warmup_steps": 0, "strategy": "own"}
    this = Job(use_case="own", **(values | changes))  # type: ignore[arg-type]
    site = Site(use_case=tiny.case(), checkpoint=str(path) if path else None)
    return run_job(this, ThreadGroup.of(1)[0], site)


def losses(trace: Trace) -> np.ndarray:
    return np.array([step["train_loss"] for step in trace.steps])


@pytest.mark.parametrize("copies", ["kept", "avoided"])
def test_the_loss_tracks_float32(copies: str) -> None:
    exact = losses(train())
    rounded = losses(train(precision="bfloat16", copies=copies))
    assert exact[0] - exact[-5:].mean() > 0.1, "something is learnt, so that there is something to track"
    # bfloat16 keeps 8 bits: 0.4 % of each product, which partly cancels in a mean over samples.
    assert np.abs(rounded - exact).max() < 0.02
    assert np.abs(rounded - exact).max() > 0, "nothing was computed in bfloat16"


def test_avoiding_copies_computes_what_autocast_computes(tmp_path: Path) -> None:
    cast = losses(train(tmp_path / "cast", precision="bfloat16"))
    kept = losses(train(tmp_path / "kept", precision="bfloat16", copies="avoided"))
    # The same products from the same bfloat16 weights: only the order in which autocast adds bias and casts may differ.
    assert np.abs(cast - kept).max() < 2e-3
    ends = [checkpoint.read(str(tmp_path / name))["parameters"] for name in ("cast", "kept")]
    assert (ends[0] - ends[1]).abs().max() < 2e-3
    assert ends[1].dtype == torch.float32


def test_a_resumed_run_reaches_the_same_parameters(tmp_path: Path) -> None:
    """The float32 parameters are stored, not their bfloat16 copies."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, precision="bfloat16", copies="avoided")
    for steps, resume in ((STEPS // 2, False), (STEPS, True)):
        this = Job(
            use_case="own", strategy="own", precision="bfloat16", copies="avoided", global_batch_size=8, steps=steps,
            warmup_steps=0,
        )  # fmt: skip
        run_job(this, ThreadGroup.of(1)[0], Site(use_case=tiny.case(), checkpoint=str(parts), resume=resume))
    ends = [checkpoint.read(str(path))["parameters"] for path in (whole, parts)]
    assert torch.equal(*ends)


def made(model: nn.Module | None = None) -> Bfloat16Replica:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Bfloat16Replica(model or tiny.net(), precision="bfloat16")


def test_parameters_stay_exact_when_they_move() -> None:
    """The float32 values move, not their bfloat16 copies."""
    replica = made()
    before = replica.parameters.clone()
    assert (before.bfloat16().float() != before).any(), "some values do not fit into bfloat16"
    replica.rebind(parameters=torch.zeros(replica.length))
    assert torch.equal(replica.parameters, before)
    common = torch.full((replica.length,), 0.5)
    replica.rebind(parameters=common, adopt=True)
    assert replica.parameters is common and bool((common == 0.5).all())


def test_an_update_reaches_the_layers_before_the_next_pass_and_before_predicting() -> None:
    data = tiny.arrays()
    ids = np.arange(6)
    batch = _batch(data, ids)
    replica = made()
    before = replica.predict(batch)
    replica.parameters.zero_()
    assert bool((replica.predict(batch) == 0).all()) and bool((before != 0).any())
    assert replica.backward(batch, np.full(6, 1 / 6, np.float32)) == pytest.approx(np.log(3), rel=1e-3)


def _batch(data: object, ids: np.ndarray) -> object:
    from lockstep.engine.data.loader import Batch

    return Batch(data.images[ids], data.labels[ids], ids, 0)  # type: ignore[attr-defined]


def test_normalisation_layers_stay_in_float32() -> None:
    replica = made(tiny.normalised_net())
    kinds = {
        type(module).__name__: module.weight.dtype for module in replica.model.modules() if hasattr(module, "weight")
    }
    assert kinds == {"Conv2d": torch.bfloat16, "BatchNorm2d": torch.float32, "Linear": torch.bfloat16}


def test_several_workers_share_the_float32_parameters(tmp_path: Path) -> None:
    from lockstep.engine.launch import LAUNCHERS

    alone, together = tmp_path / "alone", tmp_path / "together"
    train(alone, precision="bfloat16", copies="avoided", steps=1)
    this = Job(
        use_case="own", strategy="own", launcher="threads", sync="shared_memory", workers=2, precision="bfloat16",
        copies="avoided", global_batch_size=8, steps=1, warmup_steps=0,
    )  # fmt: skip
    with LAUNCHERS["threads"](2) as team:
        team.run(this, Site(use_case=tiny.case(), checkpoint=str(together)))
    ends = [checkpoint.read(str(path))["parameters"] for path in (alone, together)]
    # Shares of a batch are rounded to bfloat16 apart: 0.4 % of an update of 5e-3; a lost sample would be 12 % of it.
    assert (ends[0] - ends[1]).abs().max() < 1e-4


def test_what_can_not_avoid_copies() -> None:
    with pytest.raises(ValueError, match="precision='float32' has no copies to avoid"):
        Bfloat16Replica(tiny.net())
    with pytest.raises(ValueError, match="DDPReplica would exchange them as such; use sync="):
        bfloat16_replica_class(DDPReplica)
    assert bfloat16_replica_class(TorchReplica) is Bfloat16Replica

"""Models of other kinds reach one worker's parameters, too: attention, recurrence, tied, unused, embedded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import tiny
from small_models import Attending, Embedded, Recurrent, Tied, Unused
from together import TOLERANCE, Teams, alone, small_job

WAYS = [("threads", "shared_memory"), ("processes", "allreduce")]


@pytest.mark.parametrize(("launcher", "sync"), WAYS)
@pytest.mark.parametrize("model", [Attending, Recurrent, Tied, Unused, Embedded])
def test_the_parameters_are_those_of_one_worker(
    teams: Teams, model: Callable[[], nn.Module], launcher: str, sync: str, tmp_path: Path
) -> None:
    case = tiny.case(model=model)
    expected = alone(case, tmp_path / "alone")
    got = teams.together(small_job(launcher=launcher, sync=sync, workers=2), case, tmp_path / "c")
    assert (got - expected).abs().max() < TOLERANCE
    torch.manual_seed(0)
    assert (expected - torch.cat([p.detach().flatten() for p in model().parameters()])).abs().max() > TOLERANCE


def test_batch_normalisation_depends_on_the_workers_and_on_nothing_else(teams: Teams, tmp_path: Path) -> None:
    """Statistics are those of each worker's share: two ways to share a batch alike are one training."""
    case = tiny.case(model=tiny.normalised_net)
    ways = [
        teams.together(small_job(launcher=launcher, sync=sync, workers=2), case, tmp_path / launcher)
        for launcher, sync in WAYS[:2]
    ]
    assert (ways[0] - ways[1]).abs().max() < TOLERANCE
    assert (ways[0] - alone(case, tmp_path / "alone")).abs().max() > 10 * TOLERANCE, "which lockstep.train warns of"


def test_dropout_of_an_lstm_depends_on_each_workers_share_and_on_nothing_else(teams: Teams, tmp_path: Path) -> None:
    """It can't be keyed by sample, which lockstep.train warns of, but by the samples of a share: two ways to share a
    batch alike are one training, which can be repeated, and other workers have other parameters."""
    case = tiny.case(model=functools.partial(Recurrent, 0.4))

    def trained(sync: str, **changes: int) -> torch.Tensor:
        job = small_job(launcher="processes", sync=sync, **({"workers": 2} | changes))
        return teams.together(job, case, tmp_path / f"{sync}-{job.workers}", draws=True)

    first = trained("shared_memory")
    assert (trained("allreduce") - first).abs().max() < TOLERANCE
    assert torch.equal(trained("shared_memory"), first)
    assert (trained("shared_memory", seed=1) - first).abs().max() > 10 * TOLERANCE
    assert (trained("shared_memory", workers=1) - first).abs().max() > 10 * TOLERANCE
    without = teams.together(
        small_job(launcher="processes", sync="shared_memory", workers=2), tiny.case(model=Recurrent), tmp_path / "none"
    )
    assert (without - first).abs().max() > 10 * TOLERANCE, "it drops something"

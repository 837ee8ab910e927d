"""Models of other kinds reach one worker's parameters, too: attention, recurrence, tied, unused, embedded."""

from __future__ import annotations

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

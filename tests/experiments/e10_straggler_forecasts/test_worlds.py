"""How long tasks take in rounds that wait for all, where credits run out, and in recorded runs with gaps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fake_forecasts import recorded
from lockstep.engine.delays import make_delays
from lockstep.engine.delays.credits import Credits
from lockstep.experiments.e10_straggler_forecasts import worlds
from lockstep.experiments.e10_straggler_forecasts.worlds import (
    JOBS,
    MICRO_BATCHES,
    STEPS,
    apart,
    earlier_worlds,
    recorded_worlds,
    simulated_world,
)


def test_all_begin_their_next_task_when_the_last_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise: worker 0 is three times as slow from 2.5 s on, so rounds end at 1, 2, 4 (0.5 + 3 x 0.5), 7 s."""
    monkeypatch.setattr(worlds, "NOISE", 0.0)
    world = simulated_world("bad_node:at=2.5", 2, 4, seed=0)
    assert world.seconds.tolist() == [[1, 1], [1, 1], [2, 1], [3, 1]]
    assert (world.work == 1).all() and not world.system


def test_work_varies_by_its_noise_and_a_seed_is_a_world() -> None:
    one, same, other = (simulated_world("none", 8, 300, seed) for seed in (0, 0, 1))
    assert np.array_equal(one.seconds, same.seconds) and not np.array_equal(one.seconds, other.seconds)
    assert np.log(one.seconds).std() == pytest.approx(worlds.NOISE, rel=0.1)
    assert np.allclose(one.seconds, one.work)


def test_credits_that_are_left_tell_when_a_worker_slows_down() -> None:
    """54 credits an hour, which lasts 54 s here: one for each second until none is left, and then work takes ten times
    as long."""
    drawn = make_delays("credits:spread=0,seconds=54", 2, seed=0)
    assert isinstance(drawn, Credits)
    assert drawn.left(0.0) == pytest.approx([30, 30])
    assert drawn.left(29.0) == pytest.approx([1, 1])
    assert drawn.left(31.0).tolist() == [0, 0]


def test_jobs_with_credits_follow_each_other_with_a_round_of_nobody_between_them() -> None:
    world = simulated_world("credits:seconds=90", 4, 160, seed=3)
    gaps = np.isnan(world.seconds).all(axis=1)
    assert gaps.sum() == JOBS - 1 and len(gaps) == 160 + JOBS - 1
    assert np.array_equal(np.isnan(world.system["credits"]).all(axis=1), gaps)
    first = np.flatnonzero(world.after_a_gap())
    assert first.tolist() == [21 * job for job in range(JOBS)]
    fresh, spent = world.system["credits"][first], world.system["credits"][first[1:] - 2]
    assert (fresh > 0).any() and (spent == 0).any(), "they run out, and the next job has its own"


def test_earlier_runs_are_other_worlds_without_their_gaps() -> None:
    found = earlier_worlds("credits:seconds=90", 4, 240, seed=0)
    assert len(found) == 4 and all(len(world.seconds) == 80 + JOBS - 1 for world in found)
    assert len({world.seconds[0, 0] for world in [*found, simulated_world("credits:seconds=90", 4, 80, 0)]}) == 5
    plain, told = found[0].runs(system=False), found[0].runs(system=True)
    assert [run.shape for run in plain] == [(10, 4, 1)] * JOBS and [run.shape for run in told] == [(10, 4, 2)] * JOBS
    assert np.isfinite(told).all() and np.array_equal(told[1][..., 0], found[0].seconds[11:21])


def test_parts_stand_apart() -> None:
    joined = apart([np.ones((2, 3)), np.zeros((1, 3))])
    assert joined[:, 0].tolist()[:2] == [1, 1] and np.isnan(joined[2]).all() and joined[3].tolist() == [0, 0, 0]


def test_a_recorded_run_is_a_world_for_each_stage_with_its_gaps(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    first, second = recorded_worlds(root, "AR", STEPS)
    assert first.seconds[:2].tolist() == [[10, 12], [12, 14]] and np.isnan(first.seconds[2]).all()
    assert first.seconds[3].tolist() == [20, 22] and (second.seconds[3] == [40, 42]).all()
    assert first.after_a_gap().tolist() == [True, False, False, True]
    batches = recorded_worlds(root, "AR", MICRO_BATCHES)[0]
    assert batches.after_a_gap().tolist() == [True, False, False] * 2 + [True, False]

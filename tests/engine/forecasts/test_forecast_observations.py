"""What all forecasters have in common: how they are told, asked, made and kept."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lockstep.engine.forecasts import FORECASTS, Forecast, make_forecast
from lockstep.engine.forecasts.scores import walk
from lockstep.engine.options import JobError

SMALL_LSTM = "lstm:hidden=4,window=6,batch=3,every=2"
KINDS = ["last", "mean:window=5", "median:window=4", "smoothing", "ar:order=2", "linear", SMALL_LSTM, "best", "oracle"]


def make(text: str, workers: int = 5, seed: int = 3) -> Forecast:
    return make_forecast(text, workers, seed, truth=lambda worker, task: 0.5 + worker + task % 3)


def rounds(count: int, workers: int = 5, missing: float = 0.2, seed: int = 7) -> np.ndarray:
    """Seconds per sample, [rounds, workers], some of them not seen."""
    random = np.random.default_rng(seed)
    seconds = np.exp(0.3 * random.standard_normal((count, workers)))
    return np.where(random.random(seconds.shape) < missing, np.nan, seconds)


def same(one: Any, other: Any) -> bool:
    """Bit for bit."""
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other, equal_nan=not isinstance(one, str))


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and plain(item) for name, item in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return isinstance(value, int | float | str) or (isinstance(value, np.ndarray) and value.dtype != object)


def test_the_kinds_here_are_all_there_are() -> None:
    assert {text.partition(":")[0] for text in KINDS} == set(FORECASTS)
    assert all(kind.does for kind in FORECASTS.values())


@pytest.mark.parametrize("text", KINDS)
def test_a_round_at_once_is_single_observations_in_worker_order_bit_for_bit(text: str) -> None:
    """Also where some workers wait already, so that the round reaches them in its middle."""
    single, vectorised = make(text), make(text)
    load = np.random.default_rng(1).random((30, 5))
    for task, row in enumerate(rounds(30)):
        if task % 4 == 1 and np.isfinite(row[3]):  # worker 3 is seen alone, a task ahead of its round
            for each in (single, vectorised):
                each.observe(3, 2 * task, 0.9, {"load": 0.5})
        vectorised.observe_round(row, 2 * task + 1, {"load": load[task]})
        for worker in np.flatnonzero(np.isfinite(row)):
            single.observe(int(worker), 2 * task + 1, float(row[worker]), {"load": float(load[task, worker])})
        if task % 3:
            assert same(single.predict((0.1, 0.5, 0.9)), vectorised.predict((0.1, 0.5, 0.9)))
            single.idle(1.0)
            vectorised.idle(1.0)
    assert same(single.state(), vectorised.state())


@pytest.mark.parametrize("text", KINDS)
def test_the_workers_of_a_round_may_be_at_different_tasks(text: str) -> None:
    """Those that rested have done fewer. Bug: they were seen one by one, 10 000 calls a round. Task 20 begins anew."""
    single, vectorised = make(text), make(text)
    for each in (single, vectorised):
        each.begins_anew = lambda task: task == 20
    tasks, loads = np.zeros(5, np.int64), np.random.default_rng(2).random((30, 5))
    for row, load in zip(rounds(30), loads, strict=True):
        vectorised.observe_round(row, tasks, {"load": load})
        for worker in np.flatnonzero(np.isfinite(row)):
            single.observe(int(worker), int(tasks[worker]), float(row[worker]), {"load": float(load[worker])})
        assert same(single.predict((0.1, 0.5, 0.9)), vectorised.predict((0.1, 0.5, 0.9)))
        tasks[np.isfinite(row)] += 1
    assert len(set(tasks.tolist())) > 1 and tasks.max() > 20
    assert same(single.state(), vectorised.state())


@pytest.mark.parametrize("text", KINDS)
def test_a_checkpoint_continues_bit_for_bit(text: str) -> None:
    """Taken while observations wait to be absorbed, and while the LSTM's next update is due."""
    straight, first = make(text), make(text)
    seconds, load = rounds(40), np.random.default_rng(1).random((40, 5))
    for task in range(23):
        for each in (straight, first):
            each.observe_round(seconds[task], task, {"load": load[task]})
            if task == 18:
                each.predict()
                each.idle(1.0)
    state = first.state()
    assert plain(state)
    second = make(text)
    second.load(state)
    for task in range(23, 40):
        for each in (straight, second):
            each.observe_round(seconds[task], task, {"load": load[task]})
            each.idle(1.0)
        first.observe_round(seconds[0], task + 50)  # the state is a copy: who goes on elsewhere changes nothing
        assert same(straight.predict((0.2, 0.5)), second.predict((0.2, 0.5)))
    assert same(straight.state(), second.state())


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"keeps .*_level.*but the state has .*_last"):
        make("smoothing").load(make("last").state())
    with pytest.raises(ValueError, match=r"its shape is \(5,\), and the state's is \(4,\)"):
        make("last").load(make("last", workers=4).state())
    with pytest.raises(ValueError, match="4 are there, and the state has 2"):
        make("best").load(make("best:of=last+ar").state())


@pytest.mark.parametrize("text", KINDS)
def test_what_comes_later_changes_no_forecast(text: str) -> None:
    """Two worlds that differ from round 20 on get the same forecasts up to and including that of round 20."""
    one = rounds(30, missing=0.1)
    other = one.copy()
    other[20:] *= np.random.default_rng(2).uniform(0.1, 10, other[20:].shape)
    said, also = walk(make(text), one, (0.5, 0.9)), walk(make(text), other, (0.5, 0.9))
    assert same(said[:21], also[:21])
    if text != "oracle":
        assert not same(said[21:], also[21:])


@pytest.mark.parametrize("text", [kind for kind in KINDS if kind != "oracle"])
def test_an_unseen_worker_gets_the_mean_of_the_others(text: str) -> None:
    forecast = make(text, workers=3)
    assert np.isnan(forecast.predict((0.5, 0.9))).all()
    forecast.observe(0, 0, 1.0)
    forecast.observe(2, 0, 3.0)
    said = forecast.predict()[:, 0]
    assert said[1] == pytest.approx((said[0] + said[2]) / 2, rel=1e-12)
    assert said[[0, 2]] == pytest.approx([1, 3]), "all begin with the last value"


@pytest.mark.parametrize("seconds", [math.nan, -1.0, 0.0, math.inf])
def test_impossible_seconds_are_refused_with_worker_and_task(seconds: float) -> None:
    forecast = make("last")
    with pytest.raises(ValueError, match=r"worker 2, task 4: .* seconds per sample are not possible"):
        forecast.observe(2, 4, seconds)
    row = np.array([1, np.nan, seconds, 1, -5.0])
    with pytest.raises(ValueError, match=r"worker [24], task 4: .* seconds per sample are not possible"):
        forecast.observe_round(row, 4)
    assert np.isnan(forecast.predict()).all(), "nothing of a refused round was taken"


def test_workers_tasks_shapes_and_quantiles_that_can_not_be() -> None:
    forecast = make("last")
    with pytest.raises(ValueError, match="worker 5 does not exist: there are 5"):
        forecast.observe(5, 0, 1.0)
    with pytest.raises(ValueError, match=r"that many seconds, not the shape \(4,\)"):
        forecast.observe_round(np.ones(4), 0)
    forecast.observe(1, 3, 1.0)
    for task in (3, 2, -1):
        with pytest.raises(ValueError, match=f"worker 1 can't have finished task {task} now: its last one was 3"):
            forecast.observe(1, task, 1.0)
    with pytest.raises(ValueError, match="worker 1 can't have finished task 3 now"):
        forecast.observe_round(np.ones(5), 3)
    with pytest.raises(ValueError, match="worker 1 can't have finished task 2 now"):
        forecast.observe_round(np.ones(5), np.array([3, 2, 4, 5, 6]))
    with pytest.raises(ValueError, match=r"one task or that many, not \(4,\)"):
        forecast.observe_round(np.ones(5), np.arange(4))
    for quantile in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            forecast.predict((0.5, quantile))
    for workers, seed in ((0, 0), (2, -1)):
        with pytest.raises(ValueError, match="is not possible; give a whole number of at least"):
            make_forecast("last", workers, seed)


def test_numbers_of_the_system_are_named_by_the_first_observation() -> None:
    forecast = make("linear")
    forecast.observe(0, 0, 1.0, {"load": 0.5, "credits": 3.0})
    forecast.observe(1, 0, 1.0, {"load": math.nan})
    forecast.observe(2, 0, 1.0)
    with pytest.raises(ValueError, match="system state memory: the first observation named credits, load"):
        forecast.observe(3, 0, 1.0, {"memory": 1.0})
    with pytest.raises(ValueError, match="system state load=inf is not possible"):
        forecast.observe(3, 0, 1.0, {"load": math.inf})
    with pytest.raises(ValueError, match="system state load of worker 4 is infinite"):
        forecast.observe_round(np.ones(5), 1, {"load": np.array([1, 1, 1, 1, math.inf])})
    with pytest.raises(ValueError, match="system state load: 5 workers need that many"):
        forecast.observe_round(np.ones(5), 1, {"load": np.ones(4)})
    assert np.isfinite(forecast.predict()).all()


def test_texts_that_are_refused() -> None:
    with pytest.raises(JobError, match="'guess' does not exist; there are: ar, best, last"):
        make("guess")
    with pytest.raises(JobError, match="window"):
        make("mean:window=0")
    with pytest.raises(JobError, match="none of them is best"):
        make("best:of=last+best")
    with pytest.raises(JobError, match="named once"):
        make("best:of=last+last")
    with pytest.raises(JobError, match="'nobody' does not exist"):
        make("best:of=last+nobody")
    with pytest.raises(ValueError, match="the forecast 'oracle' needs truth"):
        make_forecast("oracle", 2, 0)


def test_only_the_lstm_imports_torch_and_only_when_it_is_used() -> None:
    code = (
        "import sys\n"
        "from lockstep.engine.forecasts import make_forecast, scores, sequence_model\n"
        "for text in ('best', 'linear', 'lstm'):\n"
        "    make_forecast(text, 2, 0)\n"
        "forecast = make_forecast('best', 2, 0); forecast.observe(0, 0, 1.0); forecast.predict((0.5, 0.9))\n"
        "assert 'torch' not in sys.modules and 'sklearn' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""The LSTM as a forecaster of completion times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.engine.forecasts import make_forecast
from lockstep.engine.forecasts.lstm import MOST_DUE, UPDATE_SECONDS, Lstm
from lockstep.engine.forecasts.scores import EARLY, mean_absolute_error, onsets, walk


def lstm(text: str = "lstm", workers: int = 8, seed: int = 0) -> Lstm:
    forecast = make_forecast(text, workers, seed)
    assert isinstance(forecast, Lstm)
    return forecast


def periodic(rounds: int, seed: int, workers: int = 8, period: float = 20.0, share: float = 0.25) -> np.ndarray:
    """A barrier each round; a worker's clock is slow, 3 times, for a share of the period, in a phase of its own.

    [rounds, workers] seconds for one second of work with 5 % of noise.
    """
    random = np.random.default_rng(seed)
    phase, clock = random.uniform(0, period, workers), 0.0
    seconds = np.empty((rounds, workers))
    for row in range(rounds):
        work = np.exp(0.05 * random.standard_normal(workers))
        seconds[row] = [work_takes(w, clock + at, period, share) for w, at in zip(work, phase, strict=True)]
        clock += seconds[row].max()
    return seconds


def work_takes(work: float, begin: float, period: float, share: float) -> float:
    """Through slow and fast times, one after the other."""
    now = begin
    while work > 1e-9:
        slow = now % period < share * period
        left = (share if slow else 1) * period - now % period + 1e-9
        factor = 3.0 if slow else 1.0
        took = min(work * factor, left)
        now, work = now + took, work - took / factor
    return now - begin


def drift(rounds: int, seed: int, workers: int = 8) -> np.ndarray:
    """A random walk of 1 % a round under 5 % of noise."""
    random = np.random.default_rng(seed)
    walks = np.cumsum(0.01 * random.standard_normal((rounds, workers)), axis=0)
    return np.exp(walks + 0.05 * random.standard_normal((rounds, workers)))


def below(seconds: np.ndarray, text: str, forecasts: np.ndarray) -> float:
    """How far the error is below that of the forecaster `text`, from round 60 on."""
    other = walk(make_forecast(text, seconds.shape[1], 0), seconds)[..., 0]
    return 1 - mean_absolute_error(seconds[60:], forecasts[60:]) / mean_absolute_error(seconds[60:], other[60:])


@pytest.mark.slow
def test_periodic_delays_are_learned_online() -> None:
    """Over two worlds: 35 % below the last value, 15 % below autoregression, 0.4 of onsets, and few false alarms."""
    gains = []
    for seed in (0, 1):
        seconds = periodic(1000, seed)
        said = walk(lstm(seed=seed), seconds)[..., 0]
        coming = onsets(seconds[60:], said[60:])
        gains.append([below(seconds, "last", said), below(seconds, "ar", said), coming.recall, -coming.chance])
    last, ar, recall, chance = np.mean(gains, axis=0)
    assert last >= 0.35
    assert ar >= 0.15
    assert recall >= 0.4
    assert -chance <= 0.05


def test_drift_is_followed_with_less_noise_than_the_last_value() -> None:
    seconds = drift(400, 0)
    assert below(seconds, "last", walk(lstm(), seconds)[..., 0]) >= 0.08


def test_training_beforehand_helps_where_there_is_no_history() -> None:
    """Rounds 5 to 60 of delays whose period was not in the training; weights travel by file."""
    runs = [periodic(150, 50 + number, period=10 + 7.0 * number) for number in range(6)]
    before = lstm()
    losses = before.pretrain(runs, seed=1, steps=150)
    assert np.mean(losses[-20:]) < 0.8 * np.mean(losses[:20])
    seconds = periodic(60, 0)
    cold, warm = walk(lstm(), seconds)[..., 0], walk(before, seconds)[..., 0]
    assert mean_absolute_error(seconds[EARLY], warm[EARLY]) <= 0.85 * mean_absolute_error(seconds[EARLY], cold[EARLY])


def test_the_same_seed_gives_the_same_forecasts_and_another_seed_others() -> None:
    seconds = drift(60, 0, workers=3)
    one, same, other = (walk(lstm("lstm:hidden=8", 3, seed), seconds, (0.5, 0.9)) for seed in (4, 4, 5))
    assert np.array_equal(one, same, equal_nan=True)
    assert not np.array_equal(one, other, equal_nan=True)


def test_weights_travel_by_npz(tmp_path: Path) -> None:
    """Bit for bit, without pickle, and into an LSTM of the same size only."""
    seconds = drift(40, 0, workers=3)
    taught, path = lstm("lstm:hidden=8", 3), tmp_path / "weights.npz"
    with pytest.raises(ValueError, match="no weights before"):
        taught.save_weights(path)
    taught.pretrain([seconds], seed=0, steps=5)
    taught.save_weights(path)
    with np.load(path, allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)
    reader = lstm("lstm:hidden=8", 3)
    reader.read_weights(path)
    assert np.array_equal(walk(taught, seconds), walk(reader, seconds), equal_nan=True)
    with pytest.raises(ValueError, match="before the first observation"):
        reader.read_weights(path)
    with pytest.raises(ValueError, match="does not fit"):
        lstm("lstm:hidden=9", 3).read_weights(path)


def test_it_trains_when_there_is_time_and_never_when_there_is_none() -> None:
    """An update falls due every 4th round, at most MOST_DUE wait, and each takes UPDATE_SECONDS of the budget."""
    forecast = lstm(workers=2)

    def updates() -> int:
        return forecast.state()["_updates"]

    for task, row in enumerate(drift(64, 0, workers=2)):
        forecast.observe_round(row, task)
        forecast.predict()
        forecast.idle(0.9 * UPDATE_SECONDS)
    assert updates() == 0
    forecast.idle(2.5 * UPDATE_SECONDS)
    assert updates() == 2
    forecast.idle(float("inf"))
    assert updates() == MOST_DUE
    forecast.idle(float("inf"))
    assert updates() == MOST_DUE


def test_what_it_can_not_learn_from_is_refused() -> None:
    with pytest.raises(ValueError, match="run 1 has seconds that are not finite"):
        lstm().pretrain([np.ones((5, 2)), np.array([[1.0, 0.0]])], seed=0)
    with pytest.raises(ValueError, match="all with as many numbers"):
        lstm().pretrain([np.ones((5, 2)), np.ones((5, 2, 3))], seed=0)
    with pytest.raises(ValueError, match="all with as many numbers"):
        lstm().pretrain([np.ones(5)], seed=0)
    forecast = lstm("lstm:hidden=4", 2)
    forecast.pretrain([np.ones((5, 2, 3))], seed=0, steps=1)
    with pytest.raises(ValueError, match="once, and before"):
        forecast.pretrain([np.ones((5, 2))], seed=0)
    forecast.observe(0, 0, 1.0)
    with pytest.raises(ValueError, match="learned from 2 numbers of the system's state; 0 come now"):
        forecast.predict()

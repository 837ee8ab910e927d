"""The LSTM that learns synthetic curves beforehand, and where it is kept."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.tuning.forecasting import PriorSettings, Recalibration, in_units, pretraining
from lockstep.tuning.forecasting.lstm import CurveLstm, LstmNotRecalibrated
from lockstep.tuning.forecasting.network import one_thread
from lockstep.tuning.prior import draw_curves

TAUGHT = PriorSettings(steps=150, batch=64, least_epochs=12, most_epochs=20)
TINY = PriorSettings(steps=3, batch=8, most_epochs=8, hidden=4)
EPOCHS = 16


@pytest.fixture(scope="module")
def lstm() -> CurveLstm:
    return LstmNotRecalibrated(TAUGHT)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pretraining, "_here", {})
    return tmp_path / "cache" / "curves"


def test_it_beats_the_last_value_and_the_best_so_far_and_knows_how_sure_it_is(lstm: CurveLstm) -> None:
    """On curves of studies that it has not learned from. Its full pre-training is ten times as long."""
    unseen = np.stack(draw_curves(600, EPOCHS, 500, seed=77))
    middle, scale = lstm.raw(unseen, EPOCHS)
    for epoch in (1, 2, 4, 8):
        miss = np.abs(unseen[:, -1] - middle[:, epoch - 1])
        stays = np.abs(unseen[:, -1] - unseen[:, epoch - 1])
        best = np.abs(unseen[:, -1] - unseen[:, :epoch].max(axis=1))
        assert miss.mean() < 0.85 * min(stays.mean(), best.mean()), epoch
        held = np.mean(miss <= np.log(10) * scale[:, epoch - 1])
        assert 0.80 <= held <= 0.98, epoch


def test_a_study_teaches_it_its_offset() -> None:
    """All curves of this study gain twice as much late as usual: recalibrated forecasts of others are nearer."""
    random = np.random.default_rng(0)
    epochs = np.arange(1, EPOCHS + 1)
    levels, noise = 0.5 + 0.05 * random.standard_normal((24, 1)), 0.01 * random.random((24, EPOCHS))
    jumps = levels + 0.25 * (epochs > 10) + noise
    plain, taught = CurveLstm(TAUGHT), CurveLstm(TAUGHT)
    taught.fit(list(jumps[:16]), seed=0)
    misses = [np.mean([abs(f.predict(c[:4], 12).mean - c[-1]) for c in jumps[16:]]) for f in (plain, taught)]
    assert misses[1] < 0.5 * misses[0]
    few = CurveLstm(TAUGHT)
    few.fit(list(jumps[:1]), seed=0)
    moved = [abs(f.predict(jumps[20, :4], 12).mean - plain.predict(jumps[20, :4], 12).mean) for f in (few, taught)]
    assert 0 < moved[0] < 0.5 * moved[1]


def test_the_recalibrated_intervals_of_a_study_hold() -> None:
    """Of other settings of the same study, after 20 finished ones, at early and late epochs."""
    lstm, rule, held = CurveLstm(TAUGHT), Recalibration(), []
    for seed in range(15):
        study = np.stack(draw_curves(40, EPOCHS, 400, seed=1000 + seed, studies=1))
        middle, scale = lstm.raw(study, EPOCHS)
        units = in_units(study, middle, scale)
        offset, factor = rule.tables(units[:20])
        held.append(np.abs(units[20:] - offset) <= np.log(10) * factor)
    by_epoch = np.concatenate(held).mean(axis=0)
    assert all(0.82 <= by_epoch[epoch - 1] <= 0.98 for epoch in (1, 2, 4, 8))


def test_the_network_has_some_five_thousand_numbers() -> None:
    assert CurveLstm(PriorSettings(steps=1, batch=2)).model.parameters == 5198


def test_the_same_settings_teach_the_same_network_whatever_torch_drew(cache: Path) -> None:
    threads, before = torch.get_num_threads(), torch.get_rng_state()
    one = pretraining.taught(TINY).arrays()
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    same, other = pretraining.taught(TINY).arrays(), pretraining.taught(replace(TINY, seed=1))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["change.bias"], other.arrays()["change.bias"])


def test_it_is_taught_once_and_again_where_its_file_is_damaged(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lessons = []
    teach = pretraining.taught
    monkeypatch.setattr(pretraining, "taught", lambda settings: lessons.append(settings) or teach(settings))
    first = pretraining.pretrained(TINY).arrays()
    again = pretraining.pretrained(TINY).arrays()
    assert len(lessons) == 1 and all(np.array_equal(first[name], again[name]) for name in first)
    (kept,) = cache.glob("*.npz")
    whole = kept.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damage in (b"", whole[: len(whole) // 2], bytes(flipped), b"not an archive at all"):
        lessons.clear()
        kept.write_bytes(damage)
        anew = pretraining.pretrained(TINY).arrays()
        assert len(lessons) == 1 and all(np.array_equal(first[name], anew[name]) for name in first)
        assert kept.read_bytes() == whole
    pretraining.pretrained(replace(TINY, rate=0.02))
    assert len(list(cache.glob("*.npz"))) == 2, "other settings, another file"


def test_of_two_at_once_one_teaches_and_the_other_waits(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lessons, begun, go_on = [], threading.Event(), threading.Event()
    teach = pretraining.taught

    def slow(settings: PriorSettings) -> object:
        lessons.append(settings)
        begun.set()
        go_on.wait(30)
        return teach(settings)

    monkeypatch.setattr(pretraining, "taught", slow)
    models: list = []
    askers = [threading.Thread(target=lambda: models.append(pretraining.pretrained(TINY))) for _ in range(2)]
    for asker in askers:
        asker.start()
    assert begun.wait(30)
    go_on.set()
    for asker in askers:
        asker.join(30)
    assert len(lessons) == 1 and len(models) == 2
    one, other = (model.arrays() for model in models)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then this process keeps what it taught."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(pretraining, "_here", {})
    first = pretraining.pretrained(TINY)
    monkeypatch.setattr(pretraining, "taught", lambda settings: pytest.fail("taught twice"))
    assert np.array_equal(first.arrays()["change.bias"], pretraining.pretrained(TINY).arrays()["change.bias"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 0}, "steps=0 is not possible"),
        ({"least_epochs": 1}, "least_epochs=1 is not possible; give a whole number of at least 2"),
        ({"least_epochs": 20, "most_epochs": 10}, "least_epochs=20 is above most_epochs=10"),
        ({"rate": float("nan")}, "rate=nan is not possible"),
    ],
)
def test_impossible_settings(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PriorSettings(**change)

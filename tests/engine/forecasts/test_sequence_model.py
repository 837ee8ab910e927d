"""The LSTM of sequences of any kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep.engine.forecasts.sequence_model import SequenceModel, SequenceOptions


def curves(count: int, seed: int) -> list[np.ndarray]:
    """Saturating curves of 3 to 20 steps: 1 - exp(-t / speed), with a little noise."""
    random = np.random.default_rng(seed)
    lengths, speeds = random.integers(3, 21, count), random.uniform(2, 6, count)
    clean = [1 - np.exp(-np.arange(1, n + 1) / speed) for n, speed in zip(lengths, speeds, strict=True)]
    return [curve + 0.01 * random.standard_normal(len(curve)) for curve in clean]


SHORT = SequenceOptions(horizon=3, hidden=16, steps=150, window=20)


def test_untrained_it_forecasts_the_last_value_for_all_steps() -> None:
    model = SequenceModel(SequenceOptions(inputs=2, horizon=4), seed=1)
    mean, spread = model.predict([[0.1, 9], [0.7, 8]])
    assert mean == pytest.approx([0.7] * 4, rel=1e-6)
    assert (spread > 0).all()
    assert SequenceModel(SequenceOptions(inputs=6)).parameters == 4 * 32 * (6 + 32 + 2) + 2 * (32 + 6 + 1)


def test_it_learns_curves_and_knows_how_sure_it_is() -> None:
    """Three steps ahead it beats the last value by half, and two of three outcomes lie within a standard deviation."""
    model = SequenceModel(SHORT)
    losses = model.fit(curves(200, 0), seed=0)
    assert np.mean(losses[-20:]) < np.mean(losses[:20]) - 0.5
    unseen = [curve for curve in curves(80, 1) if len(curve) >= 7]
    said = [model.predict(curve[:4]) for curve in unseen]
    miss = np.array([np.abs(mean - curve[4:7]) for (mean, _), curve in zip(said, unseen, strict=True)])
    stays = np.array([np.abs(curve[3] - curve[4:7]) for curve in unseen])
    assert (miss.mean(axis=0) <= 0.5 * stays.mean(axis=0)).all()
    within = np.mean(miss <= np.array([spread for _, spread in said]))
    assert 0.55 <= within <= 0.95, "0.76 of Laplace's distribution"


def test_step_by_step_is_the_prefix_at_once() -> None:
    """The memory that `step` hands out is all that a next step needs."""
    model = SequenceModel(SequenceOptions(inputs=1, horizon=3, hidden=16, steps=5))
    model.fit(curves(10, 0), seed=0)
    curve = curves(1, 3)[0]
    hidden = (np.zeros((2, 16), np.float32), np.zeros((2, 16), np.float32))
    for value in curve:
        mean, spread, hidden = model.step(np.array([[value], [0.5]]), hidden)
    at_once = model.predict(curve)
    assert mean[0] == pytest.approx(at_once[0], rel=1e-5)
    assert spread[0] == pytest.approx(at_once[1], rel=1e-5)
    means, spreads = model.every_step(np.stack([curve, curve])[..., None])
    assert means.shape == (2, len(curve), 3)
    assert means[1, -1] == pytest.approx(at_once[0], rel=1e-5)
    assert spreads[0, 3] == pytest.approx(model.predict(curve[:4])[1], rel=1e-5)


def test_same_seed_same_model_and_the_process_generator_untouched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    models = [SequenceModel(SequenceOptions(hidden=8, steps=4), seed) for seed in (1, 1, 2)]
    for model in models:
        model.fit(curves(6, 0), seed=3)
    one, same, other = (model.arrays() for model in models)
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["lstm.weight_hh_l0"], other["lstm.weight_hh_l0"])
    assert torch.equal(before, torch.get_rng_state())


def test_a_file_holds_all_that_goes_on(tmp_path: Path) -> None:
    """Also what Adam remembers: both are taught further, and stay equal to the bit."""
    model, path = SequenceModel(SequenceOptions(hidden=8, steps=6)), tmp_path / "model.npz"
    model.fit(curves(6, 0), seed=0)
    model.save(path)
    again = SequenceModel.read(path)
    assert again.options == model.options
    for each in (model, again):
        each.fit(curves(6, 1), seed=1)
    one, other = model.arrays(), again.arrays()
    assert sorted(one) == sorted(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_files_and_weights_of_something_else_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(ValueError, match=r"other\.npz holds no sequence model"):
        SequenceModel.read(tmp_path / "other.npz")
    with pytest.raises(ValueError, match=r"another model: lstm.weight_ih_l0 is \(32, 1\), not \(36, 1\)"):
        SequenceModel(SequenceOptions(hidden=9)).restore(SequenceModel(SequenceOptions(hidden=8)).arrays())


def test_what_is_not_finite_cuts_a_sequence_and_says_so() -> None:
    whole, cut = SequenceModel(SHORT), SequenceModel(SHORT)
    curve = curves(1, 3)[0]
    with pytest.warns(UserWarning, match="the prefix is cut at step 2 of"):
        said = cut.predict([*curve[:2], np.nan, *curve[2:]])
    assert np.array_equal(said[0], whole.predict(curve[:2])[0])
    with pytest.warns(UserWarning, match="sequence 1 is cut at step 3 of 4"):
        cut.fit([curve, [*curve[:3], np.inf]], seed=0)
    whole.fit([curve, curve[:3]], seed=0)
    assert np.array_equal(whole.predict(curve)[0], cut.predict(curve)[0])


def test_sequences_of_any_length_but_nothing_to_learn_from_or_to_forecast_from() -> None:
    model = SequenceModel(SequenceOptions(hidden=4, steps=2))
    assert len(model.fit([[0.5], [0.1, 0.2], np.linspace(0, 1, 200)], seed=0)) == 2
    assert np.isfinite(model.predict([0.5])[0]).all()
    with pytest.raises(ValueError, match="none of 2 sequences has two finite steps"):
        model.fit([[0.5], [0.7]], seed=0)
    with pytest.raises(ValueError, match="no finite step"):
        model.predict([])
    with pytest.raises(ValueError, match=r"the prefix has the shape \(2, 3\); give \[steps, 1\]"):
        model.predict(np.ones((2, 3)))


def test_impossible_options() -> None:
    with pytest.raises(ValueError, match="hidden=0 is not possible"):
        SequenceOptions(hidden=0)

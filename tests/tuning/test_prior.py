"""Synthetic learning curves."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.tuning.prior import KINDS, draw_curves

EPOCHS = 30


def of_kind(kind: str, images: int = 100_000, count: int = 200) -> np.ndarray:
    return np.stack(draw_curves(count, EPOCHS, images, seed=1, kinds=[kind]))


@pytest.mark.parametrize("epochs", [1, 2, 7, 60])
def test_curves_are_scores_of_that_length(epochs: int) -> None:
    curves = draw_curves(300, epochs, images=50, seed=0)
    assert [curve.shape for curve in curves] == [(epochs,)] * 300
    every = np.stack(curves)
    assert np.isfinite(every).all() and every.min() >= 0 and every.max() <= 1


def test_the_seed_decides() -> None:
    one, same, other = (np.stack(draw_curves(20, EPOCHS, 400, seed)) for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_the_kinds_run_as_they_are_called() -> None:
    """By the median curve, or the share of curves that do what their name says."""
    for kind in ("power", "exponential"):
        rising = of_kind(kind)
        assert np.median(rising[:, -1] - rising[:, 0]) > 0.02
        assert np.mean(rising[:, -1] >= rising[:, 0]) > 0.85
    never = of_kind("never")
    assert np.median(np.ptp(np.sort(never)[:, 5:-5], axis=1)) < 0.1
    late = of_kind("late")
    assert np.median(late[:, 10:] - late[:, :1]) > np.median(late[:, 1:2] - late[:, :1]) + 0.05
    peak = of_kind("peak")
    assert np.mean(peak.max(axis=1) > peak[:, -1] + 0.01) > 0.8
    collapse = of_kind("collapse")
    assert np.mean((collapse[:, 1:] - collapse[:, :-1]).min(axis=1) < -0.1) > 0.6


def test_noise_is_that_of_so_many_images() -> None:
    """Where only the images differ, accuracies lie apart by the binomial's standard deviation."""
    few, many = of_kind("never", images=100), of_kind("never", images=1_000_000)
    steps = [np.median(np.abs(np.diff(curves, axis=1)).mean(axis=1)) for curves in (few, many)]
    assert steps[0] > 5 * steps[1]
    counted = np.isclose(few * 100, np.rint(few * 100)).all(axis=1)
    assert 0.3 < counted.mean() < 0.7, "half of the studies measure accuracy, a multiple of 1 / images"


def test_the_settings_of_a_study_are_alike() -> None:
    """In one study first scores and ends differ less than between studies."""

    def apart(studies: int | None) -> float:
        sets = [np.stack(draw_curves(40, EPOCHS, 1000, seed, studies=studies, kinds=["power"])) for seed in range(20)]
        return float(np.mean([curves[:, -1].std() for curves in sets]))

    assert apart(1) < 0.7 * apart(None)


def test_shares_of_kinds_are_shares() -> None:
    assert sum(kind.share for kind in KINDS.values()) == pytest.approx(1)
    assert set(KINDS) == {"power", "exponential", "late", "never", "peak", "collapse"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": 0}, "count=0 is not possible"),
        ({"epochs": 0}, "epochs=0 is not possible"),
        ({"images": 0}, "images=0 is not possible"),
        ({"seed": -1}, "seed=-1 is not possible"),
        ({"studies": 0}, "studies=0 is not possible"),
        ({"kinds": []}, "none is named; there are: power"),
        ({"kinds": ["power", "spiral"]}, "'spiral' does not exist; there are: power"),
    ],
)
def test_impossible_curves(change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        draw_curves(**({"count": 3, "epochs": 5, "images": 100, "seed": 0} | change))

"""An interval of 95 % is as wide as it says: neither one of 90 % nor one of 99 %."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.analysis.statistics import bootstrap_interval


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    """Of many numbers: 1.96 standard errors on both sides. With 90 % they would be 1.64, with 99 % 2.58."""
    sample = np.random.default_rng(3).normal(5.0, 2.0, size=400)
    error = sample.std() / np.sqrt(sample.size)
    low, high = bootstrap_interval(sample, np.mean)
    assert low == pytest.approx(sample.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(sample.mean() + 1.96 * error, abs=0.1 * error)


def test_it_holds_the_true_median_as_often_as_it_says() -> None:
    """Of 400 samples of 25 numbers; the bootstrap of a median is a little too narrow or too wide, but never by much."""
    dice = np.random.default_rng(4)
    samples = dice.lognormal(0.0, 0.5, size=(400, 25))
    held = [low <= 1.0 <= high for low, high in (bootstrap_interval(sample, n=1000) for sample in samples)]
    assert 0.92 < np.mean(held) < 0.985

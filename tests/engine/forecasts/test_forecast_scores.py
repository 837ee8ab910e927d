"""Scores of forecasts, by worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep.engine.forecasts import make_forecast, scores

NAN = float("nan")


def test_mean_absolute_error_is_over_what_has_both() -> None:
    """|1 - 2| = 1 and |4 - 1| = 3; the others lack a time or a forecast."""
    assert scores.mean_absolute_error([[1, NAN], [4, 2]], [[2, 1], [1, NAN]]) == 2
    assert math.isnan(scores.mean_absolute_error([[NAN]], [[1.0]]))
    with pytest.raises(ValueError, match=r"\(1, 1\) and forecasts of \(2, 1\)"):
        scores.mean_absolute_error([[1.0]], [[1.0], [1.0]])


def test_early_is_rounds_5_to_60_and_later_the_rest() -> None:
    """An error of 9 in the first five rounds counts nowhere, of 2 to round 60, of 1 after it."""
    seconds = np.ones((100, 2))
    forecasts = seconds + np.repeat([9.0, 2.0, 1.0], [5, 55, 40])[:, None]
    assert scores.mean_absolute_error(seconds[scores.EARLY], forecasts[scores.EARLY]) == 2
    assert scores.mean_absolute_error(seconds[scores.LATER], forecasts[scores.LATER]) == 1


def test_the_median_of_peers_leaves_the_worker_out() -> None:
    """Of 1 2 3 10 the first one's peers are 2 3 10; of 5 and 7 each is the other's; nobody is one's own."""
    assert scores.peers_median([[1, 2, 3, 10]]).tolist() == [[3, 3, 2, 2]]
    row = scores.peers_median([[5, NAN, 7, NAN]])[0]
    assert row.tolist() == [7, 6, 5, 6]
    assert np.isnan(scores.peers_median([[5.0, NAN]])[0, 0])


def test_the_median_of_peers_by_its_definition() -> None:
    random = np.random.default_rng(0)
    values = np.round(random.uniform(1, 4, (40, 7)))  # with ties
    values[random.random(values.shape) < 0.3] = NAN
    found = scores.peers_median(values)
    for row, medians in zip(values, found, strict=True):
        for worker, median in enumerate(medians):
            peers = np.delete(row, worker)
            peers = peers[np.isfinite(peers)]
            assert median == np.median(peers) if peers.size else np.isnan(median)


def test_detection_by_counting() -> None:
    """Peers of each worker have the median 1. Stragglers: (0, 2), (1, 2), (2, 0). Alarms: (1, 2), (2, 0), (2, 1)."""
    seconds = np.array([[1, 1, 2, 1], [1, 1, 2, 1], [2, 1, 1, 1]], float)
    forecasts = np.array([[1, 1, 1, 1], [1, 1, 3, 1], [1.6, 1.7, 1, 1]], float)
    found = scores.detection(seconds, forecasts)
    assert found.base_rate == 3 / 12
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.f1 == pytest.approx(2 / 3)
    # Ranked by forecast over the peers' median: 3 hits, 1.7 misses, 1.6 hits, then seven alike with one straggler, and
    # two whose peers are forecast to be slower. The area is the sum of (gain in recall) x precision.
    assert found.average_precision == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 3 + 1 / 3 * 3 / 10)


def test_detection_without_alarms_stragglers_or_anything() -> None:
    quiet = scores.detection(np.ones((2, 3)), np.ones((2, 3)))
    assert quiet.base_rate == 0
    assert all(math.isnan(value) for value in (quiet.precision, quiet.recall, quiet.f1, quiet.average_precision))
    assert math.isnan(scores.detection(np.full((2, 3), NAN), np.ones((2, 3))).base_rate)


def test_onsets_by_counting() -> None:
    """Worker 0 becomes a straggler in rounds 2 and 6, and is one until 3 and 6.

    Alarms stand in rounds 1, 2 and 3, so the first onset was forecast with a lead of 2 rounds and the second one was
    not: recall 1/2. Onsets could have been in 4 rounds of worker 0 (1, 2, 5 and 6) and 6 each of the others. In 14 of
    these was none, and of those only round 1 of worker 0 has an alarm.
    """
    seconds, forecasts = np.ones((7, 3)), np.ones((7, 3))
    seconds[[2, 3, 6], 0] = 2
    forecasts[[1, 2, 3], 0] = 2
    found = scores.onsets(seconds, forecasts)
    assert (found.count, found.recall, found.lead_rounds) == (2, 0.5, 2)
    assert found.chance == 1 / 14


def test_the_last_value_has_a_high_f1_and_sees_no_onset() -> None:
    """On states that stay for long, with the future neither known nor guessed."""
    random = np.random.default_rng(1)
    slow = np.zeros((500, 8), bool)
    for row in range(1, 500):
        slow[row] = np.where(slow[row - 1], random.random(8) > 0.05, random.random(8) < 0.01)
    seconds = np.where(slow, 3.0, 1.0)
    said = scores.walk(make_forecast("last", 8, 0), seconds)[..., 0]
    assert scores.detection(seconds, said).f1 > 0.9
    found = scores.onsets(seconds, said)
    assert found.count > 20
    assert found.recall == 0
    assert math.isnan(found.lead_rounds)


def test_an_onset_needs_two_rounds_in_a_row_and_a_time_that_rose() -> None:
    """Worker 0 was not seen in the round before; worker 3 becomes one because its peers got faster."""
    seconds = np.array([[NAN, 1, 1, 2.8, 2], [3, 1, 1, 2.7, 1]])
    assert scores.stragglers(seconds)[1].tolist() == [True, False, False, True, False]
    assert scores.onsets(seconds, np.ones((2, 5))).count == 0


def test_calibration_by_counting() -> None:
    """Times 1 to 4: one at or below 1.5, three at or below 3, and one has no forecast of the second quantile."""
    forecasts = np.broadcast_to([1.5, 3.0], (4, 1, 2)).copy()
    assert scores.calibration([[1], [2], [3], [4]], forecasts).tolist() == [0.25, 0.75]
    forecasts[3, 0, 1] = NAN
    assert scores.calibration([[1], [2], [3], [4]], forecasts).tolist() == [0.25, 1]


def test_a_walk_asks_before_it_tells() -> None:
    said = scores.walk(make_forecast("last", 2, 0), [[1, 2], [3, NAN], [5, 6]])[..., 0]
    assert np.isnan(said[0]).all()
    assert said[1:].tolist() == [[1, 2], [3, 2]]

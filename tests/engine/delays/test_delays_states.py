"""States: how often and how long, and that work is integrated over them exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from lockstep.engine.delays import KINDS, Delays, make_delays, timeline
from lockstep.engine.delays.states import TwoStates

LIKELY = 1e-3
TINY = 1e-7  # seconds of work: what it takes shows the factor of a moment


def factors(delays: Delays, worker: int | np.ndarray, times: np.ndarray, messages: bool = False) -> np.ndarray:
    """The factor of a worker at these times; wrong within TINY before a switch."""
    ends = (delays.message_ends if messages else delays.ends)(worker, 0, times, TINY)
    return np.round((ends - times) / TINY, 3)


STATES = (
    "markov:enter=0.5,leave=1", "markov:seconds=0.1", "periodic:period=2", "periodic:period=0.3,share=0.7",
    "drift:levels=4,seconds=0.3", "groups:size=2,enter=1,leave=1", "decoding:enter=1,leave=1", "bad_node:at=3",
    "credits:seconds=12", "link:enter=1,leave=1",
)  # fmt: skip


@pytest.mark.parametrize("text", STATES)
def test_work_is_what_the_factors_let_through(text: str) -> None:
    """From start to end, the integral of 1 / factor over the clock is the work; here by the rectangle rule."""
    delays = make_delays(text, 3, seed=2)
    messages = text.startswith("link")
    step = 1e-3
    for worker, start, work in ((0, 0.0, 7.0), (1, 1.234, 3.0), (2, 5.5, 0.4), (2, 20.1, 4.0)):
        end = (delays.message_end if messages else delays.end)(worker, 0, start, work)
        middles = np.arange(start + step / 2, end, step)
        shown = factors(delays, worker, middles, messages)
        switches = np.count_nonzero(np.diff(shown))
        assert (step / shown).sum() == pytest.approx(work, abs=step * (switches + 1) + 1e-6)


@pytest.mark.parametrize(("enter", "leave"), [(0.05, 0.2), (1.0, 1.0), (2.0, 0.5)])
def test_a_markov_worker_is_slow_for_its_share_of_the_time(enter: float, leave: float) -> None:
    """64 workers, 1000 correlation times 1 / (enter + leave); the mean over T has the variance 2 var / (T rate)."""
    delays = make_delays(f"markov:slow=2,enter={enter},leave={leave}", 64, seed=0)
    rate, share = enter + leave, enter / (enter + leave)
    times = np.arange(0.0, 1000 / rate, 0.2 / rate)[:, None]
    slow = factors(delays, np.arange(64), times) > 1.5
    deviation = np.sqrt(2 * share * (1 - share) / (64 * 1000))
    assert slow.mean() == pytest.approx(share, abs=4 * deviation)
    assert slow[0].mean() == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 64)), "from the beginning"


def test_markov_times_are_exponential_across_windows() -> None:
    states = TwoStates(200, seed=1, slow=3.0, fast_seconds=4.0, slow_seconds=1.0)
    durations: dict[float, list[float]] = {1.0: [], 3.0: []}
    windows = [states._window(index) for index in range(40)]
    for row in range(200):
        edges = np.concatenate([window.edges[row, :-1] for window in windows] + [windows[-1].edges[row, -1:]])
        values = np.concatenate([window.factors[row] for window in windows])
        real = np.diff(edges) > 0
        starts, values = edges[:-1][real], values[real]
        switches = np.flatnonzero(np.diff(values)) + 1  # a window's first edge is none
        for begun, ended in itertools.pairwise(switches):
            durations[values[begun]].append(starts[ended] - starts[begun])
    for factor, mean in ((1.0, 4.0), (3.0, 1.0)):
        found = np.array(durations[factor])
        assert len(found) > 10_000
        # Times that the last window cuts off are left out, which hides few of the long ones.
        assert found.mean() == pytest.approx(mean, rel=4 / np.sqrt(len(found)) + mean / 400)
        assert stats.kstest(found[:2000], stats.expon(scale=mean).cdf).pvalue > LIKELY


def test_the_oldest_windows_are_dropped_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_BYTES", 0)
    delays = make_delays("markov:seconds=0.01", 5, seed=0)
    times = np.linspace(0.0, 100.0, 300)
    forwards = [delays.end(1, 0, time, 0.3) for time in times.tolist()]
    assert len(delays._timeline._windows) == 4  # type: ignore[attr-defined]
    backwards = [delays.end(1, 0, time, 0.3) for time in times[::-1].tolist()]
    assert backwards[::-1] == forwards
    np.testing.assert_array_equal(delays.ends(1, 0, times[::-1], 0.3), backwards)


def test_a_worker_that_is_asked_for_twice_at_once_stands_in_two_places() -> None:
    delays = make_delays("markov:enter=3,leave=3", 2, seed=0)
    times = np.linspace(0.0, 0.6, 50)
    for _ in range(3):
        together = delays.ends(0, 0, np.concatenate([times, times[::-1]]), 0.01)
        assert together.tolist() == [delays.end(0, 0, t, 0.01) for t in [*times.tolist(), *times[::-1].tolist()]]


def test_periodic_workers_are_slow_once_per_period_in_their_own_phase() -> None:
    delays = make_delays("periodic:slow=4,period=5,share=0.2,seconds=2", 50, seed=0)
    times = np.arange(0.005, 20.0, 0.01)[:, None]
    shown = factors(delays, np.arange(50), times)
    assert set(np.unique(np.round(shown))) == {1.0, 4.0}
    slow = shown > 2
    np.testing.assert_allclose(slow.mean(axis=0), 0.2, atol=0.002)
    assert (slow[:1000] != slow[1000:]).mean() < 0.002  # two edges per period, to 0.01 s
    switches = np.count_nonzero(slow[1:1001] & ~slow[:1000], axis=0)
    assert (switches == 1).all()
    phases = np.argmax(slow[1:] & ~slow[:-1], axis=0) * 0.01
    assert stats.kstest(phases, stats.uniform(0, 10).cdf).pvalue > LIKELY


def test_drift_walks_one_level_at_a_time_between_its_bounds() -> None:
    delays = make_delays("drift:most=3,levels=4,seconds=0.5", 400, seed=0)
    times = (np.arange(200)[:, None] + 0.5) * 0.5
    levels = (factors(delays, np.arange(400), times) - 1) / 0.5
    np.testing.assert_allclose(levels, np.round(levels), atol=0.01)
    levels = np.round(levels)
    assert (np.abs(np.diff(levels, axis=0)) == 1).all() and levels.min() == 0 and levels.max() == 4
    # The ends of a folded circle are half as likely as what lies between.
    for moment in (0, 199):
        counts = np.bincount(levels[moment].astype(int), minlength=5)
        assert stats.chisquare(counts, 400 * np.array([1, 2, 2, 2, 1]) / 8).pvalue > LIKELY


def test_the_workers_of_a_rack_are_slow_together() -> None:
    delays = make_delays("groups:size=3,enter=1,leave=1", 8, seed=0)
    shown = factors(delays, np.arange(8), np.arange(0.0, 200.0, 0.1)[:, None])
    for rack in (range(3), range(3, 6), range(6, 8)):
        assert (shown[:, list(rack)] == shown[:, rack[:1]]).all()
    ranks = np.corrcoef(shown[:, [0, 3, 6]].T)
    assert np.abs(ranks - np.eye(3)).max() < 4 * np.sqrt(0.5 / 200)  # the correlation time is 1 / (enter + leave)


def test_a_bad_node_is_slow_from_then_on() -> None:
    delays = make_delays("bad_node:worker=1,slow=4,at=10", 3, seed=0)
    assert delays.end(1, 0, 2.0, 3.0) == 5.0
    assert delays.end(1, 0, 8.0, 3.0) == 10.0 + 1.0 * 4
    assert delays.end(1, 0, 12.0, 3.0) == 12.0 + 3.0 * 4
    assert delays.end(0, 0, 12.0, 3.0) == delays.end(2, 0, 12.0, 3.0) == 15.0
    assert delays.message_end(1, 0, 12.0, 3.0) == 15.0


def test_a_worker_that_is_gone_never_ends_anything() -> None:
    delays = make_delays("gone:worker=2,at=20", 4, seed=0)
    assert delays.end(2, 0, 19.0, 1.0) == 20.0
    assert delays.end(2, 0, 19.0, 1.5) == delays.end(2, 9, 21.0, 0.1) == np.inf
    assert delays.message_end(2, 0, 19.5, 0.1) == 19.6 and delays.message_end(2, 0, 19.5, 1.0) == np.inf
    assert delays.end(2, 0, 25.0, 0.0) == 25.0, "no work is done at once"
    np.testing.assert_array_equal(delays.ends(np.arange(4), 3, 21.0, 1.0), [22.0, 22.0, np.inf, 22.0])
    np.testing.assert_array_equal(delays.ends(np.arange(4), 4, np.inf, 1.0), np.inf)
    assert delays.end(0, 4, np.inf, 1.0) == delays.end(2, 4, np.inf, 1.0) == np.inf


def test_credits_run_out_and_leave_the_baseline() -> None:
    """A t2.micro: 30 credits last 30 / (60 - 6) hours at full speed; then 10 %."""
    delays = make_delays("credits:spread=0,seconds=54", 2, seed=0)
    assert delays.end(0, 0, 0.0, 30.0) == pytest.approx(30.0)
    assert delays.end(0, 0, 10.0, 25.0) == pytest.approx(30.0 + 5.0 * 10)
    assert delays.end(1, 0, 40.0, 1.0) == pytest.approx(50.0)
    larger = make_delays("credits:earned=81,vcpus=8,balance=240,spread=0,seconds=399", 1, seed=0)
    assert larger.end(0, 0, 239.0, 2.0) == pytest.approx(240.0 + 480 / 81)
    drawn = make_delays("credits:seconds=54", 500, seed=0)
    empty = 30.0 - (drawn.ends(np.arange(500), 0, 0.0, 30.0) - 30.0) / 9  # late by 9 s for each second at the baseline
    assert stats.kstest(empty, stats.uniform(0, 30).cdf).pvalue > LIKELY


def test_nodes_show_their_credits_and_nothing_else() -> None:
    delays = make_delays("credits:spread=0,seconds=54", 3, seed=0)
    assert [delays.system(1, clock) for clock in (0.0, 12.0, 40.0)] == [
        {"credits": pytest.approx(30.0)}, {"credits": pytest.approx(18.0)}, {"credits": 0.0},
    ]  # fmt: skip
    drawn = make_delays("credits", 3, seed=0)
    together = drawn.systems([5.0, np.nan, 700.0])
    assert together is not None and np.isnan(together["credits"][1])
    for worker, clock in ((0, 5.0), (2, 700.0)):
        assert drawn.system(worker, clock) == {"credits": together["credits"][worker]}
    for name, kind in KINDS.items():
        if name != "trace":
            shown = make_delays(name, 4, 0).system(0, 1.0)
            assert tuple(shown or ()) == kind.readings == (("credits",) if name == "credits" else ())


def test_slow_decoding_stretches_the_input_alone() -> None:
    shown = factors(make_delays("decoding:slow=5,share=0.25", 20, 0), np.arange(20), np.arange(0.0, 100.0)[:, None])
    assert set(np.unique(np.round(shown, 2))) == {1.0, 2.0}


def test_a_busy_link_delays_messages_and_no_work() -> None:
    delays = make_delays("link:slow=6,enter=1,leave=1", 20, 0)
    who, times = np.arange(20), np.arange(0.0, 100.0)[:, None]
    np.testing.assert_array_equal(delays.ends(who, 0, times, 2.0), np.broadcast_to(times + 2.0, (100, 20)))
    assert set(np.unique(np.round(factors(delays, who, times, messages=True), 2))) == {1.0, 6.0}

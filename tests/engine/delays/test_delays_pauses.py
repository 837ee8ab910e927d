"""Pauses follow the distributions that they name, independently for every worker and task."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lockstep.engine.delays import make_delays
from lockstep.engine.delays.draws import BLOCK, STREAM_PAUSE, Draws, row_keys, uniforms

WORKERS, TASKS = 20, 1000
LIKELY = 1e-3  # a right distribution fails a test of these seeds with this probability, once and for all


def pauses(text: str, work: float = 1.0) -> np.ndarray:
    """Seconds [tasks, workers] beyond the work."""
    delays = make_delays(text, WORKERS, seed=11)
    return delays.ends(np.arange(WORKERS), np.arange(TASKS)[:, None], 0.0, work) - work


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("exponential:mean=0.5", stats.expon(scale=0.5)),
        ("exponential:mean=2,shift=1", stats.expon(loc=1, scale=2)),
        ("pareto:shape=3", stats.lomax(3)),
        ("pareto:shape=1.5,scale=0.2", stats.lomax(1.5, scale=0.2)),
    ],
)
def test_continuous_pauses_follow_their_law(text: str, law: stats.rv_continuous) -> None:
    found = pauses(text).ravel()
    assert stats.kstest(found, law.cdf).pvalue > LIKELY
    if np.isfinite(law.var()):
        assert found.mean() == pytest.approx(law.mean(), abs=4 * law.std() / np.sqrt(found.size))


def test_a_share_of_tasks_has_the_bimodal_pause() -> None:
    found = pauses("bimodal:share=0.1,pause=2")
    np.testing.assert_allclose(np.unique(found), [0.0, 2.0])
    assert (found > 0).mean() == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / found.size))


@pytest.mark.parametrize("kind", ["exponential", "pareto", "bimodal"])
def test_the_unit_of_a_pause_is_the_work_or_seconds(kind: str) -> None:
    once = pauses(kind)
    np.testing.assert_allclose(pauses(kind, work=0.1), 0.1 * once, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pauses(f"{kind}:seconds=0.5", work=0.1), 0.5 * once, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", ["exponential", "exponential:seconds=0.25"])
def test_a_pause_falls_into_one_of_the_pieces(text: str) -> None:
    """The pieces of a task take as long together as the whole, and each is as likely to hold the pause."""
    delays = make_delays(text, WORKERS, seed=11)
    who, what = np.arange(WORKERS), np.arange(TASKS)[:, None]
    whole = delays.ends(who, what, 0.0, 1.0) - 1.0
    parts = np.stack([delays.ends(who, what, 0.0, 0.25, piece, 4) - 0.25 for piece in range(4)])
    assert (np.count_nonzero(parts, axis=0) == 1).all()
    np.testing.assert_allclose(parts.sum(axis=0), whole, rtol=1e-12, atol=1e-12)
    counts = np.count_nonzero(parts, axis=(1, 2))
    assert stats.chisquare(counts).pvalue > LIKELY
    place = parts.argmax(axis=0).ravel()
    assert abs(np.corrcoef(place, whole.ravel())[0, 1]) < 4 / np.sqrt(place.size)


def test_pauses_are_independent_over_tasks_and_workers() -> None:
    found = stats.rankdata(pauses("pareto")).reshape(TASKS, WORKERS)
    for one, other in ((found[1:], found[:-1]), (found[:, 1:], found[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / np.sqrt(one.size)


def test_uniform_numbers_are_uniform_and_never_0_or_1() -> None:
    found = uniforms(row_keys(0, STREAM_PAUSE, 100)[:, None], np.arange(500))
    assert found.shape == (100, 500) and stats.kstest(found.ravel(), "uniform").pvalue > LIKELY
    assert len(np.unique(found)) == found.size
    ends = (np.array([0, 2**52 - 1], dtype=np.uint64).astype(np.float64) + 0.5) * 2.0**-52
    assert ends[0] > 0 and ends[1] < 1


def test_memory_does_not_grow_with_the_tasks() -> None:
    made: list[int] = []

    def counted(uniform: np.ndarray) -> np.ndarray:
        made.append(uniform.size)
        return uniform

    draws = Draws(0, STREAM_PAUSE, 3, counted)
    for task in range(10 * BLOCK):
        for row in range(3):
            draws.one(row, task)
    assert made == [BLOCK] * 30, "a block serves the tasks after it"
    assert len(draws._blocks) == 3

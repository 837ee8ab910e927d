from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from curve_pools import saturating
from lockstep.engine.options import JobError
from lockstep.tuning.choosing import choose_candidate, choose_then_report
from lockstep.tuning.frontier import frontier
from lockstep.tuning.pool import CurvePool, effective_number, halves
from lockstep.tuning.replay import replays

STUDIES = 20


def rows(**outcomes: tuple[float, float]) -> pd.DataFrame:
    """Replays in which each pruner computes a share of the epochs, give or take 0.01, and keeps the best in a share."""
    found = []
    for name, (share, kept) in outcomes.items():
        for seed in range(STUDIES):
            computed = share + (0.01 if seed % 2 else -0.01)
            found.append((name, name, 1, 30, seed, computed, seed < round(kept * STUDIES), 0.0, 60.0))
    columns = ["compared", "pruner", "workers", "trials", "seed", "share_of_epochs", "kept_best", "regret", "seconds"]
    return pd.DataFrame(found, columns=columns)


@pytest.mark.parametrize(
    ("outcomes", "text", "reached"),
    [
        ({"a": (0.5, 0.95), "b": (0.4, 0.9), "c": (0.2, 0.85)}, "b", True),
        ({"a": (0.4, 0.9), "b": (0.4, 1.0)}, "b", True),  # of equal compute, what keeps more often
        ({"b": (0.4, 0.9), "a": (0.4, 0.9)}, "b", True),  # of all equal, the first
        ({"a": (0.3, 0.5), "b": (0.6, 0.8), "c": (0.5, 0.8)}, "c", False),  # none keeps 0.9: most kept, then compute
    ],
)
def test_the_least_compute_among_those_that_keep_the_best_is_chosen(
    outcomes: dict[str, tuple[float, float]], text: str, reached: bool
) -> None:
    found = choose_candidate(rows(**outcomes))
    assert (found.text, found.reached) == (text, reached)
    assert (found.share_of_epochs, found.kept) == pytest.approx(outcomes[text])
    assert found.candidates["pruner"].tolist() == list(outcomes)


def test_what_can_not_be_chosen_among_is_refused() -> None:
    with pytest.raises(JobError, match="no candidate was replayed"):
        choose_candidate(rows())
    found = rows(a=(0.5, 1.0), b=(0.4, 1.0))
    with pytest.raises(JobError, match="a, b were replayed on different seeds"):
        choose_candidate(found[1:])


def test_halves_hold_every_setting_once() -> None:
    pool = saturating(11, 4)
    one, other = halves(pool, seed=1)
    assert (len(one), len(other)) == (5, 6)
    both = np.concatenate([one.values, other.values])
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, pool.values.tolist()))
    assert halves(pool, seed=1)[0].values.tolist() == one.values.tolist() != halves(pool, seed=2)[0].values.tolist()
    with pytest.raises(JobError, match="a pool of 3 settings has no two halves"):
        halves(saturating(3, 4), seed=0)


def test_settings_are_chosen_on_one_half_and_reported_on_the_other() -> None:
    pool = saturating(24, 8)
    choosing, reporting = (half.values.tolist() for half in halves(pool, seed=0))
    asked: list[tuple[str, bool]] = []

    def watched(half: CurvePool, text: str, workers: int, trials: int, seeds: Sequence[int]) -> pd.DataFrame:
        assert half.values.tolist() in (choosing, reporting)
        asked.append((text, half.values.tolist() == reporting))
        return replays(half, text, workers, trials, seeds)

    candidates = {"halving": ("halving:factor=2", "halving"), "median": ("median", "median:startup=2")}
    chosen, table = choose_then_report(pool, candidates, 1, 8, range(6), replay=watched)
    assert [text for text, reports in asked if not reports] == [text for texts in candidates.values() for text in texts]
    assert [text for text, reports in asked if reports] == [choice.text for choice in chosen.values()]
    assert [reports for _, reports in asked] == sorted(reports for _, reports in asked)  # all choices come first
    assert table.columns[0] == "compared"
    assert table.groupby("compared", sort=False)["pruner"].unique().map(list).to_dict() == {
        name: [choice.text] for name, choice in chosen.items()
    }
    assert table["seed"].tolist() == [*range(6), *range(6)]
    alone = replays(halves(pool, seed=0)[1], chosen["median"].text, 1, 8, range(6))
    assert table.query("compared == 'median'")["regret"].tolist() == alone["regret"].tolist()


def test_a_half_that_is_too_small_for_a_study_is_refused() -> None:
    with pytest.raises(JobError, match="trials_per_study=7 is more than the 6 settings of half of this pool of 12"):
        choose_then_report(saturating(12, 4), {"none": ("none",)}, 1, 7, [0])


def test_the_effective_number_of_studies() -> None:
    of_30, of_80 = effective_number(100, 30, 500), effective_number(100, 80, 500)
    assert (of_30.overlap, of_30.of_all, of_80.of_all) == pytest.approx((0.3, 100 / 30, 1.25))
    assert (of_30.of_these, of_80.of_these) == pytest.approx((3.3179, 1.2494), abs=1e-4)
    assert effective_number(100, 30, 1).of_these == 1
    for wrong in ((10, 11, 1), (10, 0, 1), (10, 5, 0)):
        with pytest.raises(JobError, match="can't be drawn"):
            effective_number(*wrong)


def test_the_effective_number_is_what_studies_of_made_up_pools_amount_to() -> None:
    """For a mean over the drawn settings, Hoeffding's bound is reached: its variance over pools is known."""
    random, settings, trials, orders = np.random.default_rng(0), 20, 12, 5
    pools = random.normal(size=(4000, settings))
    studies = np.stack([random.permuted(pools, axis=1)[:, :trials].mean(axis=1) for _ in range(orders)])
    measured = (1 / trials) / studies.mean(axis=0).var()
    assert measured == pytest.approx(effective_number(settings, trials, orders).of_these, rel=0.1)


def test_the_frontier_holds_what_nothing_dominates() -> None:
    found = frontier(rows(none=(1.0, 1.0), median=(0.5, 0.9), ours=(0.4, 0.9), halving=(0.2, 0.6), poor=(0.6, 0.1)))
    found = found.set_index("compared")
    assert found.index[found["on_frontier"]].tolist() == ["none", "ours", "halving"]
    assert found["dominated_by"]["poor"] == "median, ours, halving"
    assert found["dominated_by"]["median"] == "ours"
    ours = found.loc["ours"]
    assert ours["share_of_epochs"] == pytest.approx(0.4)
    assert 0.39 < ours["share_low"] < 0.4 < ours["share_high"] < 0.41
    assert found["kept_low"]["none"] < 1 == found["kept"]["none"]
    assert (found["studies"] == STUDIES).all()


def test_replays_that_are_not_paired_are_refused() -> None:
    both = rows(ours=(0.4, 0.9), median=(0.5, 0.8))
    with pytest.raises(JobError, match="compared='median' was not replayed once on each seed"):
        frontier(both[:-1])
    with pytest.raises(JobError, match="several numbers of workers can't be compared: 1, 2"):
        frontier(pd.concat([both, both.assign(workers=2)]))

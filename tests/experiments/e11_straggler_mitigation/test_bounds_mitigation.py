"""What no policy exceeds that has no further node."""

from __future__ import annotations

import math

import pytest

from lockstep.experiments.e11_straggler_mitigation.bounds import (
    capacity_bound,
    fewest_workers,
    least_share,
    mitigation_of,
    whole_images_bound,
)


@pytest.mark.parametrize(("workers", "most"), [(4, 0.857), (8, 0.933), (16, 0.968), (32, 0.984)])
def test_capacity_of_one_node_twice_as_slow(workers: int, most: float) -> None:
    assert capacity_bound(workers, 2) == pytest.approx(most, abs=5e-4)
    assert capacity_bound(workers, 2) == pytest.approx(1 - (workers / (workers - 1 + 1 / 2) - 1) / (2 - 1))


def test_nothing_is_mitigated_where_all_nodes_are_slow() -> None:
    assert capacity_bound(5, 3, slow=5) == pytest.approx(0) and whole_images_bound(5, 8, 3, slow=5) == pytest.approx(0)
    assert math.isnan(mitigation_of(1.0, 1.0)), "where nothing is slower, there is nothing to mitigate"


def test_a_share_of_eight_that_must_grow_to_nine_costs_an_eighth() -> None:
    assert whole_images_bound(8, 8, 2) == pytest.approx(1 - 1 / 8)
    assert whole_images_bound(1024, 8, 2) == pytest.approx(1 - 1 / 8), "however many workers share it"


@pytest.mark.parametrize(("workers", "share", "slower"), [(3, 4, 1.5), (4, 7, 2.0), (6, 5, 3.0)])
def test_whole_images_are_the_best_of_all_divisions(workers: int, share: int, slower: float) -> None:
    total = workers * share
    best = min(max(kept * slower, -(-(total - kept) // (workers - 1))) for kept in range(total + 1)) / share
    assert whole_images_bound(workers, share, slower) == pytest.approx(mitigation_of(best, slower))
    assert whole_images_bound(workers, share, slower) <= capacity_bound(workers, slower) + 1e-12


@pytest.mark.parametrize("slower", [1.5, 2.0, 3.0, 10.0])
def test_the_fewest_workers_are_the_fewest(slower: float) -> None:
    found = fewest_workers(0.98, slower)
    assert found is not None and found > 2
    assert capacity_bound(found, slower) >= 0.98 > capacity_bound(found - 1, slower)
    assert fewest_workers(1.0, slower) is None and fewest_workers(0.98, slower, most=3) is None


def test_the_least_share_is_the_least() -> None:
    found = least_share(0.98, 64, 2)
    assert found is not None and found >= 50
    assert whole_images_bound(64, found, 2) >= 0.98 - 1e-12 > whole_images_bound(64, found - 1, 2)
    assert least_share(0.98, 8, 2) is None, "capacity forbids it"


def test_impossible_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="slow=9 of 8"):
        capacity_bound(8, 2, slow=9)
    with pytest.raises(ValueError, match="share=0"):
        whole_images_bound(8, 0, 2)

import pytest
import torch

from clocks import clock
from lockstep.measure.probes.bandwidth import copy_bandwidth, reduce_update_bytes


def test_the_best_copy_counts_read_and_write() -> None:
    found = copy_bandwidth(1000 * 4, seconds_budget=0, least_copies=3, clock=clock([0.5, 0.25, 1.0]))
    assert found == 2 * 4000 / 0.25


def test_copies_go_on_until_the_budget_is_spent() -> None:
    found = copy_bandwidth(4000, seconds_budget=2.0, least_copies=1, clock=clock([1.0, 0.75, 0.5]))
    assert found == 8000 / 0.5


def test_one_thread_copies_and_the_setting_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    during = []

    def broken() -> float:
        during.append(torch.get_num_threads())
        raise KeyError("clock")

    try:
        torch.set_num_threads(2)
        with pytest.raises(KeyError):
            copy_bandwidth(4000, clock=broken)
        with pytest.raises(KeyError):
            copy_bandwidth(4000, threads=3, clock=broken)
        assert during == [1, 3]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_real_clock_gives_a_bandwidth() -> None:
    assert 1e6 < copy_bandwidth(2**20, seconds_budget=0) < 1e13


@pytest.mark.parametrize("wrong", [{"bytes_": 3}, {"bytes_": 4, "least_copies": 0}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="give at least"):
        copy_bandwidth(**wrong)  # type: ignore[arg-type]


def _counted(length: int, workers: int) -> int:
    """Bytes of rank 0's own slice, counted number by number while it is reduced and updated."""
    moved = 0
    for _ in range((length + workers - 1) // workers):
        moved += workers  # read the gradients
        moved += 1 + 1  # read momentum, write it
        moved += 1 + 1  # read the parameter, write it
    return 4 * moved


@pytest.mark.parametrize(("length", "workers"), [(1, 1), (12, 1), (12, 2), (13, 2), (100, 3), (2, 4)])
def test_reduce_update_bytes(length: int, workers: int) -> None:
    assert reduce_update_bytes(length, workers) == _counted(length, workers)


def test_reduce_update_bytes_of_alexnet() -> None:
    # 57 M parameters, two workers: 3 numbers per parameter and rank
    assert reduce_update_bytes(57_000_000, 2) == 57_000_000 * 3 * 4


@pytest.mark.parametrize(("length", "workers"), [(0, 1), (1, 0), (-4, 2)])
def test_reduce_update_bytes_refuses(length: int, workers: int) -> None:
    with pytest.raises(ValueError, match=f"length={length}, workers={workers}"):
        reduce_update_bytes(length, workers)

"""The path on made-up observations: each cause by itself, none on a healthy run, and the order of several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.advisor.why.decision import find_causes
from lockstep.advisor.why.observations import (
    BATCH,
    CROWDING,
    DENORMALS,
    EXCHANGE,
    FEW_THREADS,
    INPUT,
    OTHERS,
    PAGE_FAULTS,
    PATH,
    START,
    THREADS,
    UNEQUAL,
    Cause,
    CellSeen,
    Observations,
    WorkerStep,
)


def rank(**others: float) -> WorkerStep:
    """A worker's step of 100 ms, 90 of which it computes."""
    values: dict[str, float] = {
        "step_seconds": 0.1, "input_seconds": 0.001, "compute_seconds": 0.09, "exchange_seconds": 0.005,
        "wait_seconds": 0.001, "update_seconds": 0.003, "images": 32, "bytes_sent": 1e6, "cpu_seconds": 0.094,
    }  # fmt: skip
    return WorkerStep(**(values | others))


def cell(*ranks: WorkerStep, workers: int = 2, threads: int = 1, batch: int = 32) -> CellSeen:
    return CellSeen("allreduce", workers, threads, batch, ranks or (rank(),) * workers)


def alone(step_seconds: float = 0.09, batch: int = 32, **others: float) -> CellSeen:
    times = {"compute_seconds": step_seconds - 0.004, "cpu_seconds": step_seconds}
    return cell(rank(step_seconds=step_seconds, **(times | others)), workers=1, batch=batch)


HEALTHY = Observations(
    cell(), cores=2, alone=alone(), larger=alone(0.17, 64), kept_denormals=alone(), gradient_bytes=1e6,
    copy_bytes_per_second=1e10, start_seconds=3.0,
)  # fmt: skip


def causes(**changes: Any) -> list[Cause]:
    return find_causes(replace(HEALTHY, **changes))


def kinds(**changes: Any) -> list[str]:
    return [cause.kind for cause in causes(**changes)]


PLANTED: dict[str, dict[str, Any]] = {
    INPUT: {"asked": cell(rank(), rank(input_seconds=0.04))},
    THREADS: {"asked": cell(rank(step_seconds=0.3), rank(step_seconds=0.3), threads=4), "fitting": cell()},
    FEW_THREADS: {"cores": 8, "fitting": cell(*(rank(step_seconds=0.04, compute_seconds=0.03),) * 2, threads=4),
                  "alone": alone(0.03), "larger": alone(0.06, 64), "kept_denormals": alone(0.03)},
    EXCHANGE: {"asked": cell(*(rank(step_seconds=0.2, exchange_seconds=0.1),) * 2)},
    CROWDING: {"alone": alone(0.04), "larger": alone(0.08, 64), "kept_denormals": alone(0.04)},
    UNEQUAL: {"asked": cell(rank(step_seconds=0.2, wait_seconds=0.09),
                            rank(step_seconds=0.2, compute_seconds=0.19, cpu_seconds=0.19))},
    BATCH: {"larger": alone(0.1, 64)},
    START: {"images_timed": 640},
    DENORMALS: {"kept_denormals": alone(0.9)},
    PAGE_FAULTS: {"asked": cell(rank(), rank(page_faults=40_000))},
    OTHERS: {"others_share": 0.07},
}  # fmt: skip


def test_every_kind_of_the_path_is_planted() -> None:
    assert set(PLANTED) == set(PATH)


@pytest.mark.parametrize("kind", PATH)
def test_each_cause_is_found_by_itself(kind: str) -> None:
    (cause,) = causes(**PLANTED[kind])
    assert cause.kind == kind
    assert 0 < cause.gain_share <= 1 and cause.gain_seconds is not None and cause.gain_seconds > 0
    assert cause.number >= cause.threshold
    assert all(part for part in (cause.found, cause.rule, cause.gain, cause.command))


def test_a_healthy_run_has_no_cause() -> None:
    assert causes() == []


@pytest.mark.parametrize("kind", [INPUT, EXCHANGE, UNEQUAL, BATCH, DENORMALS])
def test_others_on_the_machine_hide_nothing_that_their_own_time_shows(kind: str) -> None:
    """What is compared then is CPU time, which others do not change; of an exchange, what the link's rate explains."""
    link = {"link_bytes_per_second": 1e7} if kind == EXCHANGE else {}
    assert set(kinds(**(PLANTED[kind] | link), others_share=0.6)) == {kind, OTHERS}


def test_what_others_can_cause_is_not_named_beside_them() -> None:
    slowed = cell(rank(step_seconds=0.5, exchange_seconds=0.3), rank(step_seconds=0.5, compute_seconds=0.4))
    assert kinds(asked=slowed, alone=alone(0.3, cpu_seconds=0.09), others_share=0.6) == [OTHERS]


def test_the_largest_gain_comes_first() -> None:
    slow_input = cell(rank(input_seconds=0.03), rank(input_seconds=0.03, page_faults=40_000))
    found = causes(asked=slow_input, others_share=0.09)
    assert [cause.kind for cause in found] == [PAGE_FAULTS, INPUT, OTHERS]
    gains = [cause.gain_share for cause in found]
    assert gains == sorted(gains, reverse=True)


def test_later_steps_look_at_workers_whose_threads_fit() -> None:
    """Eight threads on two cores make the exchange slow, too; without them it is not."""
    crowded = cell(*(rank(step_seconds=0.4, exchange_seconds=0.2),) * 2, threads=4)
    (cause,) = causes(asked=crowded, fitting=cell())
    assert cause.kind == THREADS and cause.gain_seconds == pytest.approx(0.3)
    assert cause.number == 4 and cause.command.endswith("--threads-per-worker 1")


def test_too_many_threads_are_named_even_where_nothing_was_gained_without() -> None:
    (cause,) = causes(asked=cell(threads=4), fitting=cell())
    assert (cause.kind, cause.gain_seconds) == (THREADS, 0.0)
    assert "no shorter" in cause.gain, "seen: a step of 2.2 s was advised in place of one of 1.6 s"


@pytest.mark.parametrize("step_seconds", [0.22, 0.2, 0.15])
def test_too_many_threads_come_first_even_where_another_cause_costs_more(step_seconds: float) -> None:
    """Threads that sleep while they wait cost little, and an exchange that is half of a step came before them."""
    asked = cell(*(rank(step_seconds=step_seconds, exchange_seconds=0.1, page_faults=40_000),) * 2, threads=4)
    fitting = cell(*(rank(step_seconds=0.2, exchange_seconds=0.1),) * 2)
    found = causes(asked=asked, fitting=fitting, others_share=0.07)
    assert [cause.kind for cause in found] == [THREADS, EXCHANGE, PAGE_FAULTS, OTHERS]
    assert found[0].gain_share < found[1].gain_share


def test_more_workers_than_cores_are_too_many_threads() -> None:
    (cause,) = causes(asked=cell(workers=4))
    assert cause.kind == THREADS and "not measured" in cause.gain and cause.command.endswith("--workers 2")


def test_an_exchange_that_is_hidden_in_the_backward_pass_is_told_by_how_much_a_step_grows() -> None:
    ddp = cell(*(rank(step_seconds=0.2, compute_seconds=0.19, exchange_seconds=0.0, bytes_sent=0.0),) * 2)
    (cause,) = causes(asked=ddp, exchange_is_hidden=True)
    assert cause.kind == EXCHANGE and "grows" in cause.found and "977 KiB" in cause.found


def test_an_exchange_is_held_against_what_link_or_memory_can_move() -> None:
    slow = PLANTED[EXCHANGE]["asked"]
    (over_link,) = causes(asked=slow, link_bytes_per_second=12.5e6)
    assert "At the rate of the link it would take 80 ms" in over_link.found
    assert over_link.gain_seconds == pytest.approx(0.1), "a slow link can be asked for less"
    (in_memory,) = causes(asked=slow)
    assert "At the rate of the memory it would take 200 µs" in in_memory.found
    assert in_memory.gain_seconds == pytest.approx(0.1 - 0.0002)


def test_unequal_shares_are_told_from_a_slow_worker() -> None:
    (cause,) = causes(asked=cell(rank(step_seconds=0.2, images=16), rank(step_seconds=0.2, compute_seconds=0.18)))
    assert "shares are unequal: 32 and 16 images" in cause.found


def test_of_one_worker_nothing_is_asked_that_needs_two() -> None:
    assert kinds(asked=cell(workers=1), cores=1, alone=None, larger=None, kept_denormals=None) == []


def test_the_start_counts_only_in_what_the_reader_timed() -> None:
    assert kinds(start_seconds=60.0) == [] and kinds(start_seconds=60.0, images_timed=10**6) == []
    (cause,) = causes(**PLANTED[START])
    assert cause.number == pytest.approx(3 / 4) and cause.gain_share == pytest.approx(3 / 4)


def test_what_already_shares_memory_is_not_advised_to() -> None:
    ranks = (rank(step_seconds=0.2, exchange_seconds=0.1, bytes_sent=0.0),) * 2
    (cause,) = causes(asked=replace(cell(*ranks), sync="shared_memory"))
    assert cause.kind == EXCHANGE and "977 KiB of gradients in shared memory" in cause.found
    assert "sends" not in cause.found and "shared_memory" not in cause.gain + cause.command
    assert cause.command.endswith("--batch 128")


def test_a_run_that_is_tuned_is_not_advised_to_be() -> None:
    (cause,) = causes(**PLANTED[PAGE_FAULTS], environment="tuned")
    assert cause.kind == PAGE_FAULTS and "tuned" not in cause.gain and cause.command.endswith("--environment plain")
    (plain,) = causes(**PLANTED[PAGE_FAULTS])
    assert plain.command.endswith("--environment tuned")


def test_on_a_busy_machine_a_short_wait_for_images_is_not_named() -> None:
    """A healthy run beside another program waited 1.2 ms of a step of 5.6 ms for its images, and that was named."""
    waits = tuple(replace(rank, input_seconds=0.2 * alone(0.3).step_seconds) for rank in alone(0.3).ranks)
    short = replace(alone(0.3), ranks=waits)
    assert INPUT in kinds(asked=short)
    assert kinds(asked=short, others_share=0.6) == [OTHERS]


def test_a_disturbed_step_is_no_share_that_every_batch_pays() -> None:
    """Seen on a healthy run: one cell was slowed down by the host, and 58 % of its step were said not to depend on the
    batch. The cell that differs only in whether denormal numbers are flushed tells that it was slowed down."""
    assert kinds(alone=alone(0.14), kept_denormals=None) == [BATCH]
    assert kinds(alone=alone(0.14)) == []
    assert kinds(alone=alone(0.14, cpu_seconds=0.14), others_share=0.6) == [OTHERS]
    assert kinds(kept_denormals=alone(0.14)) == []


@pytest.mark.parametrize("kind", [kind for kind in PATH if kind != OTHERS])
def test_what_fewer_than_most_parts_show_is_the_moments(kind: str) -> None:
    """On healthy runs one turn in five named unequal workers or memory bandwidth; a planted cause stood in each."""
    planted, healthy = replace(HEALTHY, **PLANTED[kind]), HEALTHY
    for parts, expected in [
        ((planted,), [kind]),
        ((healthy,), []),
        ((planted, healthy), []),
        ((planted, healthy, planted), [kind]),
        ((healthy, healthy, planted), []),
        ((planted, planted, healthy, healthy), []),
        ((), [kind]),
    ]:
        assert [cause.kind for cause in find_causes(replace(planted, parts=parts))] == expected
    assert find_causes(replace(healthy, parts=(planted, planted))) == [], "nor what all turns together do not show"

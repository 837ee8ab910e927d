"""Cells are measured by real workers, in turns and in time; nothing stays behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lockstep.advisor.calibration import NOTHING, CalibrationCell, CalibrationError
from lockstep.advisor.measuring.asked_cells import CellAsked, Visits
from lockstep.advisor.measuring.cells import measure_cells, measure_in_turns
from lockstep.advisor.measuring.meter import CellMeter, steps_of
from lockstep.advisor.measuring.own_model import ModelAsked, load_case
from lockstep.engine.job import JobError
from lockstep.engine.training.loop import Trace
from lockstep.engine.usecases import UseCase

CELLS = [CellAsked("local", 1, 4), CellAsked(NOTHING, 2, 4), CellAsked("allreduce", 2, 4, steps=4)]


@pytest.fixture(scope="module")
def case() -> UseCase:
    return load_case(ModelAsked("own_models:perceptron", "6", batch=4))


@pytest.mark.usefixtures("no_leftovers")
def test_cells_are_measured_by_workers(case: UseCase) -> None:
    seen: list[tuple[int, list[int]]] = []

    def on_round(number: int, cells: Sequence[CalibrationCell]) -> None:
        seen.append((number, [len(cell.step_seconds) for cell in cells]))

    failures: dict[CellAsked, str] = {}
    broken = CellAsked("ddp", 2, 4, threads_per_worker=1, hosts=2, link_bits_per_second=-1.0)
    with pytest.raises(JobError, match="link_bits_per_second"):
        measure_cells(case, [broken], 1, 5.0)
    found = measure_cells(case, CELLS, 2, 300.0, on_round, failures=failures)
    assert [(each.sync, each.workers) for each in found] == [("local", 1), (NOTHING, 2), ("allreduce", 2)]
    assert seen == [(1, [1, 1, 1]), (2, [2, 2, 2])] and not failures
    for each in found:
        parts = zip(each.compute_seconds, each.exchange_seconds, each.update_seconds, strict=True)
        assert all(sum(part) <= step * 1.5 for part, step in zip(parts, each.step_seconds, strict=True))
        assert all(value > 0 for value in each.step_seconds + each.compute_seconds + each.update_seconds)
    assert all(value == 0 for value in found[0].exchange_seconds + found[1].exchange_seconds), "nobody agrees"
    assert all(value > 0 for value in found[2].exchange_seconds)


@pytest.mark.usefixtures("no_leftovers")
def test_the_end_of_the_time_ends_workers_that_still_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.advisor.measuring.meter._GRACE_SECONDS", 0.5)
    failures: dict[CellAsked, str] = {}
    sleepy = load_case(ModelAsked("own_models:sleepy", "6"))
    began = time.monotonic()
    found = measure_cells(sleepy, [CellAsked("local", 1, 12), CellAsked("local", 1, 24)], 3, 1.0, failures=failures)
    assert time.monotonic() - began < 30, "each of its steps would take a minute"
    assert [each.step_seconds for each in found] == [(), ()]
    assert list(failures.values()) == ["the time was over"] * 2


@pytest.mark.usefixtures("no_leftovers")
def test_a_way_that_fails_leaves_the_others(case: UseCase) -> None:
    """DDP refuses a model that leaves parameters unused."""
    failures: dict[CellAsked, str] = {}
    unused = load_case(ModelAsked("own_models:Unused", "6"))
    cells = [CellAsked("ddp", 2, 4, steps=3), CellAsked("shared_memory", 2, 4, steps=2)]
    found = measure_cells(unused, cells, 1, 300.0, failures=failures)
    assert list(failures) == cells[:1] and "did not receive grad" in failures[cells[0]]
    assert [len(each.step_seconds) for each in found] == [0, 1]


def test_the_job_of_a_cell() -> None:
    server = CellAsked("parameter_server", 3, 8).job()
    assert (server.servers, server.policy, server.ranks, server.global_batch_size) == (1, "wait_for_all", 4, 24)
    assert CellAsked("allreduce", 1, 8).job().sync == "local" and CellAsked(NOTHING, 4, 8).job().sync == "local"
    hosts = CellAsked("shared_memory", 4, 8, hosts=2, link_bits_per_second=1e9).job()
    assert (hosts.launcher, hosts.hosts, hosts.link_bits_per_second) == ("mpiexec", 2, 1e9)
    bucketed = CellAsked("bucketed", 2, 8, threads_per_worker=2).job()
    assert (bucketed.sync, bucketed.bucket, bucketed.cores_per_worker) == ("allreduce", "25MiB", 2)
    assert CellAsked("sharded_server", 3, 8).job().shards == 3
    with pytest.raises(CalibrationError, match="sync 'horovod' does not exist; there are: local, allreduce"):
        CellAsked("horovod", 2, 8).job()


def step(seconds: float, compute: float, exchange: float = 0.0, wait: float = 0.0) -> dict[str, float]:
    return {
        "step_seconds": seconds, "compute_seconds": compute, "exchange_seconds": exchange, "wait_seconds": wait,
        "update_seconds": 0.1,
    }  # fmt: skip


def test_a_visit_is_told_by_its_slowest_worker() -> None:
    """By the one that computes longest, for the other waits for it. A step takes what the slowest took."""
    quick = Trace(0, steps=[step(1.0, 0.3, 0.1, 0.5)] * 3, scores={"peak_bytes": 7.0})
    slow = Trace(1, steps=[step(1.0, 0.8, 0.1), step(3.0, 2.8, 0.1), step(1.2, 0.9, 0.2, 0.1)])
    server = Trace(2, steps=[step(9.0, 9.0)])
    visits = Visits(CellAsked("parameter_server", 2, 8))
    visits.note([quick, slow, server], discarded=True)
    assert visits.step_seconds == [] and visits.typical_seconds == 1.2
    visits.note([quick, slow, server], discarded=False)
    assert visits.step_seconds == [1.2] and visits.compute_seconds == [0.9]
    assert visits.exchange_seconds == [pytest.approx(0.1)] and visits.peak_bytes == [7]


def test_where_not_every_step_exchanges_the_mean_counts() -> None:
    visits = Visits(CellAsked("local_sgd", 2, 8))
    traces = [Trace(rank, steps=[step(1.0, 0.9)] * 9 + [step(2.0, 0.9, 0.8, 0.2)]) for rank in range(2)]
    visits.note(traces, discarded=False)
    assert visits.asked.exchange_every == 10
    assert visits.step_seconds == [pytest.approx(1.1)] and visits.exchange_seconds == [pytest.approx(0.1)]


class FakeMeter(CellMeter):
    """Visits take three seconds; the batch's size is how long a step takes, in milliseconds."""

    def __init__(self, left: float) -> None:
        self.now, self.order = left, []  # type: ignore[var-annotated]

    @property
    def left(self) -> float:
        return float(self.now)

    def expected_seconds(self, visits: Visits) -> float:
        return 3.0

    def visit(self, visits: Visits) -> bool:
        self.now -= 3.0
        self.order.append(visits.asked.per_worker_batch_size)
        visits.note([Trace(0, steps=[step(visits.asked.per_worker_batch_size / 1e3, 0.1)])], discarded=False)
        return True


@pytest.fixture
def three() -> Iterator[Any]:
    yield [Visits(CellAsked("local", 1, size)) for size in (1, 2, 3)]


def test_rounds_turn_their_order(three: list[Visits]) -> None:
    meter = FakeMeter(left=100)
    measure_in_turns(meter, three, 3)
    assert meter.order == [1, 2, 3, 3, 2, 1, 1, 2, 3]
    assert [each.cell.step_seconds for each in three] == [(0.001,) * 3, (0.002,) * 3, (0.003,) * 3]


def test_the_most_important_is_there_when_the_time_is_over(three: list[Visits]) -> None:
    meter = FakeMeter(left=13)
    measure_in_turns(meter, three, 3)
    assert meter.order == [1, 2, 3, 3], "a fifth visit would not end in time"
    three[1].failure = "it failed"
    late = FakeMeter(left=7)
    measure_in_turns(late, three, 3)
    assert late.order == [1, 1], "what it has less of, without what failed"


def test_how_many_steps_a_visit_has() -> None:
    assert [steps_of(seconds) for seconds in (0.001, 0.1, 0.24, 0.5, 3.0)] == [200, 6, 3, 2, 1]
    assert steps_of(0.001, asked=7) == 7

"""The two paths of the simulator, event by event and all workers of a round at once, agree to the nanosecond."""

from __future__ import annotations

import time

import numpy as np
import pytest

from lockstep.analysis.statistics import AnalysisError
from lockstep.engine.delays import KINDS, make_delays
from lockstep.engine.delays.base import NoDelays
from lockstep.engine.options import JobError
from lockstep.engine.policies import Setting, WaitForAll, Work
from lockstep.engine.policies.k_sync import KSync, KSyncOptions
from lockstep.engine.policies.rounds import Floats, RoundPolicy, Whole
from lockstep.predict.cost_model import Costs
from lockstep.predict.link_model import AlphaBeta
from lockstep.simulate import Cluster, SimulatedRun, Until, simulate
from lockstep.simulate.clock import nanoseconds
from lockstep.simulate.worker import Times, course_of

COSTS = Costs(fixed_seconds=0.002, image_seconds=0.003, crowding=0.0, gradient_bytes=4e6)
LINK = AlphaBeta(1e-4, 1e-9)
NO_LINK = AlphaBeta(0.0, 0.0)
SYNTHETIC = [name for name in KINDS if name != "trace"]
OPTIONS = {"gone": "gone:worker=0,at=1"}


class AfterTheMedian(RoundPolicy):
    """Whoever takes more than 1.5 times as long as half of the workers is left out."""

    def limit_after(self, expected: int) -> int | None:
        return max(1, expected // 2)

    def limit_seconds(self, arrivals: Floats, expected: int) -> float:
        return 1.5 * float(np.median(arrivals))


class UntilADeadline(RoundPolicy):
    """Everybody contributes what it has after 60 ms."""

    def deadline_seconds(self) -> float | None:
        return 0.06


class Uneven(RoundPolicy):
    """The last worker gets as much as all others together."""

    def sizes(self, samples: int, present: Whole) -> Whole:
        if len(present) == 1:
            return np.array([samples])
        small, rest = divmod(samples // 2, len(present) - 1)
        sizes = np.full(len(present), small)
        sizes[0] += rest
        sizes[-1] = samples - sizes[:-1].sum()
        return sizes


def ran(
    kind: type[RoundPolicy], workers: int, text: str, path: str, micro_batch: int = 0, updates: int = 15
) -> SimulatedRun:  # fmt: skip
    policy = kind(Setting(workers, samples=1000, global_batch=max(64, 5 * workers), micro_batch=micro_batch))
    cluster = Cluster(workers, COSTS, LINK, update_seconds=0.001)
    delays = make_delays(text, workers, seed=3)
    return simulate(policy, cluster, delays, Until(updates=updates), path=path)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("kind", [WaitForAll, KSync, AfterTheMedian, UntilADeadline, Uneven])
@pytest.mark.parametrize("delays", SYNTHETIC)
def test_every_step_ends_at_the_same_nanosecond(delays: str, kind: type[RoundPolicy], workers: int) -> None:
    for micro_batch in (0, 3):
        try:
            at_once = ran(kind, workers, OPTIONS.get(delays, delays), "rounds", micro_batch)
        except JobError:
            assert delays in ("bad_node", "groups", "gone"), "only these need several workers"
            return
        one_by_one = ran(kind, workers, OPTIONS.get(delays, delays), "events", micro_batch)
        assert at_once.updates.drop(columns="loss").equals(one_by_one.updates.drop(columns="loss"))
        assert at_once.sums["applied"] == one_by_one.sums["applied"]


def seconds_of_cpu(updates: int) -> tuple[float, float]:
    """Of so many updates event by event with their table, at the best of three; and how many events they are."""
    found = []
    for _ in range(3):
        policy, delays = KSync(Setting(64, samples=6400, global_batch=64)), make_delays("pareto", 64, seed=0)
        began = time.process_time()
        run = simulate(policy, Cluster(64, COSTS, LINK), delays, Until(updates=updates), keep_tasks=True)
        found.append(time.process_time() - began)
    return min(found), run.sums["events"]


def test_events_take_no_longer_the_more_there_are() -> None:
    """The target is 100 000 events a second, and twice the time for twice the steps. A busy machine is allowed a third
    of that, in CPU time."""
    (small, _), (large, events) = seconds_of_cpu(100), seconds_of_cpu(200)
    assert events / large > 33_000
    assert large < 3 * small


def test_a_round_without_delays_is_what_the_cost_model_says() -> None:
    """The server's link carries 2 n messages; those of others hide behind a worker's computing where it is long."""
    workers, share = 4, 16
    policy = WaitForAll(Setting(workers, 1000 * share * workers, share * workers))
    run = simulate(policy, Cluster(workers, COSTS, LINK, 0.001), make_delays("none", workers, 0), Until(updates=5))
    # Workers start one message after the other, and so they finish: the last one's way is the round.
    own = COSTS.compute_seconds(share) + 2 * 1e-4 + (workers + 1) * 4e-3 + 0.001
    assert run.step_seconds == pytest.approx(own, rel=1e-12)
    slow = simulate(
        WaitForAll(Setting(workers, 1000 * share * workers, share * workers)),
        Cluster(workers, Costs(0.0, 0.0, 0.0, gradient_bytes=4e6), LINK, 0.001), make_delays("none", workers, 0),
        Until(updates=5),
    )  # fmt: skip
    assert slow.step_seconds == pytest.approx(2 * workers * 4e-3 + 0.001, rel=1e-12)


def test_k_sync_by_hand() -> None:
    """Two workers, the second twice as slow: the update takes the first; the second hears of it when it has computed.

    0.0   0.1        0.2        0.3
    |-- 0 -|-- 0 ----|-- 0 -----|        compute 0.1
    |-- 1 ~~~~ recalled while it was held up: it begins again at once
    """
    policy = KSync(Setting(2, 1000, 2), KSyncOptions(k=1))
    cluster = Cluster(2, Costs(0.0, 0.1, 0.0), NO_LINK)
    run = simulate(policy, cluster, make_delays("bad_node:worker=1,slow=2", 2, 0), Until(updates=3), keep_tasks=True)
    assert run.updates["ended_seconds"].tolist() == [0.1, 0.2, 0.3]
    assert run.updates["samples"].tolist() == [1, 1, 1]
    assert run.tasks is not None
    slow = run.tasks[run.tasks["worker"] == 1]
    assert slow["fate"].tolist()[:2] == ["recalled", "recalled"]
    assert slow["compute_seconds"].tolist()[:2] == pytest.approx([0.1, 0.1])
    assert slow["delay_seconds"].tolist()[:2] == pytest.approx([0.0, 0.0]), "heard at the end of its computation"


def test_a_message_that_crosses_its_recall_is_received_and_discarded() -> None:
    """Three workers finish together; the first message makes the update, the others are on their way already."""
    policy = KSync(Setting(3, 3000, 3), KSyncOptions(k=1))
    cluster = Cluster(3, Costs(0.0, 0.1, 0.0, gradient_bytes=1.0), AlphaBeta(0.0, 0.01))
    run = simulate(policy, cluster, make_delays("none", 3, 0), Until(updates=2), keep_tasks=True)
    # Parameters leave at 0.01, 0.02 and 0.03, so worker 0 is ready at 0.11 and received at 0.12: the others recalled at
    # 0.12 were ready at 0.12 and 0.13: the second has crossed it, and the server receives it after it has sent anew.
    assert run.updates["ended_seconds"].iloc[0] == pytest.approx(0.12)
    assert run.tasks is not None
    fates = run.tasks[run.tasks["version"] == 0].set_index("worker")["fate"]
    assert fates.to_dict() == {0: "applied", 1: "recalled", 2: "recalled"}
    same = simulate(KSync(Setting(3, 3000, 3), KSyncOptions(k=1)), cluster, make_delays("none", 3, 0), Until(updates=2))
    assert run.updates["ended_seconds"].tolist() == same.updates["ended_seconds"].tolist()


@pytest.mark.parametrize("text", ["none", "exponential", "markov", "link"])
def test_time_is_accounted_for(text: str) -> None:
    """Both paths agree on computing and delays, and the table of tasks adds up to them, with a row for each."""
    one_by_one, at_once = (
        simulate(
            KSync(Setting(5, 1000, 100)), Cluster(5, COSTS, LINK), make_delays(text, 5, 1), Until(updates=20),
            keep_tasks=path == "events", path=path,
        )
        for path in ("events", "rounds")
    )  # fmt: skip
    assert one_by_one.tasks is not None
    assert len(one_by_one.tasks) == 5 * 20, "also those whose message was on its way as the run ended"
    assert one_by_one.sums["recalled"] == at_once.sums["recalled"]
    for name in ("compute_seconds", "delay_seconds"):
        assert one_by_one.sums[name] == pytest.approx(at_once.sums[name], abs=1e-9)
    tasks = one_by_one.tasks
    assert (tasks["delay_seconds"] >= -1e-12).all()
    total = tasks["ended_seconds"] - tasks["began_seconds"]
    assert np.allclose(total, tasks["compute_seconds"] + tasks["delay_seconds"], atol=1e-9)
    assert one_by_one.sums["compute_seconds"] == pytest.approx(tasks["compute_seconds"].sum())
    assert tasks.loc[tasks["fate"] == "applied", "samples"].sum() == one_by_one.samples
    assert set(tasks["fate"]) <= {"applied", "recalled", "unfinished"}
    assert (tasks.loc[tasks["fate"] == "applied", "staleness"] == 0).all()


def test_a_message_that_is_lost_has_its_row_too() -> None:
    """Worker 2 is recalled while its message waits for the server, and is gone before that has received it."""
    run = simulate(
        KSync(Setting(3, 999, 9)), Cluster(3, COSTS, LINK, 0.001), make_delays("gone:worker=2,at=0.038", 3, 0),
        Until(updates=3), keep_tasks=True,
    )  # fmt: skip
    assert run.tasks is not None
    assert run.tasks.query("worker == 2")["fate"].tolist() == ["recalled"] * 3


def test_who_has_no_sample_takes_no_time() -> None:
    """Bug: event by event such a worker paid a micro-batch's fixed costs, and its pause; real ranks pay neither."""
    fixed = Costs(fixed_seconds=0.05, image_seconds=0.001, crowding=0.0, gradient_bytes=1.0)
    runs = [
        simulate(
            WaitForAll(Setting(3, 12, 5)), Cluster(3, fixed, NO_LINK), make_delays("pareto:shape=1", 3, 0),
            Until(updates=30), path=path,
        )
        for path in ("rounds", "events")
    ]  # fmt: skip
    assert runs[0].updates["ended_seconds"].tolist() == runs[1].updates["ended_seconds"].tolist()
    assert (runs[0].updates["samples"] == 2).sum() == 10, "a batch of two for three workers"


class Fast(NoDelays):
    """Half of the time: what a trace says of a worker that is faster than the median."""

    def end(
        self, worker: int, task: int, start: float, work_seconds: float, piece: int = 0, pieces: int = 1
    ) -> float:
        return start + work_seconds / 2


def test_a_micro_batch_that_a_trace_has_faster() -> None:
    """Bug: its computing was taken to last longer than the micro-batch itself, and a recall to be heard that late."""
    times = Times(Costs(0.0, 0.1, 0.0), Fast(NoDelays.options_kind(), 1, 0), 1)
    course = course_of(0, 0, 0, Work(((0, 4),), 4, 2), 0, times)
    tenth = nanoseconds(0.1)
    assert [(piece.began, piece.computed, piece.ended) for piece in course.pieces] == [
        (0, tenth, tenth), (tenth, 2 * tenth, 2 * tenth),
    ]  # fmt: skip
    assert course.compute == course.ended == 2 * tenth
    assert course.listens(tenth // 2) == tenth and course.computed(3 * tenth // 2) == 3 * tenth // 2


def test_a_recall_before_the_beginning_costs_nothing() -> None:
    """Bug: a worker that was still busy computed a micro-batch of a task that it had been recalled from long before."""
    times = Times(Costs(0.0, 0.1, 0.0), NoDelays(NoDelays.options_kind(), 1, 0), 1)
    course = course_of(0, 3, 0, Work(((0, 4),), 4, 2), nanoseconds(5.0), times)
    assert course.listens(nanoseconds(4.0)) == course.listens(course.began) == nanoseconds(5.0)
    assert course.computed(nanoseconds(5.0)) == 0
    assert course.listens(nanoseconds(5.1)) == nanoseconds(5.2)


def test_a_worker_that_never_comes_ends_what_waits_for_it() -> None:
    waits = ran(WaitForAll, 3, "gone:worker=2,at=0.6", "events")
    goes_on = ran(KSync, 3, "gone:worker=2,at=0.6", "events")
    assert 0 < len(waits.updates) < 15
    assert len(goes_on.updates) == 15


def test_what_a_path_can_not_give_is_refused_by_name() -> None:
    cluster, delays = Cluster(2, COSTS, LINK), make_delays("none", 2, 0)
    with pytest.raises(AnalysisError, match="path='rounds' has neither gradients nor a table of tasks"):
        simulate(WaitForAll(Setting(2, 8, 4)), cluster, delays, Until(updates=1), path="rounds", keep_tasks=True)
    with pytest.raises(AnalysisError, match="path='both' does not exist; there are: auto, rounds, events"):
        simulate(WaitForAll(Setting(2, 8, 4)), cluster, delays, Until(updates=1), path="both")
    for path in ("rounds", "events"):
        with pytest.raises(AnalysisError, match="a policy for 3 workers on a cluster of 2"):
            simulate(WaitForAll(Setting(3, 8, 4)), cluster, delays, Until(updates=1), path=path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "has no end; give one"),
        ({"updates": 0}, "updates=0 ends no run"),
        ({"seconds": float("inf")}, "seconds=inf ends no run"),
        ({"loss": float("nan")}, "loss=nan ends no run"),
    ],
)
def test_runs_without_an_end(given: dict[str, float], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        Until(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": 0}, "workers=0 computes nothing"),
        ({"workers": 2, "standby": 2}, "standby=2 of 2 workers"),
        ({"workers": 2, "update_seconds": float("nan")}, "update_seconds=nan is not possible"),
    ],
)
def test_clusters_that_can_not_be(given: dict[str, float], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        Cluster(costs=COSTS, link=LINK, **given)  # type: ignore[arg-type]

"""The server of policies and its workers, on threads of this process: what they compute, and who is told what."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.job import Job
from lockstep.engine.options import JobError
from lockstep.engine.policies import POLICIES, Decision, Setting, Use, Work, policy_of
from lockstep.engine.policies.stand_ins import StandIns
from lockstep.engine.replica import Replica
from lockstep.engine.sync import orders
from lockstep.engine.sync.orders import Note
from lockstep.engine.sync.policy_server import PolicyServer
from lockstep.engine.training import checkpoint
from lockstep.engine.training.loop import Site, Trace, run_job
from lockstep.engine.training.replicas import replica_for
from lockstep.engine.usecases import UseCase
from steps import on_ranks
from together import TOLERANCE, alone, served_job


def ran(this: Job, path: Path | None = None, case: Any = None, resume: bool = False) -> list[Trace]:
    site = Site(use_case=case or tiny.case(), checkpoint=None if path is None else str(path), resume=resume)
    return on_ranks(this.ranks, lambda group: run_job(this, group, site))


def tasks_of(traces: list[Trace]) -> pd.DataFrame:
    return pd.DataFrame(traces[-1].tables["tasks"])


@pytest.mark.parametrize("policy", ["wait_for_all", "reassign"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_policy_that_takes_all_trains_as_one_worker_does(policy: str, workers: int, tmp_path: Path) -> None:
    """37 samples in batches of 8: the last batch of an epoch has 5, which 2 and 3 workers do not share evenly."""
    ran(served_job(policy, workers), tmp_path / "c")
    expected = alone(tiny.case(), tmp_path / "alone")
    assert (checkpoint.read(str(tmp_path / "c"))["parameters"] - expected).abs().max() < TOLERANCE


def test_micro_batches_change_nothing(tmp_path: Path) -> None:
    ran(served_job(workers=2, micro_batch=3), tmp_path / "c")
    expected = alone(tiny.case(), tmp_path / "alone")
    assert (checkpoint.read(str(tmp_path / "c"))["parameters"] - expected).abs().max() < TOLERANCE


def test_every_task_has_a_row_and_one_fate() -> None:
    tasks = tasks_of(ran(served_job("k_sync", 3, policy_options="k=2", delays="bad_node:worker=1,slow=20")))
    assert set(tasks["fate"]) <= {"applied", "recalled", "unfinished"}
    assert (tasks["samples"] > 0).all(), "of a task that was recalled, those that were given out, as in virtual time"
    for _, own in tasks.groupby("worker"):
        assert sorted(own["task"]) == list(range(len(own)))
    assert not tasks.duplicated(["worker", "task"]).any()
    applied = tasks[tasks["fate"] == "applied"]
    assert applied.groupby("update").size().tolist() == [2] * 12
    assert (applied["staleness"] == 0).all()
    assert (tasks["ended_seconds"] >= tasks["began_seconds"]).all() and (applied["compute_seconds"] > 0).all()
    assert (tasks["compute_seconds"] >= 0).all(), "a run may end before a worker has begun its last task"
    assert (tasks["delay_seconds"] >= 0).all()


def test_who_is_late_is_recalled_and_its_delay_ends() -> None:
    """Worker 1 would be held up for a minute in every task; nobody waits for it, and it hears so within the test."""
    tasks = tasks_of(ran(served_job("k_sync", 3, policy_options="k=2", delays="bad_node:worker=1,slow=1000000")))
    late = tasks[tasks["worker"] == 1]
    assert len(late) > 1 and set(late["fate"]) <= {"recalled", "unfinished"}
    assert (late["delay_seconds"] < 30).all()


def test_a_worker_that_never_comes_costs_only_its_samples() -> None:
    traces = ran(served_job("k_sync", 3, policy_options="k=2", delays="gone:worker=2"))
    assert len(traces[-1].steps) == 12
    assert set(tasks_of(traces).query("worker == 2")["fate"]) <= {"recalled", "unfinished"}


def test_ssp_keeps_its_bound() -> None:
    traces = ran(served_job("ssp", 3, policy_options="bound=2", delays="bad_node:worker=1,slow=20", steps=30))
    tasks = tasks_of(traces)
    done = {worker: own["task"].max() for worker, own in tasks[tasks["update"] >= 0].groupby("worker")}
    assert max(done.values()) - min(done.values()) <= 3
    assert (tasks.loc[tasks["update"] >= 0, "staleness"] >= 0).all()


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"local_sgd"}))
def test_every_policy_trains_to_its_end(policy: str) -> None:
    """All workers end with the server's parameters, after as many updates as were asked for."""
    this = served_job(policy, 4, micro_batch=1, delays="exponential:mean=1", updates=6, steps=1, warmup_steps=1,
               standby=int(policy in ("standby", "dpro_sm")))  # fmt: skip
    kept: dict[int, Replica] = {}

    def make(case: UseCase, job: Job, group: Group) -> Replica:
        kept[group.rank] = replica_for(case, job, group)
        return kept[group.rank]

    traces = on_ranks(this.ranks, lambda group: run_job(this, group, Site(use_case=tiny.case()), make))
    assert len(kept) == 4
    assert all(torch.equal(kept[rank].parameters, kept[0].parameters) for rank in kept)
    tasks = tasks_of(traces)
    assert tasks["update"].max() == 5
    assert not tasks.duplicated(["worker", "task"]).any()


def test_emulated_computing_takes_what_it_says() -> None:
    """Twelve steps of 4 images on each of two workers: 20 ms, of which the gradient takes only a part."""
    this = served_job(workers=2, delays="none", compute="sleep:fixed_seconds=0.012,image_seconds=0.002")
    tasks = tasks_of(ran(this))
    full = tasks[tasks["samples"] == 4]
    assert full["compute_seconds"].min() >= 0.02
    assert full["compute_seconds"].median() < 0.04
    assert full["delay_seconds"].median() < 0.01


def test_resume_goes_on_where_the_unbroken_run_is(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"steps": 1, "warmup_steps": 1}
    ran(served_job(updates=12, **fields), tmp_path / "whole")
    ran(served_job(updates=5, **fields), tmp_path / "broken")
    ran(served_job(updates=12, **fields), tmp_path / "broken", resume=True)
    whole, broken = (checkpoint.read(str(tmp_path / name))["parameters"] for name in ("whole", "broken"))
    assert (whole - broken).abs().max() < TOLERANCE


def test_a_checkpoint_of_every_epoch_waits_until_all_have_stopped(tmp_path: Path) -> None:
    """`lockstep.train` asks for one per epoch; workers with steps of their own would wait for each other for ever."""
    this = served_job("asynchronous", 3, updates=12, steps=1, warmup_steps=1)
    site = Site(use_case=tiny.case(), checkpoint=str(tmp_path / "c"), checkpoint_every_steps=1)
    traces = on_ranks(this.ranks, lambda group: run_job(this, group, site))
    assert checkpoint.read(str(tmp_path / "c"))["sync"]["step"] == 12
    assert tasks_of(traces)["update"].max() == 11


def test_coded_work_of_a_batch_that_has_no_part_for_everybody(tmp_path: Path) -> None:
    """Bug: the last batch of an epoch has 5 samples, and a sixth worker's part none: it had no place to read from."""
    ran(served_job("gradient_coding_cyclic", 6), tmp_path / "c")
    expected = alone(tiny.case(), tmp_path / "alone")
    assert (checkpoint.read(str(tmp_path / "c"))["parameters"] - expected).abs().max() < 100 * TOLERANCE


def test_a_trace_may_be_faster_than_the_median(tmp_path: Path) -> None:
    """Bug: worker 0 of two, which takes half of the median, slept all its work; in virtual time it took half."""
    rows = [(worker, step, (1.0, 3.0)[worker]) for step in range(3) for worker in range(2)]
    pd.DataFrame(rows, columns=["worker", "step", "seconds"]).to_csv(tmp_path / "run.csv", index=False)
    this = served_job(delays=f"trace:file={tmp_path / 'run.csv'}", compute="sleep:fixed_seconds=0.1", steps=6)
    tasks = tasks_of(ran(this)).query("fate == 'applied'")
    seconds = (tasks["ended_seconds"] - tasks["began_seconds"]).groupby(tasks["worker"]).median()
    assert seconds[0] == pytest.approx(0.05, abs=0.03) and seconds[1] == pytest.approx(0.15, abs=0.03)
    assert (tasks["delay_seconds"] >= -1e-9).all()


def test_what_the_policy_has_found_out_stands_beside_the_tasks() -> None:
    """Its facts, and the forecast that each task was given with; in virtual time they stand in the same columns."""
    fields: dict[str, Any] = {"micro_batch": 1, "policy_options": "deadline=0.05,forecast=last"}
    traces = ran(served_job("deadline", 2, updates=6, steps=1, warmup_steps=1, **fields))
    facts = {str(row["fact"]): row["value"] for row in traces[-1].tables["facts"]}
    assert facts["deadline_seconds"] == 0.05
    forecast = tasks_of(traces).query("version > 1")["forecast_seconds"]
    assert len(forecast) and (forecast > 0).all()


def test_a_replay_chooses_the_deadline_on_real_ranks_too() -> None:
    """Once in every global batch. Whatever it has come to, no sample is lost, and the run ends."""
    fields: dict[str, Any] = {"micro_batch": 1, "policy_options": "forecast=last,every=1", "steps": 20}
    traces = ran(served_job("deadline_by_replay", 3, delays="exponential:mean=1", **fields))
    facts = {str(row["fact"]): row["value"] for row in traces[-1].tables["facts"]}
    assert sum(count for name, count in facts.items() if name.startswith("chose_")) >= 2  # type: ignore[misc]
    tasks = tasks_of(traces)
    assert set(tasks["fate"]) <= {"applied", "late", "recalled", "unfinished"}
    assert tasks.query("update >= 0")["update"].nunique() == len(traces[-1].steps)


def test_the_state_of_a_node_reaches_the_forecaster(monkeypatch: pytest.MonkeyPatch) -> None:
    servers, update = [], PolicyServer.update

    def kept(server: PolicyServer) -> Any:
        servers.append(server)
        return update(server)

    monkeypatch.setattr(PolicyServer, "update", kept)
    ran(served_job("wrangler", 2, delays="credits:balance=0.01"))
    assert servers[0].policy.forecast.state()["_readings"]["names"] == ["credits"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policy_options": "samples=100"}, None),
        ({"policy_options": "samples=100", "images": 50}, "samples=100 of a task are more than the 50 images"),
        ({"policy_options": "samples=100", "images": 500}, None),
        ({"shards": 2, "servers": 2}, "has one decider: give servers=1 and shards=1"),
        ({"policy_options": " samples=4"}, "is not in canonical form; write 'samples=4'"),
    ],
)
def test_jobs_that_the_server_refuses(fields: dict[str, Any], said: str | None) -> None:
    """Bug: a task of more samples than a batch was refused, for the number of images was taken to be the batch."""
    if said is None:
        assert served_job("asynchronous", 2, **fields).policy == "asynchronous"
        return
    with pytest.raises(JobError, match=said):
        served_job("asynchronous", 2, **fields)


@pytest.mark.parametrize(
    ("delays", "message"),
    [
        ("link", "delays='link' slows messages, and what one takes alone only a simulator knows"),
        ("gone:worker=7", "worker=7 does not exist; there are 2: 0 … 1"),
    ],
)
def test_delays_that_real_workers_can_not_have_are_refused_before_they_start(delays: str, message: str) -> None:
    """Bugs: a link's delays were accepted and did nothing; a worker that does not exist was refused inside a rank."""
    with pytest.raises(JobError) as caught:
        served_job("k_sync", delays=delays)
    assert message in str(caught.value)


def test_a_wall_clock_that_jumps_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines and delays are on the monotonic clock: here the other one jumps back by a day at every look."""
    looks = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: -86400.0 * next(looks))
    traces = ran(served_job("deadline", 3, micro_batch=1, delays="exponential:mean=1"))
    tasks = tasks_of(traces)
    assert len(traces[-1].steps) == 12 and (tasks["ended_seconds"] >= tasks["began_seconds"]).all()


def with_a_long_stop(policy: str, options: str, steps: int) -> pd.DataFrame:
    """What was applied, in order, of three workers that each stand still for many updates' time now and then."""
    delays = "periodic:slow=100000,period=0.4,share=0.5"
    tasks = tasks_of(ran(served_job(policy, 3, policy_options=options, delays=delays, micro_batch=1, steps=steps)))
    used = tasks[tasks["update"] >= 0].sort_values("update")
    ended = used.groupby("worker")["ended_seconds"]
    assert ended.diff().max() > 0.1 and ended.max().min() > 0.4, "it stood, and came back"
    return used


@pytest.mark.slow
def test_a_worker_that_comes_back_after_a_long_stop_is_within_the_bound_of_ssp() -> None:
    done = dict.fromkeys(range(3), 0)
    for worker in with_a_long_stop("ssp", "bound=2", 150)["worker"]:
        done[worker] += 1
        assert max(done.values()) - min(done.values()) <= 3


@pytest.mark.slow
def test_a_worker_that_comes_back_after_a_long_stop_is_not_stale_beyond_the_deadlines_bound() -> None:
    """Bug of this test: on a slow machine an image took longer than its deadline of 2 ms, and the job was refused."""
    assert with_a_long_stop("deadline", "deadline=0.02", 100)["staleness"].max() <= 2


@pytest.mark.parametrize("options", ["when=detected,forecast=last", "reading=weights,when=detected,forecast=last"])
def test_the_lstm_that_stands_in_learns_only_while_the_server_waits(
    options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it learnt inside the update, for which every worker waited."""
    within: list[bool] = []  # of each update of the LSTM, whether the server was making an update
    updating, apply, update = [False], PolicyServer._apply, StandIns._update

    def applied(server: PolicyServer, decision: Decision) -> None:
        updating[0] = True
        apply(server, decision)
        updating[0] = False

    def updated(self: StandIns, *given: Any) -> None:
        within.append(updating[0])
        update(self, *given)

    monkeypatch.setattr(PolicyServer, "_apply", applied)
    monkeypatch.setattr(StandIns, "_update", updated)
    fields: dict[str, Any] = {"delays": "exponential:mean=2", "compute": "sleep:image_seconds=0.004", "steps": 24}
    ran(served_job("dpro_sm", 3, policy_options=options, **fields))
    assert within and not any(within)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_stand_ins_hear_where_momentum_moves_the_parameters(kind: torch.dtype) -> None:
    """Bugs: the LSTM of the weights was told of the gradients' sum; then, in double precision, of no way at all, for
    the parameters before an update were the very tensor that it changes."""

    def serve(group: Group) -> None:
        parameters = torch.ones(3, dtype=kind)
        policy = policy_of("dpro_sm", "reading=weights,forecast=last", Setting(1, 8, 4))
        server = PolicyServer(group, parameters, lambda own: torch.optim.SGD(own, lr=0.1, momentum=0.9), policy, 9)
        for task in range(2):
            server._works[0, task] = Work((), 4, 4)
            server._here[0, task] = Note(orders.CONTRIBUTES, task, samples=4), torch.ones(3, dtype=kind)
            server._apply(Decision(apply=(Use(0, task, 1.0),)))
        assert server._stand_ins is not None
        assert server._stand_ins._way.tolist() == pytest.approx([1 + 1.9] * 3, rel=1e-5)

    on_ranks(1, serve)

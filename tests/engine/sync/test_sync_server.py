"""Parameter servers: Algorithm 1 against a loop written by hand, and the server's side under several policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny
from lockstep.engine.groups import ANY, Group, GroupError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.options import JobError
from lockstep.engine.policies import (
    NOTHING,
    Arrived,
    Contribution,
    Decision,
    Event,
    Policy,
    Setting,
    Use,
    WaitForAll,
    Work,
)
from lockstep.engine.policies.k_sync import KSync
from lockstep.engine.sync import StepCost, make_sync
from lockstep.engine.sync.allreduce import AllreduceSync
from lockstep.engine.sync.owner import HEAD, PULLED, PUSH, PUSHED, STOP, Owner, head
from lockstep.engine.sync.parameter_server import ParameterServerSync
from lockstep.engine.sync.shard import GradientShard, WeightShard, best_worker
from lockstep.engine.sync.weight_server import WeightServerSync
from lockstep.engine.training.loop import run_job
from steps import PLAN, SGD, batch, on_ranks, replica, trained

LENGTH = replica().length


def on_server(group: Group, make: Any, workers: int) -> Any:
    """A worker trains, a server serves; its answer is the steps at which it updated."""
    if group.rank < workers:
        sync = make()
        made = trained(group, lambda: sync)
        sync.close()
        return made
    sync, steps = make(), []
    sync.attach_server(group)
    while (served := sync.serve()) is not None:
        steps.append(served[0])
    return steps


def algorithm_1(workers: int, every: int, opt_weight: str) -> tuple[Tensor, list[int]]:
    """The final weights of each worker, and who was best at each exchange; from the paper's listing."""
    replicas = [replica() for _ in range(workers)]
    for made in replicas:
        made.rebind(gradients=torch.zeros(made.length))
    leaves = [torch.nn.Parameter(made.parameters) for made in replicas]
    optimisers = [SGD([leaf]) for leaf in leaves]
    chosen: list[int] = []
    losses: list[list[float]] = [[] for _ in range(workers)]
    for step in range(PLAN.steps):
        for rank, made in enumerate(replicas):
            (share,) = PLAN.shares(step, rank, workers)
            made.clear_gradients()
            ones = np.ones(len(share.sample_ids), np.float32)
            sum_of_losses = made.backward(batch(share.sample_ids, share.epoch), ones)
            losses[rank] += [sum_of_losses / len(ones)] * len(ones)
            whole = 8 if (step + 1) % 5 else 5
            leaves[rank].grad = made.gradients * (workers / whole)
            optimisers[rank].step()
        if (step + 1) % every == 0:
            weights = [made.parameters.clone() for made in replicas]
            best = int(np.argmin([np.mean(own) for own in losses]))
            chosen.append(best)
            opt = weights[best] if opt_weight == "best" else torch.stack(weights).mean(dim=0)
            for made in replicas:
                made.parameters.copy_(opt)
            losses = [[] for _ in range(workers)]
    return torch.stack([made.parameters for made in replicas]), chosen


@pytest.mark.parametrize(("servers", "shards"), [(1, 1), (2, 2), (0, 1), (0, 3)])
@pytest.mark.parametrize("opt_weight", ["mean", "best"])
def test_algorithm_1(opt_weight: str, servers: int, shards: int) -> None:
    """k = 5 of 12 steps: the last two are local, and the model is what an exchange would choose then."""
    workers, every = 3, 5

    def make() -> WeightServerSync:
        return WeightServerSync(PLAN, SGD, WaitForAll, servers, shards, opt_weight, every)

    found = on_ranks(workers + servers, on_server, make, workers)
    expected, chosen = algorithm_1(workers, every, opt_weight)
    assert len(set(chosen)) > 1 or opt_weight == "mean", "the best must change, or this test could not see a mix-up"
    for rank in range(workers):
        parameters, model, *_ = found[rank]
        assert (parameters - expected[rank]).abs().max() < 3e-7
        assert torch.equal(model, found[0][1])
        if opt_weight == "mean":
            assert (model - expected.mean(dim=0)).abs().max() < 3e-7
        else:
            assert min(float((model - own).abs().max()) for own in expected) < 3e-7
    assert found[workers:] == [[4, 9]] * servers, "an update after steps 5 and 10"


def test_the_best_worker() -> None:
    nan, inf = float("nan"), float("inf")
    assert best_worker({0: 2.0, 1: 1.0, 2: 1.0}) == 1, "the first of several"
    assert best_worker({2: nan, 1: 3.0, 0: inf}) == 1
    assert best_worker({0: nan, 1: inf}) == 0


def test_weights_are_received_in_rank_order_whoever_comes_first() -> None:
    """Algorithm 1: `for l in 1 to no. of nodes: comm.recv(source=l)`."""
    groups = ThreadGroup.of(4)
    asked: list[int] = []

    class Noting(ThreadGroup):
        def receive(
            self, source: int = ANY, tag: str = "", deadline_seconds: float | None = None
        ) -> tuple[int, Tensor]:
            asked.append(source)
            return super().receive(source, tag, deadline_seconds)

    server = Noting(3, groups[0]._boxes, None, {})
    for worker in (2, 0, 1):
        groups[worker].send(head(PUSH, 1, 0.5), 3, HEAD)
        groups[worker].send(torch.full((2,), float(worker)), 3, PUSHED)
    owner = Owner(server, WeightShard(torch.zeros(2), "mean"), WaitForAll(Setting(3, 12, 3)))
    assert owner.update() is not None
    assert asked == [0, 1, 2, 0, 1, 2], "heads, then weights"
    assert groups[1].receive(3, PULLED)[1].tolist() == [1.0, 1.0]


# --- gradients ---


@pytest.mark.parametrize(("servers", "shards"), [(1, 1), (2, 2), (0, 1), (0, 2), (0, 3)])
def test_gradients_reach_what_an_all_reduce_reaches(servers: int, shards: int) -> None:
    expected = on_ranks(3, trained, lambda: AllreduceSync(PLAN, SGD))[0][0]

    def make() -> ParameterServerSync:
        return ParameterServerSync(PLAN, SGD, WaitForAll, servers, shards)

    found = on_ranks(3 + servers, on_server, make, 3)
    for rank in range(3):
        assert (found[rank][0] - expected).abs().max() < 3e-7
        assert torch.equal(found[rank][0], found[0][0])
    assert found[3:] == [list(range(12))] * servers


def bytes_of(workers: int, servers: int, shards: int) -> list[float]:
    """Sent by each rank in one exchange."""

    def one(group: Group) -> float:
        sync = ParameterServerSync(PLAN, SGD, WaitForAll, servers, shards)
        if group.rank >= workers:
            sync.attach_server(group)
            served = sync.serve()
            assert served is not None
            assert sync.serve() is None
            return served[1].bytes_sent
        sync.attach(replica(), group)
        cost: StepCost = sync.step()
        sync.close()
        return cost.bytes_sent

    return on_ranks(workers + servers, one)


def test_a_shard_on_every_worker_has_no_bottleneck() -> None:
    """Four workers: the one server sends four models; with shards, nobody sends more than a gradient and a model."""
    whole, note = 4 * LENGTH, 3 * 8
    assert bytes_of(4, 1, 1) == [whole + note] * 4 + [4 * whole]
    sharded = bytes_of(4, 0, 4)
    for rank, sent in enumerate(sharded):
        own = LENGTH * (rank + 1) // 4 - LENGTH * rank // 4
        assert sent == (whole - 4 * own) + 3 * note + 3 * 4 * own
    assert max(sharded) < 1.6 * whole


class FirstTwo(Policy):
    """A backup worker: an update takes the first two of three; the third's contribution is dropped."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.updates = 0
        self.waiting: list[Contribution] = []
        self.versions: list[tuple[int, int]] = []

    def begin(self, now: float) -> Decision:
        return Decision(release=tuple((worker, WORK) for worker in range(self.workers)))

    def on(self, event: Event, now: float) -> Decision:
        assert isinstance(event, Arrived)
        one = event.contribution
        self.versions.append((one.worker, one.version))
        if one.version < self.updates:
            return Decision(drop=((one.worker, one.task),), release=((one.worker, WORK),))
        self.waiting.append(one)
        if len(self.waiting) < 2:
            return NOTHING
        chosen, self.waiting = self.waiting, []
        self.updates += 1
        return everything(chosen)


class Impatient(Policy):
    """Goes on with whoever is there when the clock says so."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.since, self.here = 0.0, list[Contribution]()

    def begin(self, now: float) -> Decision:
        return NOTHING

    def on(self, event: Event, now: float) -> Decision:
        assert isinstance(event, Arrived)
        self.since = now
        self.here.append(event.contribution)
        return NOTHING

    def wake_at(self) -> float | None:
        return self.since + 0.05 if self.here else None

    def woke(self, now: float) -> Decision:
        assert now >= self.since + 0.05
        return everything(self.here)


WORK = Work(((0, 1),), 1, 1)


def everything(here: list[Contribution]) -> Decision:
    """One update of all of these, who then go on."""
    return Decision(
        apply=tuple(Use(one.worker, one.task, 1.0) for one in here), release=tuple((one.worker, WORK) for one in here)
    )


def served_by(policy: Policy, pushes: list[int], updates: int) -> tuple[list[ThreadGroup], Owner, list[float]]:
    """An owner of one parameter, plain SGD with rate 1, after `updates` updates; worker w pushes the gradient 10^w."""
    groups = ThreadGroup.of(4)
    for worker in pushes:
        groups[worker].send(head(PUSH, 1), 3, HEAD)
        groups[worker].send(torch.tensor([10.0**worker]), 3, PUSHED)
    shard = GradientShard(torch.zeros(1), lambda tensors: torch.optim.SGD(tensors, lr=1.0), None)
    owner, seen = Owner(groups[3], shard, policy), []
    for _ in range(updates):
        assert owner.update() is not None
        seen.append(float(shard.parameters.detach()))
    groups[0].send(head(STOP), 3, HEAD)
    return groups, owner, seen


def test_a_policy_that_drops() -> None:
    """The same server runs policies that are still to come: contributions are applied or dropped as it says."""
    policy = FirstTwo(Setting(3, 12, 3))
    groups, owner, seen = served_by(policy, pushes=[2, 0, 1, 2, 0], updates=2)
    assert seen == [-101.0, -202.0], "worker 1's was dropped"
    assert policy.versions == [(2, 0), (0, 0), (1, 0), (2, 1), (0, 1)]
    assert groups[1].receive(3, PULLED)[1].item() == -101.0, "it went on from the parameters as they were"
    assert owner.update() is None


def test_a_policy_that_has_a_clock() -> None:
    _, _, seen = served_by(Impatient(Setting(3, 12, 3)), pushes=[1, 0], updates=1)
    assert seen == [-11.0]


def test_an_owner_refuses_what_it_does_not_do() -> None:
    """A policy that recalls, several owners that may differ, and receiving in rank order from who may be left out."""
    group, plain = ThreadGroup.of(4)[3], Setting(3, 12, 3)
    shard = GradientShard(torch.zeros(1), lambda tensors: torch.optim.SGD(tensors, lr=1.0), None)
    with pytest.raises(JobError, match="KSync needs recall, and an owner of a shard follows neither work nor recall"):
        Owner(group, shard, KSync(plain))
    with pytest.raises(JobError, match="FirstTwo needs one decider, and shards=2 have an owner each; give shards=1"):
        Owner(group, shard, FirstTwo(plain), owners=2)
    with pytest.raises(JobError, match="FirstTwo may leave workers out, and WeightShard receives in rank order"):
        Owner(group, WeightShard(torch.zeros(2), "mean"), FirstTwo(plain))
    Owner(group, WeightShard(torch.zeros(2), "mean"), WaitForAll(plain), owners=2)


def test_a_job_gives_the_options() -> None:
    base = Job(sync="parameter_server", policy="wait_for_all", workers=4)
    sync = make_sync(base.with_(shards=4, compression="topk", density=0.5), PLAN, SGD)
    assert isinstance(sync, ParameterServerSync)
    assert (sync.servers, sync.shards, type(sync.codec).__name__) == (0, 4, "TopK")
    assert isinstance(sync.policy(Setting(4, 8, 8)), WaitForAll)
    sync = make_sync(base.with_(servers=2, shards=2, opt_weight="best", exchange_every=9), PLAN, SGD)
    assert isinstance(sync, WeightServerSync)
    assert (sync.servers, sync.shards, sync.opt_weight, sync.every) == (2, 2, "best", 9)


@pytest.mark.parametrize(("servers", "shards", "size"), [(1, 1, 1), (0, 3, 2), (1, 2, 3)])
def test_too_few_ranks(servers: int, shards: int, size: int) -> None:
    def attach(group: Group) -> None:
        ParameterServerSync(PLAN, SGD, WaitForAll, servers, shards).attach(replica(), group)

    with pytest.raises(GroupError, match=f"{shards} shards on {servers} servers in a group of {size}: give more ranks"):
        on_ranks(size, attach)


def test_a_team_of_another_size_is_refused() -> None:
    job = Job(sync="parameter_server", policy="wait_for_all", workers=2, servers=1)
    with pytest.raises(GroupError, match="1 ranks can't run a job of 2 workers and 1 servers; start a team of 3"):
        run_job(job, ThreadGroup.of(1)[0])


def test_state_of_another_number_of_shards_is_refused() -> None:
    sync = ParameterServerSync(PLAN, SGD)
    sync.attach(replica(), ThreadGroup.of(1)[0])
    state = sync.state_dict()
    with pytest.raises(ValueError, match="holds the state of 2 shards; resume it with shards=2, not 1"):
        sync.load_state_dict(state | {"optimiser": state["optimiser"] * 2})


def test_a_sync_without_servers_says_so() -> None:
    with pytest.raises(GroupError, match="AllreduceSync has no servers; give servers=0"):
        AllreduceSync(PLAN, tiny.SGD).attach_server(ThreadGroup.of(1)[0])
    with pytest.raises(GroupError, match="AllreduceSync has no servers"):
        AllreduceSync(PLAN, tiny.SGD).serve()

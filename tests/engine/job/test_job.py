"""A job is data: it survives JSON, and a bad value is refused with its name, its value and the fix."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from lockstep.engine.job import CHOICES, IDENTITY, Job, JobError
from lockstep.engine.job.strategies import STRATEGIES


def test_json_round_trip() -> None:
    job = Job.of("processes", workers=3, seed=7, precision="bfloat16", input="memory", selected=True)
    assert Job.from_json(json.dumps(asdict(job))) == job
    assert Job.from_json("{}") == Job()
    assert set(IDENTITY) == set(asdict(job))


def test_an_unknown_field_is_named_with_those_that_exist() -> None:
    with pytest.raises(JobError, match=r"unknown job field\(s\) \['wrokers'\]; there are: experiment, .*workers"):
        Job.from_json('{"wrokers": 2}')


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "2", None])
@pytest.mark.parametrize(
    "name", ["workers", "threads_per_worker", "cores_per_worker", "global_batch_size", "steps", "shards"]
)
def test_counts_are_whole_numbers_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(JobError) as caught:
        Job(**{name: value})
    assert str(caught.value) == f"{name}={value!r} is not possible; give a whole number of at least 1"


@pytest.mark.parametrize("value", [-1, False, 0.5])
@pytest.mark.parametrize("name", ["warmup_steps", "servers", "exchange_every", "round", "images", "seed"])
def test_counts_that_may_be_zero(name: str, value: Any) -> None:
    assert getattr(Job(sync="local_sgd", **{name: 0}), name) == 0
    with pytest.raises(JobError, match=f"^{name}={value!r} is not possible; give a whole number of at least 0$"):
        Job(**{name: value})


@pytest.mark.parametrize("name", CHOICES)
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(JobError) as caught:
        Job(**{name: "float16"})
    assert str(caught.value) == f"{name}='float16' does not exist; there are: {', '.join(CHOICES[name])}"


def test_an_unknown_strategy_is_refused_with_those_that_exist() -> None:
    with pytest.raises(JobError, match=r"strategy='proceses' does not exist; there are: sequential, .*processes"):
        Job.of("proceses")


@pytest.mark.parametrize("workers", [0, -2, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_refuses_impossible_workers(strategy: str, workers: int) -> None:
    """Also those with one worker: 0 must not quietly become 1."""
    with pytest.raises(JobError, match=f"={workers!r} is not possible"):
        Job.of(strategy, workers=workers)


def test_weak_scaling_the_batch_grows_with_the_workers() -> None:
    for workers in (1, 2, 5):
        job = Job.of("processes", workers=workers, per_worker_batch_size=8)
        assert (job.workers, job.global_batch_size, job.per_worker_batch_size) == (workers, 8 * workers, 8)
    assert Job.of("processes", workers=4, global_batch_size=16).global_batch_size == 16, "strong scaling, if asked for"


def test_a_budget_of_cores_for_one_worker() -> None:
    sequential, intra_op = Job.of("sequential", workers=4), Job.of("intra_op", workers=4)
    assert (sequential.workers, sequential.threads_per_worker, sequential.cores_per_worker) == (1, 1, 1)
    assert (intra_op.workers, intra_op.threads_per_worker, intra_op.cores_per_worker) == (1, 4, 4)
    assert (sequential.global_batch_size, intra_op.global_batch_size) == (32, 128), "as 4 workers would have"


SERVED: dict[str, Any] = {"sync": "parameter_server", "policy": "wait_for_all", "workers": 4}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bucket": "layer"}, "bucket='layer' does nothing with sync='local'; only allreduce reads it"),
        ({"overlap": True, "sync": "shared_memory"}, "overlap=True does nothing with sync='shared_memory'"),
        ({"compression": "topk", "sync": "gossip"}, "only allreduce and parameter_server read it"),
        ({"density": 0.5, "sync": "allreduce"}, "density=0.5 does nothing with compression='none'; give 'topk'"),
        ({"density": 0.0}, "density=0.0 is not possible; give a number above 0 and of at most 1"),
        ({"density": "1"}, "density='1' is not possible; give a number above 0"),
        ({"overlap": 1}, "overlap=1 is neither True nor False"),
        ({"exchange_every": 2, "sync": "allreduce"}, "exchange_every=2 does nothing with sync='allreduce'"),
        ({"servers": 1, "sync": "allreduce"}, "servers=1 does nothing with sync='allreduce'"),
        ({"policy": "wait_for_all"}, "policy='wait_for_all' does nothing with sync='local'"),
        ({"sync": "parameter_server"}, "sync='parameter_server' needs a policy; there are: wait_for_all"),
        (SERVED | {"servers": 2}, "shards=1 on servers=2: each server has one; give shards=servers"),
        (SERVED | {"shards": 5}, "shards=5 for 4 workers and no server: give at most one per worker"),
        (SERVED | {"exchange_every": 5}, "exchange_every=5 with gradients, which are of one step"),
        (SERVED | {"opt_weight": "mean", "compression": "topk"}, "compression='topk' is for gradients"),
        ({"hosts": 2}, "hosts=2: launcher='threads' stays on this machine; give 'mpiexec'"),
        ({"link_bits_per_second": 1e9}, "with hosts=1: no link; give hosts=2"),
        (
            {"link_bits_per_second": 1e9, "hosts": 2, "workers": 2, "launcher": "engines", "sync": "allreduce"},
            "link_bits_per_second=1000000000.0 does nothing with launcher='engines'; only 'mpiexec' emulates links",
        ),
    ],
)
def test_a_record_can_not_claim_what_did_not_run(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        Job(**fields)
    assert message in str(caught.value)


PIPELINE: dict[str, Any] = {
    "model_parallel": "pipeline", "schedule": "gpipe", "stages": 2, "micro_batches": 4, "partition": "balanced",
    "workers": 2, "launcher": "processes",
}  # fmt: skip
ZERO_BUBBLE = PIPELINE | {"schedule": "zero_bubble"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_parallel": "none"},
            "stages=2 does nothing with model_parallel='none'; give",
        ),
        ({"model_parallel": "head"}, "stages=2 does nothing with model_parallel='head'"),
        ({"schedule": "none"}, "schedule='none', partition='balanced': give one of naive, gpipe, 1f1b,"),
        ({"partition": "none"}, "and one of balanced, equal_layers, equal_parameters"),
        ({"launcher": "threads"}, "torch.distributed needs a process per rank; give 'processes'"),
        ({"stages": 1}, "stages=1 with stages_per_rank=1: give a multiple of it, so that there are two ranks or more"),
        ({"stages": 3, "stages_per_rank": 2}, "stages=3 with stages_per_rank=2: give a multiple of it"),
        (
            {"workers": 5, "stages": 2, "sync": "allreduce"},
            "workers=5 can't be split into pipelines of 2 ranks (stages=2, stages_per_rank=1): 1 would be left over",
        ),
        (
            {"global_batch_size": 30},
            "global_batch_size=30 can't be split over 1 replica(s) x 4 micro-batches; give a multiple of 4",
        ),
        ({"workers": 4, "sync": "allreduce", "global_batch_size": 36}, "over 2 replica(s) x 4 micro-batches"),
        ({"sync": "allreduce"}, "sync='allreduce' has nobody to agree with: one replica of 2 stages; give 'local'"),
        ({"workers": 4}, "sync='local' can't agree 2 replicas of a pipeline; give one of allreduce, shared_memory"),
        ({"schedule": "naive"}, "naive means the whole batch at once; give 1"),
        ({"schedule": "1f1b", "micro_batches": 1}, "micro_batches=1 for stages=2: give at least 2"),
        ({"stages": 4, "stages_per_rank": 2}, "schedule='gpipe' with stages_per_rank=2: it has one stage on each rank"),
        ({"schedule": "interleaved_1f1b"}, "stages_per_rank=1 is '1f1b'; give stages_per_rank=2 or more"),
        ({"schedule": "zero_bubble_v"}, "its V has two stages per rank; give 2"),
        (
            ZERO_BUBBLE | {"micro_batches": 5, "global_batch_size": 40},
            "micro_batches=5: not a multiple of its 2 rounds",
        ),
        (ZERO_BUBBLE | {"activations": "recomputed"}, "its backward pass is in two halves"),
        (
            {"partition": "equal_layers", "stage_memory_bytes": 1},
            "stage_memory_bytes=1 does nothing with partition='equal_layers'; give partition='balanced'",
        ),
        ({"stage_memory_bytes": -1}, "stage_memory_bytes=-1 is not possible"),
        (
            {"copies": "avoided", "precision": "bfloat16"},
            "copies='avoided' with model_parallel='pipeline': only 'kept' is possible",
        ),
    ],
)
def test_a_pipeline_that_can_not_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as caught:
        Job(**(PIPELINE | changes))
    assert message in str(caught.value)


def test_replicas_of_a_pipeline_share_out_the_batch() -> None:
    alone, hybrid = Job.of("1f1b", workers=2), Job.of("1f1b", workers=6, sync="allreduce", global_batch_size=96)
    assert (alone.pipeline_ranks, alone.replicas, hybrid.pipeline_ranks, hybrid.replicas) == (2, 1, 2, 3)
    assert Job.of("interleaved_1f1b", workers=2).pipeline_ranks == 2, "four stages, two on each rank"
    odd = Job.of("1f1b", workers=2, global_batch_size=12).cautions(usable_cores=2)
    assert odd == [], "two ranks of one replica share a batch whole: nothing is uneven"


def test_a_head_in_parts_needs_the_sync_that_knows_parts() -> None:
    assert Job.of("head_parallel", workers=2).sync == "allreduce"
    with pytest.raises(JobError, match="only sync='allreduce' sums the common ones"):
        Job.of("head_parallel", workers=2, sync="gossip")


def test_several_hosts() -> None:
    job = Job(launcher="mpiexec", sync="shared_memory", workers=4, hosts=2, link_bits_per_second=1e9)
    assert (job.hosts, job.link_bits_per_second) == (2, 1e9)


def test_servers_are_ranks_too() -> None:
    job = Job.of("parameter_server", workers=4)
    assert (job.workers, job.servers, job.shards, job.ranks) == (4, 1, 1, 5), "the paper's five nodes"
    assert Job.of("sharded_server", workers=4).shards == 4
    assert job.cautions(usable_cores=4)[0].startswith("4 workers and 1 server x 1 core on 4 usable cores")


@pytest.mark.parametrize(
    ("strategy", "fields", "synchronous"),
    [
        ("allreduce", {}, True),
        ("layerwise", {}, True),
        ("node_aware", {}, True),
        ("parameter_server", {}, True),
        ("sharded_server", {}, True),
        ("local_sgd", {}, False),
        ("local_sgd", {"exchange_every": 1}, True),
        ("epochwise", {}, False),
        ("algorithm_1", {}, False),
        ("algorithm_1", {"exchange_every": 1}, True),
        ("algorithm_1_best", {"exchange_every": 1}, False),
        ("topk", {}, False),
        ("topk", {"density": 1.0}, True),
        ("terngrad", {}, False),
        ("gossip", {}, False),
        ("gossip", {"workers": 3}, True),
    ],
)
def test_rows_say_what_is_not_synchronous_sgd(strategy: str, fields: dict[str, Any], synchronous: bool) -> None:
    job = Job.of(strategy, **({"workers": 4, "global_batch_size": 12} | fields))
    notes = " ".join(job.cautions(usable_cores=8))
    assert job.synchronous == synchronous
    assert ("not synchronous SGD" in notes) != synchronous
    averaged = strategy in ("local_sgd", "algorithm_1", "gossip")
    assert ("averages parameters in every step" in notes) == (synchronous and averaged)


def test_cores_follow_threads_unless_given() -> None:
    assert Job.of("threads", workers=2, threads_per_worker=3).cores_per_worker == 3
    assert Job.of("sequential", cores_per_worker=2).threads_per_worker == 1


def test_a_job_is_not_changed_but_copied() -> None:
    job = Job()
    assert job.with_(round=3).round == 3
    assert job.round == 0
    with pytest.raises(JobError, match="workers=0"):
        job.with_(workers=0)


def test_what_is_fine_needs_no_caution() -> None:
    assert Job.of("processes", workers=2, images=100).cautions(usable_cores=2) == []


@pytest.mark.parametrize(
    ("job", "caution"),
    [
        (
            Job.of("processes", workers=3, cores_per_worker=2),
            "3 workers x 2 cores on 4 usable cores: workers share cores",
        ),
        (
            Job.of("processes", workers=4, images=3),
            "4 workers for 3 training images: some have nothing to train on",
        ),
        (
            Job.of("processes", workers=3, global_batch_size=32),
            "global batch 32 is not divisible by 3 workers: shares of 11 and 10, the largest decides the step",
        ),
    ],
)
def test_what_is_allowed_but_worth_a_warning(job: Job, caution: str) -> None:
    assert job.cautions(usable_cores=4) == [caution]


def test_every_caution_is_told() -> None:
    assert len(Job.of("threads", workers=5, global_batch_size=32, images=2).cautions(usable_cores=4)) == 3


def test_the_label_tells_rows_apart() -> None:
    assert Job.of("threads", workers=2).label == "SimpleBig threads 2x1 float32 jpeg batch 64"


DRIVER: dict[str, Any] = {"launcher": "spark_driver", "sync": "sparknet", "workers": 2}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"launcher": "spark", "sync": "allreduce", "hosts": 2}, "hosts=2 with launcher='spark'"),
        ({"launcher": "spark", "sync": "allreduce", "device": "cuda"}, "device='cuda' with launcher='spark'"),
        ({"launcher": "spark", "sync": "allreduce", "transport": "rma"}, "transport='rma' is one-sided MPI"),
        ({"launcher": "spark", "sync": "sparknet"}, "sync='sparknet' with launcher='spark'"),
        ({"launcher": "spark_driver", "sync": "local"}, "sync='local' with launcher='spark_driver'"),
        (DRIVER, "executor_data='none'"),
        (DRIVER | {"executor_data": "rdd", "input": "memory"}, "input='memory' with sync='sparknet'"),
        (DRIVER | {"executor_data": "rdd", "opt_weight": "best"}, "opt_weight='best' is Algorithm 1's"),
        (DRIVER | {"executor_data": "rdd", "exchange_every": 10}, "exchange_every=10.*give opt_weight='mean'"),
        (DRIVER | {"executor_data": "rdd", "state_averaged": True}, "state_averaged=True.*give opt_weight='mean'"),
        ({"sync": "allreduce", "executor_data": "rdd"}, "executor_data='rdd' does nothing with sync='allreduce'"),
    ],
)
def test_what_spark_can_not_do_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        Job(**fields)
    for name in ("overhead", "preparation"):  # yardsticks on the driver alone
        assert Job(launcher="spark_driver", sync="local", experiment=name).launcher == "spark_driver"

"""A model in stages trains as the whole one: every schedule, partition and hybrid, on every launcher with processes."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.groups import Group
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.engine.launch import WorkerFailed
from lockstep.engine.replica.pipeline.replica import PipelineReplica
from lockstep.engine.training import checkpoint
from lockstep.engine.training.checkpoint import CheckpointError
from lockstep.engine.training.loop import Site, run_job
from lockstep.measure.probes import PROBES
from together import TOLERANCE, Teams, alone, small_job

TWO: dict[str, Any] = {
    "model_parallel": "pipeline",
    "workers": 2,
    "stages": 2,
    "micro_batches": 4,
    "schedule": "1f1b",
    "partition": "equal_layers",
}
FOUR = TWO | {"stages": 4, "stages_per_rank": 2}
HYBRID = TWO | {"workers": 4, "micro_batches": 2, "sync": "allreduce"}
VARIANTS: dict[str, dict[str, Any]] = {
    "naive": TWO | {"schedule": "naive", "micro_batches": 1},
    "gpipe": TWO | {"schedule": "gpipe"},
    "gpipe-2": TWO | {"schedule": "gpipe", "micro_batches": 2},
    "1f1b": TWO,
    "1f1b-8": TWO | {"micro_batches": 8},
    "interleaved_1f1b": FOUR | {"schedule": "interleaved_1f1b"},
    "zero_bubble": TWO | {"schedule": "zero_bubble"},
    "zero_bubble-2-per-rank": FOUR | {"schedule": "zero_bubble"},
    "zero_bubble_v": FOUR | {"schedule": "zero_bubble_v"},
    "balanced": TWO | {"partition": "balanced"},
    "equal_parameters": TWO | {"partition": "equal_parameters"},
    "recomputed": TWO | {"activations": "recomputed"},
    "3-stages": TWO | {"workers": 3, "stages": 3},
    "hybrid": HYBRID,
    "hybrid-shared_memory": HYBRID | {"sync": "shared_memory"},
    "hybrid-zero_bubble-layer-overlap": HYBRID | {"schedule": "zero_bubble", "bucket": "layer", "overlap": True},
    "hybrid-local_sgd": HYBRID | {"sync": "local_sgd"},
}
EVERY = pytest.mark.parametrize("variant", VARIANTS)
SOME = pytest.mark.parametrize("variant", ["1f1b", "zero_bubble_v", "hybrid"])


def staged(variant: str, launcher: str = "processes", **changes: Any) -> Job:
    return small_job(**({"launcher": launcher} | VARIANTS[variant] | changes))


@EVERY
def test_the_parameters_are_those_of_the_whole_model(teams: Teams, variant: str, tmp_path: Path) -> None:
    """Three epochs of 37 samples in batches of 8: every epoch ends with a batch of 5, less than the micro-batches.
    Dropout is on; the next test is without."""
    case = tiny.case(model=tiny.deep_net)
    expected = alone(case, tmp_path / "alone")
    got = teams.together(staged(variant), case, tmp_path / "together")
    assert (got - expected).abs().max() < TOLERANCE


@EVERY
def test_the_gradients_are_those_of_the_whole_model(teams: Teams, variant: str, tmp_path: Path) -> None:
    """After each step: plain SGD with a rate of 1, so that a step moves the parameters by the gradient."""
    case = tiny.case(model=functools.partial(tiny.deep_net, 0.0), optimiser=functools.partial(torch.optim.SGD, lr=1.0))
    before = torch.cat([each.detach().view(-1) for each in _seeded(case.model).parameters()])
    for steps in (1, 2, 3):
        whole = alone(case, tmp_path / "alone", steps=steps)
        parts = teams.together(staged(variant, steps=steps), case, tmp_path / "parts")
        gradient, of_parts = before - whole, before - parts
        assert gradient.abs().max() > 0.01
        assert (of_parts - gradient).abs().max() < 1e-6
        assert torch.nn.functional.cosine_similarity(of_parts, gradient, dim=0) > 1 - 1e-6


def _seeded(model: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made: nn.Module = model()
    return made


@pytest.mark.parametrize("launcher", ["mpiexec", "engines"])
@SOME
def test_under_mpi(teams: Teams, launcher: str, variant: str, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.deep_net)
    expected = alone(case, tmp_path / "alone")
    assert (teams.together(staged(variant, launcher), case, tmp_path / "c") - expected).abs().max() < TOLERANCE


def test_every_schedule_of_the_strategies_is_covered() -> None:
    tested = {(fields["schedule"], fields.get("stages_per_rank", 1)) for fields in VARIANTS.values()}
    for strategy in STRATEGIES.values():
        if strategy.fields.get("model_parallel") == "pipeline":
            assert (strategy.fields["schedule"], strategy.fields.get("stages_per_rank", 1)) in tested


@SOME
def test_the_same_seed_gives_the_same_bits(teams: Teams, variant: str, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.deep_net)
    first, second = (teams.together(staged(variant), case, tmp_path / name) for name in "ab")
    assert torch.equal(first, second)
    assert not torch.equal(first, teams.together(staged(variant, seed=1), case, tmp_path / "c"))


@SOME
def test_resume_reaches_the_unbroken_runs_parameters_exactly(teams: Teams, variant: str, tmp_path: Path) -> None:
    """Where the model is cut is kept with the checkpoint: a partition that is measured may come out otherwise."""
    case, options = tiny.case(model=tiny.deep_net), {"partition": "balanced"}
    unbroken = teams.together(staged(variant, **options), case, tmp_path / "unbroken")
    first = teams.together(staged(variant, steps=7, **options), case, tmp_path / "broken")
    assert not torch.equal(first, unbroken)
    cuts = checkpoint.read(str(tmp_path / "broken"))["cuts"]
    resumed = teams.together(staged(variant, **options), case, tmp_path / "broken", resume=True)
    assert checkpoint.read(str(tmp_path / "broken"))["cuts"] == cuts
    assert torch.equal(resumed, unbroken)


def test_a_checkpoint_of_another_partition_is_refused(teams: Teams, tmp_path: Path) -> None:
    """Its cuts are kept: the record would name a rule by which the model was not cut."""
    case = tiny.case(model=tiny.deep_net)
    teams.together(staged("1f1b"), case, tmp_path / "c")
    with pytest.raises(WorkerFailed, match=r"written with partition='equal_layers', this run has 'equal_parameters'"):
        teams.together(staged("equal_parameters"), case, tmp_path / "c", resume=True)


def test_a_checkpoint_of_other_stages_is_refused(teams: Teams, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.deep_net)
    teams.together(staged("1f1b"), case, tmp_path / "c")
    with pytest.raises(WorkerFailed, match=r"written with stages=2, this run has 3"):
        teams.together(staged("3-stages"), case, tmp_path / "c", resume=True)
    with pytest.raises(CheckpointError, match="written with model_parallel='pipeline', this run has 'none'"):
        where = Site(use_case=case, checkpoint=str(tmp_path / "c"), resume=True)
        run_job(small_job(), ThreadGroup.of(1)[0], where)


@pytest.mark.slow
@SOME
def test_evaluation_is_that_of_the_whole_model(teams: Teams, variant: str, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.deep_net)
    where = Site(use_case=case, checkpoint=str(tmp_path / "alone"), evaluate=True)
    expected = run_job(small_job(), ThreadGroup.of(1)[0], where).scores
    traces = teams.run(staged(variant), case, tmp_path / "c", evaluate=True)
    assert [trace.scores for trace in traces] == [expected] * len(traces)


@pytest.mark.parametrize("variant", ["1f1b", "hybrid"])
def test_running_statistics_come_from_every_stage(teams: Teams, variant: str, tmp_path: Path) -> None:
    case = tiny.case(model=tiny.normalised_net)
    teams.run(staged(variant), case, tmp_path / "c")
    content = checkpoint.read(str(tmp_path / "c"))
    buffers = content["buffers"]
    assert buffers.shape == (10,) and buffers[:5].abs().max() > 0 and (buffers[5:] != 1).all()
    assert int(content["others"]["1.num_batches_tracked"]) > 0 and len(content["others"]) == 1


@EVERY
def test_every_image_counts_once_and_seconds_add_up(teams: Teams, variant: str) -> None:
    traces = teams.run(staged(variant, steps=3, warmup_steps=2), tiny.case(model=tiny.deep_net))
    for steps in zip(*(trace.steps for trace in traces), strict=True):
        assert sum(times["images"] for times in steps) == 8 or sum(times["images"] for times in steps) == 5
        for times in steps:
            names = ("input", "compute", "idle", "wait", "exchange", "update")
            parts = [times[f"{name}_seconds"] for name in names]
            assert all(part >= 0 for part in parts), parts
            assert sum(parts) <= times["step_seconds"]


@EVERY
def test_the_tables_tell_of_every_stage_and_action(teams: Teams, variant: str) -> None:
    this = staged(variant, steps=2, warmup_steps=1)
    tables = teams.run(this, tiny.case(model=tiny.deep_net))[0].tables
    stages, actions = tables["stages"], tables["actions"]
    assert sorted((row["replica"], row["stage"]) for row in stages) == [
        (replica, stage) for replica in range(this.replicas) for stage in range(this.stages)
    ]
    of_first = sorted((row for row in stages if row["replica"] == 0), key=lambda row: row["stage"])
    assert of_first[0]["first_layer"] == 0 and of_first[-1]["last_layer"] == 12
    assert sum(int(row["parameters"]) for row in of_first) == sum(p.numel() for p in tiny.deep_net().parameters())
    for row in stages:
        count, holders = int(row["parameters"]), this.replicas if this.sync == "shared_memory" else 1
        state = row["parameter_bytes"] - 2 * 4 * count
        assert abs(state - 4 * count / holders) <= 4, "parameters, gradients and (its share of) momentum"
        assert 1 <= int(row["in_flight"]) <= this.micro_batches and int(row["activation_bytes"]) > 0
        assert float(row["forward_seconds"]) > 0 and float(row["backward_seconds"]) > 0
    done = [(row["replica"], row["stage"], row["micro_batch"]) for row in actions if row["action"] == "forward"]
    assert len(done) == len(set(done)) == this.replicas * this.stages * this.micro_batches
    assert min(float(row["start_seconds"]) for row in actions) == 0.0
    assert {row["action"] for row in actions} >= {"forward", "receive", "update"}


def test_zero_bubble_does_a_weights_half_apart(teams: Teams) -> None:
    actions = teams.run(staged("zero_bubble", steps=1), tiny.case(model=tiny.deep_net))[0].tables["actions"]
    assert {row["action"] for row in actions} >= {"input_backward", "weight_backward"}


def test_recomputing_holds_less(teams: Teams) -> None:
    held = {
        name: [
            row["activation_bytes"]
            for row in teams.run(staged(name), tiny.case(model=tiny.deep_net))[0].tables["stages"]
        ]
        for name in ("1f1b", "recomputed")
    }
    assert all(less < more for less, more in zip(held["recomputed"], held["1f1b"], strict=True))


def test_memory_is_counted_where_asked_for(teams: Teams) -> None:
    for experiment in ("speed", "stage_memory"):
        this = staged("1f1b", experiment=experiment, steps=1, warmup_steps=1)
        for row in teams.run(this, tiny.case(model=tiny.deep_net))[0].tables["stages"]:
            counted = float(row["peak_bytes"])
            assert (counted > float(row["parameter_bytes"]) / 3) == (experiment == "stage_memory")
            assert float(row["rss_bytes"]) > 1e6


def test_what_a_rank_needs_besides_is_known(teams: Teams) -> None:
    this = staged("1f1b", experiment="stage_memory", steps=1, warmup_steps=1, global_batch_size=8)
    first, second = sorted(
        teams.run(this, tiny.case(model=tiny.deep_net))[0].tables["stages"], key=lambda row: float(row["stage"])
    )
    image, cut = 4 * 2 * 3 * 7 * 6, 4 * 2 * 7  # bytes of two samples; three layers with parameters in each stage
    outputs, weights = (4 * 2 * 5 * 5 * 4, 4 * 2 * 6), (4 * 48 * 7, 4 * 7 * 6)  # the largest of each stage
    ahead = (4 - int(first["in_flight"]), 4 - int(second["in_flight"]))
    assert first["working_bytes"] == ahead[0] * image + 4 * cut + 2 * outputs[0] + weights[0]
    assert second["working_bytes"] == ahead[1] * cut + 2 * outputs[1] + weights[1]


def test_a_micro_batch_holds_its_own_images_only(teams: Teams) -> None:
    """Seen: torch gives each micro-batch a view of the whole batch, which was counted once for each of them."""
    counted = []
    for size in (8, 16):
        this = staged("gpipe", micro_batches=size // 2, global_batch_size=size)
        rows = teams.run(this, tiny.case(model=tiny.deep_net))[0].tables["stages"]
        counted.append([row["activation_bytes"] for row in rows])
    assert counted[0] == counted[1], "two samples in each micro-batch, whatever the batch"


@pytest.mark.parametrize("variant", ["1f1b", "zero_bubble", "zero_bubble_v", "balanced", "recomputed", "hybrid"])
def test_a_run_gives_its_memory_back(teams: Teams, variant: str) -> None:
    """Seen: hooks on saved tensors returned them as they were, and their graph, with all it held, stayed."""
    this = staged(variant, steps=2)
    for _ in range(2):
        teams.run(this, tiny.case(model=tiny.deep_net))
    left = teams.of("processes", this.ranks).call(_left_over)
    teams.run(this, tiny.case(model=tiny.deep_net))
    _assert_no_more(teams.of("processes", this.ranks).call(_left_over), left)
    assert all(replicas == 0 for replicas, _ in left)


@pytest.mark.parametrize("experiment", ["layers", "stage_times"])
def test_measuring_gives_its_memory_back(teams: Teams, experiment: str) -> None:
    this = staged("1f1b", experiment=experiment, steps=1, warmup_steps=1)
    function, site = PROBES[experiment].run, Site(use_case=tiny.case(model=tiny.deep_net))
    team = teams.of("processes", 2)
    team.run(this, site, function)
    left = team.call(_left_over)
    team.run(this, site, function)
    _assert_no_more(team.call(_left_over), left)


def _assert_no_more(now: list[tuple[int, int]], before: list[tuple[int, int]]) -> None:
    """A last message may be some bytes longer; a replica's parameters alone are 1,146 x 4 bytes."""
    for (replicas, held), (replicas_before, held_before) in zip(now, before, strict=True):
        assert replicas == replicas_before and held < held_before + 200


def _left_over(group: Group) -> tuple[int, int]:
    """Replicas of earlier calls in this process, and bytes of tensors."""
    del group
    gc.collect()
    tensors = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and not each.is_meta]
    replicas = sum(isinstance(each, PipelineReplica) for each in gc.get_objects())
    return replicas, sum(each.numel() * each.element_size() for each in tensors)


def test_evaluation_in_bfloat16(teams: Teams, tmp_path: Path) -> None:
    """Seen: activations between stages are bfloat16 then, which numpy does not know."""
    case = tiny.case(model=tiny.deep_net)
    traces = teams.run(staged("1f1b", precision="bfloat16", steps=2), case, tmp_path / "c", evaluate=True)
    assert 0 <= traces[0].scores["test_accuracy"] <= 1
    assert traces[0].scores == traces[1].scores


def test_jobs_of_a_warm_team_leave_no_connections_behind(teams: Teams) -> None:
    """Parts of a group are made once per team: each torch group holds sockets and threads."""
    for _ in range(2):
        teams.run(staged("hybrid", steps=1), tiny.case(model=tiny.deep_net))
    before = teams.of("processes", 4).call(_open_files)
    for _ in range(3):
        teams.run(staged("hybrid", steps=1), tiny.case(model=tiny.deep_net))
    assert teams.of("processes", 4).call(_open_files) == before


@pytest.mark.parametrize("launcher", ["processes", "mpiexec"])
def test_replicas_sum_large_gradients_with_torch(teams: Teams, launcher: str) -> None:
    assert teams.of(launcher, 4).call(_sum_of_column) == [2.0, 4.0, 2.0, 4.0]


def _sum_of_column(group: Group) -> float:
    """Ranks 0, 2 and ranks 1, 3: each sums its rank over 100 000 numbers."""
    numbers = torch.full((100_000,), float(group.rank))
    group.split(group.rank % 2).allreduce(numbers)
    assert numbers.min() == numbers.max()
    return float(numbers[0])


def _open_files(group: Group) -> int:
    del group
    return len(list(Path("/proc/self/fd").iterdir()))

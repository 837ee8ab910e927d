"""Layers and stages timed alone: every number is there, for the ranks and stages that the job asks for."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.replica.pipeline.cut import CutError
from lockstep.engine.replica.torch import MEMORY_FORMATS
from lockstep.engine.training.loop import Site
from lockstep.measure.probes import PROBES, stages
from lockstep.measure.probes.stages import IsolatedStage, run_layers, run_stage_times

SECONDS = ("forward_seconds", "backward_seconds", "input_backward_seconds", "weight_backward_seconds", "update_seconds")


def job(strategy: str, workers: int = 2, **others: Any) -> Job:
    usual = {"use_case": "own", "images": tiny.SAMPLES, "steps": 3, "warmup_steps": 1, "partition": "equal_layers"}
    return Job.of(strategy, workers=workers, global_batch_size=8, **(usual | others))


def site(**changes: Any) -> Site:
    return Site(use_case=tiny.case(**{"model": tiny.deep_net, **changes}))


def test_both_are_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "run_layers", lambda *of: ("layers", *of))
    monkeypatch.setattr(stages, "run_stage_times", lambda *of: ("stage times", *of))
    for name in ("layers", "stage_times"):
        assert PROBES[name].run("job", "group", "site") == (name.replace("_", " "), "job", "group", "site")


@pytest.mark.slow
def test_a_grid_is_read_without_what_takes_seconds_to_load() -> None:
    """Seen: half of the seconds of every notebook that measures, before its first cell of the grid."""
    program = "import sys, lockstep.measure.grid\nprint({'scipy.stats', 'torch._dynamo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_every_layer_has_its_costs() -> None:
    given = job("gpipe", micro_batches=2, experiment="layers")
    of_ranks = [run_layers(given, group, site()).tables for group in ThreadGroup.of(2)]
    assert of_ranks[1] == {}, "one rank measures"
    table = of_ranks[0]["layers"]
    model = list(tiny.deep_net())
    assert [row["layer"] for row in table] == list(range(len(model)))
    assert [row["name"] for row in table][:6] == ["Conv2d", "ReLU", "Conv2d", "ReLU", "Flatten", "KeyedDropout"]
    assert [row["parameters"] for row in table] == [sum(p.numel() for p in layer.parameters()) for layer in model]
    assert {row["micro_batch_size"] for row in table} == {4}
    assert all(float(row["forward_seconds"]) > 0 and float(row["backward_seconds"]) >= 0 for row in table)
    assert table[0]["output_bytes"] == 4 * 5 * 5 * 4 * 4 and table[-1]["output_bytes"] == 4 * 3 * 4
    assert float(table[0]["saved_bytes"]) > 0


def test_the_layers_of_a_replica_alone_are_of_its_whole_batch() -> None:
    """Data parallel: no micro-batches."""
    given = Job(experiment="layers", use_case="own", global_batch_size=6, images=tiny.SAMPLES, steps=1)
    table = run_layers(given, ThreadGroup.of(1)[0], site()).tables["layers"]
    assert {row["micro_batch_size"] for row in table} == {6}


def test_a_model_that_is_no_row_of_layers_has_none_to_measure() -> None:
    with pytest.raises(CutError, match="Spare can't be cut"):
        run_layers(job("gpipe", experiment="layers"), ThreadGroup.of(1)[0], site(model=tiny.Spare))


def test_the_mean_micro_batch_of_a_step_by_hand() -> None:
    """Medians 1 s where there are no gradients yet, 4 s where there are some to add to."""
    stage = IsolatedStage.__new__(IsolatedStage)
    stage.seconds = defaultdict(list, {("backward", True): [9.0, 1.0, 0.5], ("backward", False): [4.0, 3.0, 5.0]})
    assert stage.mean_seconds("backward", firsts=1, others=2) == 3.0
    assert stage.mean_seconds("backward", firsts=0, others=3) == 4.0, "replicas agree in a buffer that is there before"
    assert stage.mean_seconds("backward", firsts=1, others=0) == 1.0
    assert math.isnan(stage.mean_seconds("input_backward", firsts=1, others=2))


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_a_stage_alone_lays_images_out_as_in_its_pipeline(memory_format: str) -> None:
    """Only the first stage's input was laid out, so what was predicted were steps that no pipeline takes."""
    given = job("gpipe", experiment="stage_times", memory_format=memory_format)
    seen: list[torch.Tensor] = []
    layer = nn.Conv2d(3, 5, 3)
    layer.register_forward_hook(lambda *passed: seen.append(passed[1][0]))
    shapes = {0: (torch.empty(4, 3, 7, 6, device="meta"), torch.empty(4, 5, 5, 4, device="meta"))}
    built = SimpleNamespace(shapes=shapes)
    stage = IsolatedStage(given, tiny.case(), built, 0, nn.Sequential(layer), torch.device("cpu"))  # type: ignore[arg-type]
    stage.micro_batch(halves=False, first=True)
    assert stage.input.is_contiguous(), "as what comes is"
    assert seen[0].is_contiguous(memory_format=MEMORY_FORMATS[memory_format])


def timed(team: Any, given: Job, **changes: Any) -> list[dict[str, Any]]:
    traces = team.run(given, site(**changes), run_stage_times)
    assert [trace.tables for trace in traces[1:]] == [{}] * (given.workers - 1)
    table: list[dict[str, Any]] = traces[0].tables["stages"]
    return table


def normalised() -> nn.Module:
    """Ends in a stage without dropout, begins it with a layer in place, and has running statistics."""
    return nn.Sequential(
        *(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(100, 4)),
        *(nn.ReLU(inplace=True), nn.Linear(4, 3)),
    )


def test_stages_are_timed_on_two_ranks(no_leftovers: None) -> None:
    """One team for all: starting one takes longer than what is measured."""
    with LAUNCHERS["processes"](2) as team:
        table = timed(team, job("1f1b", experiment="stage_times"))
        assert [(row["rank"], row["replica"], row["stage"]) for row in table] == [(0, 0, 0), (1, 0, 1)]
        assert [(row["first_layer"], row["last_layer"]) for row in table] == [(0, 8), (9, 12)]
        assert sum(row["parameters"] for row in table) == sum(p.numel() for p in tiny.deep_net().parameters())
        assert all(row[name] > 0 for row in table for name in SECONDS)
        assert table[0]["send_seconds"] > 0 and math.isnan(table[1]["send_seconds"])

        v = timed(team, job("zero_bubble_v", experiment="stage_times"))
        assert [(row["rank"], row["stage"]) for row in v] == [(0, 0), (0, 3), (1, 1), (1, 2)]
        sends = {row["stage"]: row["send_seconds"] for row in v}
        assert sends[0] > 0 and sends[1] == 0 and sends[2] > 0 and math.isnan(sends[3])
        assert v[0]["update_seconds"] == v[1]["update_seconds"], "of the rank"

        anew = timed(team, job("gpipe", experiment="stage_times", activations="recomputed"))
        assert all(math.isnan(row["input_backward_seconds"]) and row["backward_seconds"] > 0 for row in anew)

        whole = timed(team, job("naive_pipeline", experiment="stage_times"), model=normalised)
        assert [row["last_layer"] for row in whole] == [2, 6], "the flattening goes with the linear layer behind it"
        assert all(row[name] > 0 for row in whole for name in SECONDS)


@pytest.mark.filterwarnings("ignore:4 workers x 1 cores are more than")
def test_two_replicas_are_timed_at_once(no_leftovers: None) -> None:
    with LAUNCHERS["processes"](4) as team:
        table = timed(team, job("gpipe", workers=4, experiment="stage_times", sync="allreduce", micro_batches=2))
    assert [(row["rank"], row["replica"], row["stage"]) for row in table] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
        (3, 1, 1),
    ]
    assert all(row[name] > 0 for row in table for name in SECONDS)
    assert [math.isnan(row["send_seconds"]) for row in table] == [False, True, False, True]

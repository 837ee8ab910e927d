"""The parts of a pipeline that need no workers: who has which stage, what is noted, what memory is counted."""

from __future__ import annotations

import functools
import mmap
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.pipelining import schedules as torch_schedules

import tiny
from lockstep.engine.data.loader import Loader
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job
from lockstep.engine.pipelines.partition import LayerCost
from lockstep.engine.replica.pipeline import building
from lockstep.engine.replica.pipeline.cut import check_cuts, flatten
from lockstep.engine.replica.pipeline.memory import HeldMemory, PeakTensorMemory
from lockstep.engine.replica.pipeline.mesh import Mesh
from lockstep.engine.replica.pipeline.profile import static_costs
from lockstep.engine.replica.pipeline.recording import Recorder
from lockstep.engine.replica.pipeline.stage import Layers
from lockstep.engine.resident_memory import reset_peak_rss, rss_bytes

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("schedule", "stages", "expected"),
    [
        ("1f1b", 2, [[0], [1]]),
        ("interleaved_1f1b", 4, [[0, 2], [1, 3]]),
        ("zero_bubble_v", 4, [[0, 3], [1, 2]]),
    ],
)
def test_stages_are_dealt_out(schedule: str, stages: int, expected: list[list[int]]) -> None:
    group = ThreadGroup.of(1)[0]
    assert [Mesh(rank, group).stages(stages, schedule) for rank in ThreadGroup.of(2)] == expected


def test_cuts_found_for_a_model_are_not_used_for_another_that_cannot_be_cut_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a warm team that had trained with dropout reused the cut after it for dropout of 0, a view's other name."""

    def costs(layers: list[nn.Module], *_: Any, **__: Any) -> list[LayerCost]:
        seconds = [0.0] * len(layers)
        seconds[5] = seconds[6] = 1.0  # the Dropout and the Linear after it: best cut between them, if that is possible
        return [replace(cost, seconds=each) for cost, each in zip(static_costs(layers), seconds, strict=True)]

    monkeypatch.setattr(building, "profile", costs)
    monkeypatch.setattr(building, "_FOUND", {})
    job = Job(
        "tiny",
        workers=2,
        launcher="processes",
        model_parallel="pipeline",
        stages=2,
        schedule="1f1b",
        micro_batches=4,
        partition="balanced",
        global_batch_size=8,
    )
    cuts = {}
    for p in (0.3, 0.0):
        case = tiny.case(model=functools.partial(tiny.deep_net, p))
        cuts[p] = building.agree_on_cuts(case, job, ThreadGroup.of(1)[0], (3, 7, 6))
        check_cuts(flatten(case.model()), cuts[p])
    assert cuts[0.3] == [0, 6] and cuts[0.0] != [0, 6]


def test_actions_are_timed_in_order() -> None:
    recorder = Recorder()
    for index, action in enumerate(("forward", "backward")):
        with recorder.timing(3, index, action):
            time.sleep(0.01)
    first, second = recorder.actions
    assert (first.stage, first.micro_batch, first.action) == (3, 0, "forward")
    assert first.ended <= second.began and first.seconds >= 0.01
    assert recorder.seconds("forward") == first.seconds
    assert recorder.seconds("forward", "backward") == pytest.approx(first.seconds + second.seconds)
    recorder.clear()
    assert recorder.actions == []


class Operation:
    """Of torch's P2POp what the recorder looks at."""

    def __init__(self, op: Any) -> None:
        self.op, self.tensor = op, torch.empty(1)


def test_what_a_rank_waits_for_is_noted_and_torch_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_schedules, "_batch_p2p", lambda operations, desc=None: list(operations))
    monkeypatch.setattr(torch_schedules, "_wait_batch_p2p", lambda works: time.sleep(0.01))
    post, wait = torch_schedules._batch_p2p, torch_schedules._wait_batch_p2p
    recorder = Recorder()
    send, receive = Operation(torch.distributed.isend), Operation(torch.distributed.irecv)
    with pytest.raises(KeyError), recorder.listening():
        recorder.asks(0, 5, "send", [send])  # type: ignore[list-item]
        recorder.asks(0, 2, "receive", [receive])  # type: ignore[list-item]
        works = torch_schedules._batch_p2p([send, receive])  # type: ignore[list-item]
        torch_schedules._wait_batch_p2p(works)
        torch_schedules._wait_batch_p2p([])
        raise KeyError
    (noted,) = recorder.actions
    assert (noted.micro_batch, noted.action) == (2, "receive"), "of both together, what is to come is waited for"
    assert noted.seconds >= 0.01
    assert (torch_schedules._batch_p2p, torch_schedules._wait_batch_p2p) == (post, wait)


def test_torch_still_has_the_two_functions_that_are_listened_to() -> None:
    for name in ("_batch_p2p", "_wait_batch_p2p"):
        assert callable(getattr(torch_schedules, name))


def test_held_counts_memory_once_and_leaves_out_parameters() -> None:
    layers = nn.Sequential(nn.Linear(256, 1024, bias=False), nn.ReLU())
    x = torch.randn(64, 256, requires_grad=True)
    held = HeldMemory(layers)
    with held.saving():
        layers(x)
    # The linear layer keeps its input, the activation its output; the weight is no activation.
    assert held.bytes == 4 * (64 * 256 + 64 * 1024)
    held.add(x)
    assert held.bytes == 4 * (64 * 256 + 64 * 1024)


def test_rise_is_the_most_that_was_alive_at_once() -> None:
    rise = PeakTensorMemory()
    with rise.measuring():
        for _ in range(3):
            first = torch.empty(MEBIBYTE, dtype=torch.uint8)
            second = torch.empty(2 * MEBIBYTE, dtype=torch.uint8)
            del first, second
    assert 3 * MEBIBYTE <= rise.most_bytes < 3 * MEBIBYTE + 4096


@pytest.mark.linux
def test_peak_of_resident_memory_begins_anew() -> None:
    """The memory is mapped here: a heap may keep what a tensor has given back (seen in CI)."""
    with mmap.mmap(-1, 64 * MEBIBYTE) as big:
        for _ in range(64):
            big.write(b"\1" * MEBIBYTE)
        with_it = rss_bytes(peak=True)
    reset_peak_rss()
    without = rss_bytes(peak=True)
    assert without < with_it - 32 * MEBIBYTE, f"resident without the map: {rss_bytes()} bytes"


def test_a_stage_never_sends_a_view() -> None:
    """Seen: `Can't detach views in-place` in a zero bubble schedule behind a linear layer over three dimensions."""
    linear = nn.Linear(4, 2)
    assert linear(torch.ones(2, 3, 4))._is_view()
    stage = Layers(nn.Sequential(linear), torch.device("cpu"), "float32", recomputed=False)
    assert not stage(torch.ones(2, 3, 4))._is_view()


def test_a_batch_without_its_images() -> None:
    data = tiny.arrays()
    with Loader(data, seed=0) as loader:
        batch = loader.labels(2, [4, 1])
    assert batch.images.shape == (2, 0) and batch.epoch == 2
    assert batch.labels.tolist() == [int(data.labels[4]), int(data.labels[1])]
    assert len(batch) == 2

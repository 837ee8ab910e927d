"""Pieces of a gradient: every entry in exactly one, last layer first, summed while the backward pass goes on."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
from lockstep.engine.groups import Group, GroupError
from lockstep.engine.groups.threads import ThreadGroup
from lockstep.engine.job import Job, JobError
from lockstep.engine.sync import Plan, make_sync
from lockstep.engine.sync.allreduce import AllreduceSync, bucket_elements, buckets
from lockstep.engine.sync.background import Background
from steps import on_ranks, replica

PARTS = [slice(0, 3), slice(3, 10), slice(10, 11)]


@given(size=st.integers(1, 60))
def test_pieces_of_a_size_cover_the_gradient_once_from_its_end(size: int) -> None:
    found = buckets(PARTS, 11, f"{size}B")
    assert [place for piece in reversed(found) for place in range(11)[piece]] == list(range(11))
    assert all(piece.stop - piece.start == max(1, size // 4) for piece in found[:-1])


def test_pieces_by_layer_and_as_a_whole() -> None:
    assert buckets(PARTS, 11, "layer") == [slice(10, 11), slice(3, 10), slice(0, 3)]
    assert buckets(PARTS, 11, "whole") == [slice(0, 11)]


def test_sizes() -> None:
    assert [bucket_elements(text) for text in ("whole", "layer", "1B", "64KiB", "25MiB")] == [
        None, None, 1, 16 * 1024, 25 * 1024 * 256,
    ]  # fmt: skip
    for wrong in ("", "4", "4MB", "0B", "-1B", "1.5MiB", 4):
        with pytest.raises(JobError, match="is no size; give 'whole', 'layer' or a size such as '64KiB'"):
            bucket_elements(wrong)  # type: ignore[arg-type]


class Watched(AllreduceSync):
    """Notes which thread sums which piece, and which parts had not been reported then."""

    def _sum(self, bucket: slice) -> None:
        self.log.append((bucket, threading.current_thread().name, set(self._ready)))
        super()._sum(bucket)

    log: list[tuple[slice, str, set[int]]]


def watched(group: Group, bucket: str, overlap: bool, order: list[int]) -> list[tuple[slice, str, set[int]]]:
    sync = Watched(Plan(8, 8, 1), tiny.SGD, bucket, overlap)
    sync.log = []
    sync.attach(replica(), group)
    for part in order:
        sync.layer_ready(part)
        sync._background.drain()
    sync.step()
    sync.close()
    return sync.log


def test_a_piece_is_summed_as_soon_as_its_layers_stand() -> None:
    """Three layers, reported in the order of a backward pass: each piece goes off before the next layer stands."""
    for log in on_ranks(2, watched, "layer", True, [2, 1, 0]):
        assert [(thread, ready) for _, thread, ready in log] == [
            ("lockstep-exchange", {2}), ("lockstep-exchange", {2, 1}), ("lockstep-exchange", {2, 1, 0}),
        ]  # fmt: skip


def test_pieces_go_off_in_the_same_order_whatever_stands_first() -> None:
    """An unused layer is reported last on the rank that did not use it: collectives must match all the same."""
    backwards = [bucket for bucket, *_ in on_ranks(2, watched, "layer", True, [2, 1, 0])[0]]
    for order in ([0, 1, 2], [1, 0, 2], []):
        assert [bucket for bucket, *_ in on_ranks(2, watched, "layer", True, order)[0]] == backwards


def test_without_overlap_the_ranks_own_thread_sums_after_the_backward_pass() -> None:
    for log in on_ranks(2, watched, "layer", False, [2, 1, 0]):
        assert [thread.startswith("lockstep-rank") for _, thread, _ in log] == [True] * 3
        assert [ready for *_, ready in log] == [set()] * 3


def test_overlap_can_not_follow_a_gpu() -> None:
    made = replica()
    made.parameters = torch.empty(made.length, device="meta")
    sync = AllreduceSync(Plan(8, 8, 1), tiny.SGD, overlap=True)
    with pytest.raises(GroupError, match="overlap=True can't follow gradients on meta; give overlap=False"):
        sync.attach(made, ThreadGroup.of(1)[0])


def test_a_job_gives_the_options() -> None:
    job = Job(sync="allreduce", bucket="4MiB", overlap=True, compression="terngrad")
    sync = make_sync(job, Plan(8, 8, 1), tiny.SGD)
    assert isinstance(sync, AllreduceSync)
    assert (sync.bucket, sync.overlap, type(sync.codec).__name__) == ("4MiB", True, "TernGrad")


# --- the thread that communicates ---


def test_work_is_done_in_order_and_drain_waits_for_it() -> None:
    background, done = Background(), []
    for number in range(5):
        background.submit(lambda number=number: (time.sleep(0.01), done.append(number)))  # type: ignore[misc]
    background.drain()
    assert done == list(range(5))
    background.drain()
    background.close()


def test_an_error_is_raised_by_drain_and_later_work_is_dropped() -> None:
    background, done = Background(), []

    def fail() -> None:
        raise GroupError("a peer has left")

    background.submit(fail)
    background.submit(lambda: done.append(1))
    with pytest.raises(GroupError, match="a peer has left"):
        background.drain()
    assert done == []
    background.close()


def test_close_ends_the_thread_and_does_not_wait_for_a_collective_that_hangs() -> None:
    background, hang = Background(), threading.Event()
    background.submit(hang.wait)  # type: ignore[arg-type]
    thread = background._thread
    assert thread is not None
    background.close()
    assert thread.is_alive()
    hang.set()
    thread.join(5)
    assert not thread.is_alive()

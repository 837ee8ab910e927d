"""Messages there and back between two ranks: what the link between them does, as training's own messages see it."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor

from lockstep.engine.groups.base import Group

SIZES = (8, 1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of the messages of a link, shortest first: the first two show its latency, the last two its rate."""
_MOST_TURNS = 50  # of each size


def one_way_seconds(message: Tensor, group: Group, peer: int) -> float:
    """Half the time of `message` from the first rank to `peer` and back; 0 on all others. Collective."""
    group.barrier()
    start = time.perf_counter()
    if group.rank == 0:
        group.send(message, peer, "ping")
        group.receive(peer, "pong")
    elif group.rank == peer:
        group.send(group.receive(0, "ping")[1], 0, "pong")
    return (time.perf_counter() - start) / 2 if group.rank == 0 else 0.0


def links_of_first(group: Group, seconds: float) -> list[list[tuple[int, float]]]:
    """Of the link from rank 0 to each other rank: (bytes, seconds one way), the median over turns, shortest first.

    Collective, and known to rank 0 alone. One link after the other, all together in about `seconds`: on a slow link
    the longest messages are left out.
    """
    return [_link(group, peer, seconds / (group.size - 1)) for peer in range(1, group.size)]


def _link(group: Group, peer: int, seconds: float) -> list[tuple[int, float]]:
    end = time.monotonic() + seconds
    found: list[tuple[int, float]] = []
    for size in SIZES:
        goes_on = len(found) < 2 or 2 * _expected(found, size) <= end - time.monotonic()
        if not _of_first(group, goes_on):
            break
        message = torch.ones(size // 4)
        first = one_way_seconds(message, group, peer)  # it also connects
        turns = min(_MOST_TURNS, seconds / len(SIZES) / 4 / first) if first else 0.0
        times = [one_way_seconds(message, group, peer) for _ in range(int(_of_first(group, turns)))]
        found.append((size, statistics.median(times or [first])))
    return found


def _expected(found: list[tuple[int, float]], size: int) -> float:
    """Seconds one way of a message of `size` bytes, if what the last one took above the first is for its bytes."""
    (_, latency), (last, seconds) = found[0], found[-1]
    return latency + max(0.0, seconds - latency) * size / last


def _of_first(group: Group, value: float) -> float:
    """The first rank's `value`, on all ranks. Collective."""
    told = torch.tensor([value], dtype=torch.float64)
    group.broadcast(told)
    return float(told)

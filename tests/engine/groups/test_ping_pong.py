"""Messages there and back: every size in time, and of a slow link the short ones alone."""

from __future__ import annotations

import torch

from lockstep.engine.groups import Group
from lockstep.engine.groups.ping_pong import SIZES, links_of_first, one_way_seconds
from steps import on_ranks


def seconds_to_last(group: Group) -> float:
    return one_way_seconds(torch.ones(2), group, group.size - 1)


def test_the_first_rank_alone_knows_the_seconds_of_a_message() -> None:
    first, *others = on_ranks(3, seconds_to_last)
    assert first > 0 and others == [0.0, 0.0]


def test_each_link_of_the_first_rank_is_measured() -> None:
    links = on_ranks(3, links_of_first, 1.0)[0]
    assert [[size for size, _ in link] for link in links] == [list(SIZES)] * 2
    assert all(seconds > 0 for link in links for _, seconds in link)


def test_without_time_only_the_shortest_messages_are_sent() -> None:
    assert [size for size, _ in on_ranks(2, links_of_first, 0.0)[0][0]] == list(SIZES[:2])

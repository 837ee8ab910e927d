"""Ranks that are connected by TCP, here as threads of one process."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from lockstep.engine.groups import GroupError, tcp
from lockstep.engine.groups.board import Board
from lockstep.engine.groups.tcp import TcpGroup, connect_all

KEY = b"secret"


def together(hosts: list[str]) -> list[TcpGroup]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in hosts]
    addresses = [each.getsockname()[:2] for each in listening]
    with ThreadPoolExecutor(len(hosts)) as pool:
        peers = list(pool.map(lambda rank: connect_all(rank, addresses, listening[rank], KEY), range(len(hosts))))
    for each in listening:
        each.close()
    board = Board.create(len(hosts))
    return [TcpGroup(rank, hosts, peers[rank], board) for rank in range(len(hosts))]


def test_nodes_and_leaders() -> None:
    groups = together(["a", "b", "a", "b"])
    try:
        assert [group.node.size for group in groups] == [2, 2, 2, 2]
        assert [group.node.rank for group in groups] == [0, 0, 1, 1]
        assert [group.leaders is not None for group in groups] == [True, True, False, False]
        with pytest.raises(GroupError, match="4 ranks on 2 hosts have no common memory"):
            groups[0].share(4)
        groups[0].node.send(torch.ones(3), 1, "x")
        assert groups[2].receive(0, "node 0/x")[1].tolist() == [1.0, 1.0, 1.0]
    finally:
        close(groups)


def test_one_host_is_one_node() -> None:
    groups = together(["a", "a"])
    try:
        assert groups[0].node is groups[0] and groups[0].leaders is None
        groups[1].send(torch.arange(4), 0, "here")
        assert groups[0].receive(1, "here")[1].tolist() == [0, 1, 2, 3]
    finally:
        close(groups)


def close(groups: list[TcpGroup]) -> None:
    with ThreadPoolExecutor(len(groups)) as pool:
        list(pool.map(TcpGroup.close, groups))


def test_strangers_are_turned_away_and_a_missing_rank_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "_CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = listening.getsockname()[:2]
        with socket.create_connection(place) as stranger:
            stranger.sendall(b"x" * 36)
            with pytest.raises(GroupError, match="rank 0 waited 1 s for rank 1 in vain"):
                connect_all(0, [place, ("127.0.0.1", 1)], listening, KEY)
        with pytest.raises(GroupError, match=r"rank 1 can't reach rank 0 at 127\.0\.0\.1:1"):
            connect_all(1, [("127.0.0.1", 1), place], listening, KEY)

"""On one machine nothing that a run starts can be reached from another one: all sockets of all its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise, product

import psutil
import pytest
import torch

import cluster_runs
import tiny
from listening import Listening, beyond_loopback, family_of, sockets_of
from lockstep.engine.groups import Group
from lockstep.engine.groups.tcp import connect_all
from lockstep.engine.launch import LAUNCHERS
from lockstep.engine.launch.mpi.commands import find_mpiexec, private_network
from lockstep.engine.launch.mpi.emulated import why_not
from lockstep.engine.launch.mpi.mpiexec import Mpiexec
from lockstep.engine.launch.supervised_team import SupervisedTeam
from together import Teams, small_job

pytestmark = pytest.mark.linux

_PAUSE_SECONDS = 0.2


def sum_with_torch(group: Group) -> float:
    """What opens gloo's store and ports."""
    tensor = torch.ones(1)
    torch.distributed.all_reduce(tensor, group=group.torch_group())
    return float(tensor)


def sum_alone(group: Group) -> float:
    """Of a launcher whose ranks are threads of one process, where torch has no group."""
    tensor = torch.ones(1)
    group.allreduce(tensor)
    return float(tensor)


def sum_on_executors(group: Group) -> float:
    """What starts Python workers on every executor."""
    from pyspark.sql import SparkSession

    return float(SparkSession.builder.getOrCreate().sparkContext.parallelize([1.0, 1.0], 2).map(float).sum())


OPENS = {name: sum_with_torch for name in LAUNCHERS} | {"threads": sum_alone, "spark_driver": sum_on_executors}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_port_is_on_loopback(teams: Teams, launcher: str) -> None:
    """Seen: gloo's store, Hydra, MPICH and pyspark's log server on all interfaces, keys written from outside."""
    assert set(teams.of(launcher, 2).call(OPENS[launcher])) == {2.0}
    found = sockets_of([os.getpid()])
    assert beyond_loopback(found) == []
    if launcher == "spark":
        assert any(one.program == "pt_elastic" for one in found), "torchrun's store: else it was not looked at"
    if launcher == "processes":
        assert any(one.kind == "SOCK_STREAM" for one in found), "gloo's own: else nothing was looked at"
    if launcher.startswith("spark"):
        assert any(one.program == "java" for one in found), "the JVMs' ports: else nothing was looked at"


PEERS: list[tuple[str, str, dict[str, str]]] = [
    *(("ddp", launcher, {}) for launcher in ("processes", "mpiexec", "spark")),
    ("sparknet", "spark_driver", {"executor_data": "rdd"}),
]


@pytest.mark.parametrize(("peer", "launcher", "options"), PEERS)
def test_a_peer_opens_no_port_of_its_own(teams: Teams, peer: str, launcher: str, options: dict[str, str]) -> None:
    """DDP makes its store and its connections itself, and keeps them while the team is warm."""
    teams.run(small_job(launcher=launcher, sync=peer, workers=2, steps=2, **options), tiny.case())
    found = sockets_of([os.getpid()])
    assert found and beyond_loopback(found) == []


def test_what_listens_is_seen() -> None:
    with socket.create_server(("", 0)) as everywhere, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("0.0.0.0", 0))
        found = beyond_loopback(sockets_of([os.getpid()]))
        assert {everywhere.getsockname()[1], udp.getsockname()[1]} <= {one.port for one in found}
    assert beyond_loopback([Listening("java", "SOCK_STREAM", "::ffff:127.0.0.1", 1)]) == []


@pytest.mark.slow
@pytest.mark.true_start  # ranks are forked elsewhere, outside of their job's network, in other tests
def test_engines_listen_nowhere() -> None:
    """Seen: garbage on the controller's ports lost a round after 75 s, with no rank and no phase named."""
    private = private_network(find_mpiexec())  # asked before: what it finds is remembered
    with LAUNCHERS["engines"](2) as team:
        assert isinstance(team, SupervisedTeam)
        assert team.call(sum_with_torch) == [2.0, 2.0]
        parts = family_of([team._supervisor.process.pid] if team._supervisor else [])
        assert any(is_controller(each) for each in parts)
        found = sockets_of(each.pid for each in parts)
        assert found == [] if private else beyond_loopback(found) == []


@pytest.mark.slow
def test_what_lockstep_mpi_starts_on_one_machine_listens_nowhere() -> None:
    """Seen: Hydra on all interfaces; it believes whoever connects."""
    if not private_network(find_mpiexec()):
        pytest.skip("this system allows no network of its own to its user")
    run = cluster_runs.Run(2)
    try:
        ranks = run.training()
        below = run.below()
        assert {each.pid for each in ranks} < {each.pid for each in below}
        assert sockets_of(each.pid for each in below) == []
    finally:
        end(run)


def end(run: cluster_runs.Run) -> None:
    left = run.below()
    run.process.kill()
    run.process.join()
    shutil.rmtree(run.folder)
    assert psutil.wait_procs(left, cluster_runs.END_SECONDS)[1] == []


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("sync", ["allreduce", "ddp"])
def test_with_hosts_named_nothing_but_mpiexec_listens_outside_the_interface(sync: str) -> None:
    """The host is this one, named as another would be, and the interface the loopback. MPICH's mpiexec listens on all
    interfaces, as docs/cluster.md says, at a port that its proxies and ranks inherit."""
    if find_mpiexec().kind != "mpich":
        pytest.skip("which port is mpiexec's own is known of MPICH")
    run = cluster_runs.Run(2, hosts="localhost:2", iface="lo", sync=sync)
    try:
        run.training()
        below = run.below()
        told = [word for each in below for word in each.cmdline() if "--control-port" in each.cmdline()]
        (control,) = {int(after.rpartition(":")[2]) for word, after in pairwise(told) if word == "--control-port"}
        found = sockets_of(each.pid for each in below)
        assert {one.port for one in beyond_loopback(found)} == {control}
        assert {one.port for one in found} > {control}, "MPI's own, or gloo's: else nothing was looked at"
    finally:
        end(run)


@pytest.mark.serial
def test_emulated_hosts_listen_in_their_own_networks_alone() -> None:
    if why_not():
        pytest.skip(why_not())
    with Mpiexec(2, hosts=2, link_bits_per_second=1e9) as team:
        assert team.call(sum_with_torch) == [2.0, 2.0]
        parts = family_of(team.pids)
        assert len(parts) >= 2 and beyond_loopback(sockets_of(each.pid for each in parts)) == []


@pytest.mark.slow
def test_a_starting_spark_cluster_lets_no_stranger_in() -> None:
    """Its pages told every user of the machine what executors log. What comes to its ports while it starts ends it
    not, nor the team."""
    with LAUNCHERS["spark_driver"](2) as team, ThreadPoolExecutor(1) as caller:
        done = caller.submit(team.call, sum_on_executors)
        answers: set[tuple[int, bytes]] = set()
        while not wait([done], _PAUSE_SECONDS).done:
            ports = {one.port for one in sockets_of([os.getpid()]) if one.program == "java"}
            for port, words in product(ports, (os.urandom(64), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as stranger:
                    stranger.sendall(words)
                    answers.add((port, stranger.recv(4096)[:12]))
        assert set(done.result()) == {2.0}
        sent_away = {port for port, answer in answers if answer == b"HTTP/1.1 302"}
        assert len(sent_away) >= 2, "of master and worker: else no page was asked for"
        assert not {port for port, answer in answers if answer == b"HTTP/1.1 200"}


def is_controller(process: psutil.Process) -> bool:
    return any("ipyparallel.controller" in part for part in process.cmdline())


def test_strangers_keep_no_rank_waiting() -> None:
    """Seen: one burst of garbage while a team started ended it after 37 to 63 s: each was waited for in turn."""
    key, ends = b"k" * 32, [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    addresses = [end.getsockname()[:2] for end in ends]
    strangers = [socket.create_connection(addresses[0]) for _ in range(30)]
    for number, each in enumerate(strangers[::2]):
        each.sendall(os.urandom(10 + 40 * (number % 3)))
    found: dict[int, dict[int, socket.socket]] = {}
    began = time.monotonic()

    def join(rank: int) -> None:
        found[rank] = connect_all(rank, addresses, ends[rank], key)

    ranks = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join(60)
    assert time.monotonic() - began < 30, "of thirty strangers each took a second or two"
    assert sorted(found[0]) == [1] and sorted(found[1]) == [0]
    found[1][0].sendall(b"it is me")
    assert found[0][1].recv(8) == b"it is me"
    for each in (*ends, *strangers, found[0][1], found[1][0]):
        each.close()

"""`lockstep advise --hosts a,b`: the link between named machines, by a ping-pong as `lockstep mpi` starts ranks."""

from __future__ import annotations

import json
import socket
import sys
import threading
from dataclasses import dataclass
from typing import Any

import psutil
import typer

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.links import fitted_link, parse_link
from lockstep.commands.mpi_job import find_mpi, settings_of_ranks
from lockstep.commands.runner.errors import RunError, RunFailed
from lockstep.engine.launch.environment import interface_problem, worker_environment
from lockstep.engine.launch.mpi.commands import Placement, command
from lockstep.engine.launch.rank_parent import NO_LAUNCHER, rank_parent_command
from lockstep.engine.launch.supervisor import Supervisor

MEASURE_SECONDS = 5.0
"""Of all messages together."""
LIMIT_SECONDS = 60.0
"""Of the whole job: a first start of Python over a network's file system takes most of it."""
_RESOLVE_SECONDS = 0.5  # a name server that takes longer is not waited for: mpiexec asks it again
_COMPARED_BYTES = 4 << 20  # of the message that takes longest over the slowest link
_PROGRAM = "from lockstep.commands.advise_link_rank import main; main()"
_PROFILE, _MARK = "tuned", "lockstep link: "
_MEMORY = (
    "and messages through memory say nothing about a network; name another machine, or give the link: "
    "--link 10gbit --hosts 1,2"
)


@dataclass(frozen=True)
class MeasuredLink:
    """The slowest link between the first of the named machines and another one."""

    text: str  # as --link takes it
    between: tuple[str, str]
    ping_pong: tuple[tuple[int, float], ...]  # (bytes, seconds one way), shortest first


def check_hosts(hosts: str, iface: str) -> None:
    """Raises RunError or MpiError for what can be told of named machines before anything is started."""
    placement = Placement.of(hosts)
    names = [name for name, _ in placement.hosts]
    if numbers := [name for name in names if name.isdigit()]:
        raise RunError(f"--hosts {hosts}: {numbers[0]} is a number among names; give names (a,b) or numbers (1,2)")
    if len(names) < 2:
        raise RunError(
            f"--hosts {hosts} names one machine, and a link has two ends; give names (a,b) or numbers of machines (1,2)"
        )
    _check_machines(hosts, names)
    if find_mpi("", placement, will_run=True).kind == "mpich" and (problem := interface_problem(iface)):
        raise RunError(f"--iface {iface}: {problem}")  # Hydra itself uses it here


def _check_machines(hosts: str, names: list[str]) -> None:
    """Raises RunError for a name that cannot be resolved, and for two names of one machine."""
    here = {address.address for each in psutil.net_if_addrs().values() for address in each}
    found = _addresses(names)
    seen: dict[str, str] = {}  # address, or "" for this machine: name
    for name in names:
        if isinstance(known := found.get(name, {name}), str):
            raise RunError(f"--hosts {hosts}: {name} cannot be resolved ({known}); give names that have an address")
        mine = {"" if each in here or each.startswith("127.") else each for each in known}
        if twice := mine & set(seen):
            what = "this machine" if "" in twice else "the same machine"
            raise RunError(f"--hosts {hosts}: {seen[twice.pop()]} and {name} are both {what}, {_MEMORY}")
        seen |= dict.fromkeys(mine, name)


def _addresses(names: list[str]) -> dict[str, set[str] | str]:
    """The addresses of each name, or why there are none; without those that are not told in time."""
    found: dict[str, set[str] | str] = {}

    def ask(name: str) -> None:
        try:
            found[name] = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
        except (OSError, UnicodeError) as error:
            found[name] = getattr(error, "strerror", None) or str(error)

    asking = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(_RESOLVE_SECONDS / len(names))
    return dict(found)


def measured_link(hosts: str, iface: str) -> MeasuredLink:
    """Measure between the first machine and each other one; stderr tells every link. Raises RunFailed, MpiError."""
    names = [name for name, _ in Placement.of(hosts).hosts]
    typer.echo(f"measuring the link: messages between {names[0]} and {', '.join(names[1:])}", err=True)
    found = _found(hosts, names, iface)
    if "same" in found:
        raise RunFailed(f"--hosts {hosts}: {' and '.join(found['same'])} are one machine, {_MEMORY}")
    links = []
    for name, pairs in zip(names[1:], found["links"], strict=True):
        ping_pong = tuple((size, seconds) for size, seconds in pairs)
        try:
            links.append(MeasuredLink(fitted_link(ping_pong), (names[0], name), ping_pong))
        except CalibrationError as error:
            raise RunFailed(f"--hosts {hosts}: between {names[0]} and {name} {error}; measure again") from error
        typer.echo(f"link between {names[0]} and {name}: --link {links[-1].text}", err=True)
    return max(links, key=lambda link: parse_link(link.text).seconds(1, _COMPARED_BYTES))


def _found(hosts: str, names: list[str], iface: str) -> dict[str, Any]:
    """What the ranks have found, one on each machine. Raises RunFailed, MpiError."""
    placement = Placement(tuple((name, 1) for name in names), "", iface)
    environment = worker_environment(_PROFILE, 1)
    environment.pop("GLOO_SOCKET_IFNAME", None)  # It names the loopback of this machine.
    told = json.dumps({"hosts": names, "seconds": MEASURE_SECONDS, "mark": _MARK})
    program = [*rank_parent_command(NO_LAUNCHER), sys.executable, "-c", _PROGRAM, told]
    mpi, settings = find_mpi("", placement, will_run=True), settings_of_ranks(_PROFILE, environment)
    supervisor = Supervisor({"mpiexec": command(mpi, len(names), program, placement, settings)}, environment, [])
    try:
        in_time = supervisor.ended(LIMIT_SECONDS)
    finally:
        supervisor.stop()
    with supervisor.output as output:
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    for line in lines:
        if line.startswith(_MARK):
            return json.loads(line.removeprefix(_MARK))
    why = [line for line in lines if line.strip() and not line.startswith("supervisor: ")]
    # Two ranks' lines may come as one: a proxy hands on what it has read, and a line's end is written after the line.
    why = [line.split("lockstep: ")[1] for line in why if line.startswith("lockstep: ")][:1] or why[-3:]
    raise RunFailed(
        f"--hosts {hosts}: no link was measured: "
        + " / ".join([f"{'the ranks ended' if in_time else f'nothing came within {LIMIT_SECONDS:.0f} s'}", *why])
        + f". Each machine must let you in without a password (`ssh {names[1]} true`), have Lockstep at the same path "
        "and MPI's ports open (docs/cluster.md); or give the link: --link 10gbit --hosts 1,2"
    )

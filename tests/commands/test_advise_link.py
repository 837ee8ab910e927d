"""`lockstep advise --hosts a,b`: what is refused, what is answered over the measured link, and real ranks."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lockstep.advisor.calibration_file import read_calibration, write_calibration
from lockstep.advisor.links import fitted_link, parse_link
from lockstep.commands import advise_job, advise_link, mpi_job
from lockstep.commands.application import app
from lockstep.engine.launch.mpi import emulated, emulated_network
from lockstep.engine.launch.mpi.commands import MpiError
from made_up_calibration import made_up

ADDRESSES = {"a": "10.9.9.1", "b": "10.9.9.2", "c": "10.9.9.3", "alias": "10.9.9.1", "localhost": "127.0.0.1"}
ADDRESSES |= {"own": "127.0.1.1", "10.9.9.1": "10.9.9.1"}


def pairs(latency: float, rate: float) -> list[list[float]]:
    return [[size, latency + size / rate] for size in (8, 1024, 65536, 1 << 20, 1 << 22)]


FAST, SLOW = pairs(30e-6, 1.1e9), pairs(200e-6, 1.1e8)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "node.json"
    write_calibration(path, made_up())
    return path


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that knows ADDRESSES."""

    def told(name: str, *_: Any, **__: Any) -> list[Any]:
        if name not in ADDRESSES:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (ADDRESSES[name], 0))]

    monkeypatch.setattr(advise_link.socket, "getaddrinfo", told)


def advised(*words: str) -> Result:
    return CliRunner().invoke(app, ["advise", *words])


def finding(monkeypatch: pytest.MonkeyPatch, *links: Any) -> None:
    monkeypatch.setattr(advise_link, "_found", lambda hosts, names, iface: {"links": links})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--hosts a,b --link 10gbit", "--link 10gbit with --hosts a,b: the link between named machines is measured"),
        ("--hosts a", "--hosts a names one machine, and a link has two ends"),
        ("--hosts a,2", "--hosts a,2: 2 is a number among names; give names (a,b) or numbers (1,2)"),
        ("--hosts a:x,b", "'a:x' is not NAME:RANKS"),
        ("--hosts a,lost", "lost cannot be resolved (Name or service not known)"),
        ("--hosts a,b,a", "a and a are both the same machine, and messages through memory say nothing about a network"),
        ("--hosts alias,b:2,10.9.9.1:4", "alias and 10.9.9.1 are both the same machine"),
        ("--hosts localhost,own", "localhost and own are both this machine"),
        ("--hosts a,b --iface eth77", "--iface eth77: network interface 'eth77' does not exist on"),
        ("--iface eth77", "--iface eth77 is for named machines; give --hosts a,b"),
        ("--hosts 1,2", "needs the link between them"),
        ("--hosts 1,-2", "'-2' is no whole number"),
    ],
)
def test_what_is_refused_before_anything_starts(
    saved: Path, line: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advise_link, "Supervisor", lambda *_: pytest.fail("ranks were started"))
    done = advised("--from", str(saved), *line.split())
    assert done.exit_code == 2 and says in " ".join(done.stderr.split()), done.output


def test_without_mpi_it_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise MpiError("no mpiexec in this environment or on PATH; install one")

    monkeypatch.setattr(mpi_job, "find_mpiexec", none)
    done = advised("--from", str(saved), "--hosts", "a,b")
    assert done.exit_code == 2 and "no mpiexec in this environment" in done.stderr, done.output


def test_the_slowest_link_is_answered_with_and_can_be_handed_on(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding(monkeypatch, FAST, SLOW)
    done = advised("--from", str(saved), "--hosts", "a:2,b:2,c:2", "--json")
    assert done.exit_code == 0, done.output
    told = [line for line in done.stderr.splitlines() if "--link" in line]
    assert [line.split(":")[0] for line in told] == ["link between a and b", "link between a and c"]
    found, text = json.loads(done.stdout), told[1].partition("--link ")[2]
    assert found["notes"][-1] == f"The link was measured between a and c: --link {text}."
    assert {way["hosts"] for way in found["ways"]} == {1, 2, 3} and {way["workers"] for way in found["ways"]} >= {5, 6}
    again = advised("--from", str(saved), "--hosts", "1,2,3", "--workers", "1..6", "--link", text, "--json")
    assert json.loads(again.stdout)["ways"] == found["ways"], again.output


def test_a_calibration_is_saved_with_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is answered over it, unless another one is named."""
    finding(monkeypatch, SLOW)
    monkeypatch.setattr(advise_job, "_measured", lambda options, question: made_up())
    path = str(tmp_path / "linked.json")
    first = advised("--model", "made.up:model", "--hosts", "a,b", "--workers", "1..4", "--save", path, "--json")
    assert first.exit_code == 0, first.output
    link = fitted_link(read_calibration(path).ping_pong)
    words = ("--from", path, "--hosts", "1,2", "--workers", "1..4", "--json")
    own, given = json.loads(advised(*words).stdout), json.loads(advised(*words, "--link", "10gbit").stdout)
    assert own["ways"] == json.loads(first.stdout)["ways"] != given["ways"]
    assert own["notes"][-1] == f"The link was measured when the calibration was saved: --link {link}."
    assert not any("link" in note for note in given["notes"])


def test_older_files_have_no_link_and_a_wrong_one_is_refused(saved: Path) -> None:
    older = json.loads(saved.read_text())
    assert older["ping_pong"] == [], "as files were written before there was one"
    for change in ({}, {"ping_pong": []}):
        saved.write_text(json.dumps({name: each for name, each in older.items() if name != "ping_pong"} | change))
        done = advised("--from", str(saved), "--workers", "1..4", "--json")
        assert {way["hosts"] for way in json.loads(done.stdout)["ways"]} == {1}, done.output
    saved.write_text(json.dumps(older | {"ping_pong": [[8, 1e-5]]}))
    done = advised("--from", str(saved))
    assert done.exit_code == 2 and "alpha and beta need two sizes; give --link" in " ".join(done.stderr.split())


def test_a_link_that_cannot_be_fitted_is_a_failure(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding(monkeypatch, [[8, 1e-3], [1024, 1e-3], [1 << 20, 1e-6]])
    done = advised("--from", str(saved), "--hosts", "a,b")
    assert done.exit_code == 1 and "between a and b no link can be fitted" in " ".join(done.stderr.split())


def test_the_command_itself_needs_no_torch() -> None:
    program = "import sys, lockstep.commands.advise_link; assert not {'torch', 'tensorflow'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


RATE = 2e8
_TWO_MACHINES = (  # emulated hosts have a kernel in common, and names of their own
    "import socket, lockstep.commands.advise_link_rank as rank; rank._machine = socket.gethostname; rank.main()"
)


@pytest.fixture
def _emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """host0 and host1 are network namespaces, with a link of RATE bit/s between them."""
    if reason := emulated.why_not():
        pytest.skip(reason)
    plain = advise_link.command

    def inside(mpi: Any, ranks: int, program: Any, placement: Any, settings: dict[str, str]) -> list[str]:
        tcp = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": emulated_network.INTERFACE}
        mpiexec, *words = plain(mpi, ranks, program, placement, settings | tcp)
        enter = ["-launcher", "ssh", "-launcher-exec", str(tmp_path / "enter")]
        asked = {"hosts": 2, "bits_per_second": RATE, "folder": str(tmp_path), "command": [mpiexec, *enter, *words]}
        made = [sys.executable, "-I", "-S", emulated_network.__file__, json.dumps(asked)]
        return ["unshare", "--net", "--mount", "--uts", *made]

    monkeypatch.setattr(advise_link, "command", inside)
    monkeypatch.setattr(advise_link, "_PROGRAM", _TWO_MACHINES)
    monkeypatch.setattr(advise_link, "MEASURE_SECONDS", 3.0)
    monkeypatch.setitem(ADDRESSES, "host0", "10.77.0.1")
    monkeypatch.setitem(ADDRESSES, "host1", "10.77.0.2")


@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.serial
@pytest.mark.usefixtures("_emulated", "no_leftovers")
def test_the_link_between_two_emulated_machines_is_measured(saved: Path) -> None:
    done = advised("--from", str(saved), "--hosts", "host0,host1", "--json")
    assert done.exit_code == 0, done.output
    (told,) = re.findall(r"link between host0 and host1: --link (\S+)", done.stderr)
    link = parse_link(told)
    assert 0.5 < 8 * link.bytes_per_second / RATE < 1.05, told  # memory moves a hundred times as much
    assert 0 < link.alpha_seconds < 0.02, told
    assert {way["hosts"] for way in json.loads(done.stdout)["ways"]} == {1, 2}


@pytest.fixture
def _both_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two names of this machine that the command takes for two machines; mpiexec starts a rank for each."""
    if mpi_job.find_mpiexec().kind != "mpich":
        pytest.skip("only MPICH's mpiexec starts ranks on names of this machine without ssh")
    monkeypatch.setattr(advise_link, "_check_machines", lambda hosts, names: None)
    yield


@pytest.mark.serial
@pytest.mark.usefixtures("_both_here", "no_leftovers")
def test_real_ranks_on_one_machine_are_no_measurement(saved: Path) -> None:
    done = advised("--from", str(saved), "--hosts", "localhost,127.0.0.1")
    assert done.exit_code == 1, done.output
    assert "localhost and 127.0.0.1 are one machine, and messages through memory" in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.serial
@pytest.mark.usefixtures("_both_here", "no_leftovers")
@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import time; time.sleep(60)", "nothing came within 1 s"),
        ("import sys; sys.exit('lockstep: it is lost')", "the ranks ended / it is lost. Each machine"),
        ("print('lockstep: it is lostlockstep: it is lost')", "the ranks ended / it is lost. Each machine"),
    ],
)
def test_ranks_that_find_nothing(saved: Path, program: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advise_link, "LIMIT_SECONDS", 1.0)
    monkeypatch.setattr(advise_link, "_PROGRAM", program)
    done = advised("--from", str(saved), "--hosts", "localhost,127.0.0.1")
    assert done.exit_code == 1 and says in " ".join(done.stderr.split()), done.output

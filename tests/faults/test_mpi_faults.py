"""MPI jobs whose ranks or helpers raise, stop or are killed: they end in time, say who and where, and leave nothing."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipyparallel
import psutil
import pytest

import tiny
from failing import END_SECONDS, REASONS, fail, job_of
from lockstep.engine.groups import Group
from lockstep.engine.job import NO_USE_CASE, Job
from lockstep.engine.launch import LAUNCHERS, WorkerFailed, stopped_programs
from lockstep.engine.launch.mpi import engines
from lockstep.engine.launch.mpi import team as mpi_team
from lockstep.engine.launch.mpi.engines import EnginesTeam
from lockstep.engine.launch.mpi.team import MpiTeam
from lockstep.engine.training.loop import Site, Trace
from lockstep.measure.cell import measure_job
from lockstep.measure.probes import PROBES, Probe
from lockstep.measure.teams import Teams
from processes import command, program

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("no_leftovers", "no_files")]


def abort_alone(group: Group) -> str:
    """Rank 1 gives up while the others wait for it in a barrier that it never reaches."""
    if group.rank == 1:
        time.sleep(0.2)
        group.abort("rank 1 has had enough")
        return ""
    try:
        group.barrier()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passed"


@pytest.mark.true_start  # what the parents of the ranks report decides
@pytest.mark.filterwarnings("ignore:3 workers")
def test_of_three_ranks_the_first_to_die_is_named_and_not_those_that_mpiexec_then_kills() -> None:
    """The next call starts all of them anew; there an abort reaches those who wait."""
    with LAUNCHERS["mpiexec"](3) as team:
        failure = fail(team, tiny.fault_in_phase, "exchange", "kill")
        assert (failure.rank, failure.where) == (1, "step 3, phase exchange")
        assert REASONS["kill"] in str(failure)
        told = "GroupAborted: rank 1 has had enough"
        assert team.call(abort_alone) == [told, "", told]


def test_a_rank_that_stalls_is_named_with_its_stack() -> None:
    with LAUNCHERS["mpiexec"](2) as team:
        failure = fail(team, tiny.fault_in_phase, "compute", "hang", stall_seconds=1)
        assert failure.rank == 1
        assert "has not moved for 1 s" in str(failure)
        assert "misbehave" in failure.traceback


def fault(job: Job, group: Group, site: Site) -> Trace:
    """An experiment: rank 1 raises in an engine, and is killed under mpiexec."""
    tiny.fault_in_phase(group, "exchange", "raise" if job.launcher == "engines" else "kill")
    return Trace(group.rank)


@pytest.mark.parametrize(("launcher", "how"), [("mpiexec", "kill"), ("engines", "raise")])
def test_a_grid_has_a_row_that_says_failed(launcher: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "faulty", Probe(fault))
    this = job_of(launcher, {"sync": "allreduce"}).with_(experiment="faulty", use_case=NO_USE_CASE)
    with Teams() as teams:
        row, tables, disturbed = measure_job(this, None, teams)
        assert teams.team(this).pids == []
    reason = REASONS[how] + (": a tyre burst" if how == "raise" else "")
    assert (row["status"], row["reason"]) == ("failed", f"rank 1 {reason} (step 3, phase exchange)")
    assert (tables, disturbed) == ({}, False)


def soon(kill: Callable[[], None]) -> None:
    threading.Timer(0.5, kill).start()


def supervisor_of(team: Any) -> psutil.Process:
    """The team's own: a Spark cluster that stands for the whole session has one as well."""
    return psutil.Process(team._supervisor.process.pid)


@pytest.mark.true_start
@pytest.mark.parametrize(
    ("launcher", "name", "told"),
    [
        ("mpiexec", "mpiexec", "mpiexec was killed by SIGKILL"),
        ("mpiexec", "hydra_pmi_proxy", "left"),
        ("engines", "ipyparallel.controller", "ipcontroller was killed by SIGKILL"),
    ],
)
def test_a_helper_that_is_killed_ends_the_team(launcher: str, name: str, told: str) -> None:
    with LAUNCHERS[launcher](2) as team:
        team.start()
        soon(helper(team, name).kill)
        failure = fail(team, tiny.fault_in_phase, "exchange", "hang", stall_seconds=60)
        assert told in str(failure)


def helper(team: Any, name: str) -> psutil.Process:
    """A process of the team that is no rank."""
    return next(
        child
        for child in supervisor_of(team).children(recursive=True)
        if name in (program(child), *command(child).split()) or program(child).startswith(name[:15])
    )


@pytest.mark.true_start
@pytest.mark.parametrize(
    ("launcher", "name", "told"),
    [("mpiexec", "hydra_pmi_proxy", "hydra_pmi_proxy"), ("engines", "ipyparallel.controller", "ipcontroller")],
)
def test_a_helper_that_is_stopped_ends_the_team(
    launcher: str, name: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped ipcontroller ended in a raw TimeoutError after 75 s, which named no rank and no phase."""
    monkeypatch.setattr(stopped_programs, "LOOK_SECONDS", 0.5)
    with LAUNCHERS[launcher](2) as team:
        team.start()
        soon(helper(team, name).suspend)
        failure = fail(team, tiny.fault_in_phase, "exchange", "hang", stall_seconds=60)
        assert f"{told} was stopped (SIGSTOP)" in str(failure) and "phase" in failure.where


@pytest.mark.true_start
def test_a_job_that_ends_before_the_controller_answers_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: mpiexec was terminated as the client connected, and a minute later there was a traceback of ipyparallel."""
    team, asked = LAUNCHERS["engines"](2).team, []

    def ask(file: str, timeout: float) -> None:
        if not asked:
            helper(team, "mpiexec").terminate()
        asked.append(timeout)
        time.sleep(0.2)
        raise TimeoutError("Hub connection request timed out")

    monkeypatch.setattr(ipyparallel, "Client", ask)
    began = time.monotonic()
    with pytest.raises(WorkerFailed, match="mpiexec"):
        team.start()
    assert len(asked) * max(asked) < END_SECONDS and time.monotonic() - began < END_SECONDS


def test_results_count_that_ipyparallel_does_not_confirm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They had come, and the round was lost."""
    monkeypatch.setattr(engines, "_CONFIRM_SECONDS", 0.5)
    with LAUNCHERS["engines"](2) as team:
        team.start()
        begun, controller = tmp_path / "begun", helper(team, "ipyparallel.controller")

        def stop_controller() -> None:
            while not begun.exists():
                time.sleep(0.01)
            controller.suspend()
            (tmp_path / "stopped").touch()

        threading.Thread(target=stop_controller).start()
        with pytest.warns(UserWarning, match="ipcontroller has not confirmed within 0 s: it is ended"):
            assert team.call(answer_when_it_is_stopped, str(tmp_path)) == [0, 1]
        assert team.pids == [] and team.call(answer_when_it_is_stopped, str(tmp_path)) == [0, 1]


def test_a_controller_that_stops_when_the_ranks_are_ready_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a raw TimeoutError after 30 s, which ended the run."""
    monkeypatch.setattr(stopped_programs, "LOOK_SECONDS", 0.5)
    team = EnginesTeam([[0], [1]], 1, "tuned")
    accept, accepted = team._accept, []

    def stop_before_the_last_is_answered(*given: Any) -> Any:
        """Its engine runs the call already, of whose end the controller will not hear."""
        accepted.append(given)
        if len(accepted) == team.size:
            helper(team, "ipyparallel.controller").suspend()
        return accept(*given)

    monkeypatch.setattr(team, "_accept", stop_before_the_last_is_answered)
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as caught:
        team.start()
    assert str(caught.value).startswith("the team ipcontroller was stopped (SIGSTOP)"), caught.value
    assert len(accepted) == 2 and time.monotonic() - began < END_SECONDS and team.pids == []


def answer_when_it_is_stopped(group: Group, folder: str) -> int:
    """After all ranks have begun, which ends what the controller had to do for the call."""
    group.barrier()
    Path(folder, "begun").touch()
    while not Path(folder, "stopped").exists():
        time.sleep(0.01)
    return group.rank


@pytest.mark.true_start
def test_what_is_left_when_even_the_supervisor_is_killed() -> None:
    """Nothing: no process, and no file of MPI's (`no_files`)."""
    with LAUNCHERS["mpiexec"](2) as team:
        team.start()
        pids = [psutil.Process(pid) for pid in team.pids]
        keeper = supervisor_of(team)
        soon(keeper.kill)
        failure = fail(team, tiny.fault_in_phase, "exchange", "hang", stall_seconds=60)
        assert "its supervisor was killed by SIGKILL" in str(failure)
    _, alive = psutil.wait_procs(pids, END_SECONDS)
    assert alive == []


# --- a start that fails ---


def script(folder: Path, text: str) -> str:
    path = folder / "mpiexec"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


VERSION = (
    "import sys\nif '--version' in sys.argv:\n    print('HYDRA build details:\\n    Version: 4.2')\n    sys.exit()\n"
)


def start_with(program: str, kind: type[MpiTeam] = MpiTeam) -> WorkerFailed:
    team = kind([[0], [0]], 1, "tuned", program=program)
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as caught:
        team.start()
    assert time.monotonic() - began < 60
    assert team.pids == []
    return caught.value


@pytest.mark.parametrize("kind", [MpiTeam, EnginesTeam])
def test_an_mpiexec_that_fails_is_shown_with_what_it_said(tmp_path: Path, kind: type[MpiTeam]) -> None:
    failure = start_with(script(tmp_path, VERSION + "sys.exit('no slots left')"), kind)
    assert "could not start" in str(failure) and str(tmp_path / "mpiexec") in str(failure)
    assert "no slots left" in failure.traceback


def test_a_process_that_ends_before_it_comes_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """mpiexec waits for ever for one that never called MPI: the launcher did so too, for two minutes."""
    program = "import os, time\nif os.environ['PMI_RANK'] == '0':\n    raise SystemExit\ntime.sleep(100)"
    monkeypatch.setattr(mpi_team, "_RANK", program)
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as caught:
        MpiTeam([[0], [0]], 1, "tuned").start()
    assert time.monotonic() - began < 30
    assert "lost a process, which ended with 0 before all had come" in str(caught.value)


def test_an_mpiexec_that_is_none(tmp_path: Path) -> None:
    assert "neither MPICH nor Open MPI" in str(start_with(script(tmp_path, "print('hello')")))
    assert "can't be run" in str(start_with(str(tmp_path / "missing")))


def test_ranks_that_are_jobs_of_their_own(tmp_path: Path) -> None:
    """What happens when mpiexec and the library that mpi4py uses belong to different MPIs."""
    starts = "import subprocess\nat = sys.argv.index(sys.executable)\n"
    starts += "ranks = [subprocess.Popen(sys.argv[at:]) for _ in range(int(sys.argv[sys.argv.index('-n') + 1]))]\n"
    failure = start_with(script(tmp_path, VERSION + starts + "[rank.wait() for rank in ranks]"))
    assert "MPI started 2 separate jobs of one rank instead of one job of 2" in str(failure)
    assert "pip install mpich" in str(failure)


def test_ctrl_c_during_a_start_leaves_nothing() -> None:
    program = (
        "from lockstep.engine.launch import LAUNCHERS\nprint('on', flush=True)\nLAUNCHERS['engines'](2).team.start()\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "on\n"
    end = time.monotonic() + 60
    while not (below := psutil.Process(run.pid).children(recursive=True)) and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=END_SECONDS)
    _, alive = psutil.wait_procs(below, END_SECONDS)
    assert alive == []

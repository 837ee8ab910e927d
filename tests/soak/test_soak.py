"""What of the soak needs no run: whom it hits, what it draws, and how it tells clean from not clean."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import yaml

from lockstep.commands.runner.parameters import check_names, check_values
from lockstep.engine.groups.board import Board
from lockstep.experiments.parameters import read_parameters
from soak import faults, notebooks, phases, recorded, roles, running, trial
from soak.trial import Trial

PYTHON = "/bin/python "
COMMANDS = {
    "-m lockstep.commands.cli run 05 --profile soak": "runner",
    "-c import runpy\nrunpy.run_module('ipykernel_launcher')": "kernel",
    '-I -S engine/launch/supervisor.py {"commands": {"mpiexec": ["mpiexec"]}}': "supervisor",
    "-I -S engine/launch/rank_parent.py /e python -c from lockstep.engine.launch.mpi.rank_process": "rank's parent",
    "-c from lockstep.engine.launch.mpi.rank_process import main; main()": "MPI rank",
    "-c from lockstep.engine.launch.mpi.engine_process import main": "engine",
    "-c from lockstep.engine.launch.worker import main; main() 65 14113": "worker",
    "-m pyspark.daemon": "Python worker",
}


@pytest.mark.parametrize(("words", "role"), COMMANDS.items())
def test_a_process_is_told_by_its_command(words: str, role: str) -> None:
    assert roles.role_of(PYTHON + words, "python") == role


def test_what_starts_a_rank_is_told_from_it() -> None:
    words = "mpiexec -n 2 python rank_parent.py /e python -c from lockstep.engine.launch.mpi.rank_process"
    assert roles.role_of(words, "mpiexec") == "mpiexec"
    assert roles.role_of("java org.apache.spark.deploy.master.Master", "java") == "JVM: master"
    assert roles.role_of("sleep 3", "sleep") == "sleep"


def test_faults_are_drawn_by_seed_and_run() -> None:
    first = faults.draw(1, 4, 5)
    assert first == faults.draw(1, 4, 5)
    assert first != faults.draw(2, 4, 5) and first != faults.draw(1, 5, 5)
    assert all(0 <= fault.seconds <= 60 and fault.kind in faults.KINDS for fault in first)
    runs = [faults.draw(1, run, 5) for run in range(40)]
    assert {len(found) for found in runs} == {1, 2, 3, 4, 5}
    assert {fault.kind for found in runs for fault in found} == set(faults.KINDS)
    assert all([fault.last for fault in found] == [False] * (len(found) - 1) + [True] for found in runs)
    assert "continue" not in {found[-1].kind for found in runs}, "it ends no run"
    assert {faults.notebook_of(1, run, {"02": 1.0, "05": 1.0}) for run in range(20)} == {"02", "05"}


def test_every_role_can_be_hit_and_those_that_end_a_run_seldom() -> None:
    there = {"kernel": [1], "proxy": [2], "runner": [3], "worker": [4, 5]}
    steps = [(number + 0.5) / 200 for number in range(200)]
    hit = [faults.Fault(0, "kill", role, 0.9, 1.0, last=False).victim(there) for role in steps]
    assert set(hit) == {("kernel", 1), ("proxy", 2), ("runner", 3), ("worker", 5)}
    ending = sum(role in roles.ENDS_THE_RUN for role, _ in hit)
    assert ending == faults.SHARE_OF_ENDING * len(hit)
    assert faults.Fault(0, "kill", 0.99, 0.0, 1.0, last=False).victim({"runner": [3]}) == ("runner", 3)
    assert faults.Fault(0, "kill", 0.0, 0.0, 1.0, last=False).victim({"worker": [4]}) == ("worker", 4)
    ends = [faults.Fault(0, "kill", role, 0.0, 1.0, last=True).victim(there)[0] for role in steps]
    assert ends == ["kernel"] * 100 + ["runner"] * 100
    assert trial.END.victim(there) == ("runner", 3)


def records(*rounds: int) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["strategy", "round", "reason"])
    rows.writerows(["own", number, "one, of two"] for number in rounds)
    return text.getvalue().encode()


def test_only_rounds_that_stand_whole_at_the_beginning_are_finished() -> None:
    assert recorded.finished(records(0, 0, 1, 1), 2) == records(0, 0, 1, 1)
    assert recorded.finished(records(0, 0, 1), 2) == records(0, 0)
    assert recorded.finished(records(0, 0, 1, 1)[:-3], 2) == records(0, 0)
    assert recorded.finished(records(), 2) == records() and recorded.finished(b"", 2) == b""


NAMED = "round 0, 1/2: own: failed: rank 1 was killed by SIGKILL (step 3, phase exchange)\n"


def test_a_failure_names_rank_and_phase() -> None:
    assert recorded.complaints(NAMED) == []
    assert recorded.complaints(NAMED.replace("rank 1", "the team").replace("step 3, phase exchange", "start")) == []
    assert recorded.complaints(NAMED.replace(" (step 3, phase exchange)", "")) == [
        "names no rank and phase: rank 1 was killed by SIGKILL"
    ]
    assert recorded.complaints(NAMED.replace("rank 1", "Result not ready:")) != []
    assert recorded.rounds_told(NAMED * 3) == 3


def test_a_traceback_belongs_to_a_rank_that_is_named_or_to_nobody() -> None:
    traceback = 'Traceback (most recent call last):\n  File "a.py"\nKeyboardInterrupt\n'
    assert recorded.complaints("--- rank 1 ---\n" + traceback + NAMED) == []
    assert recorded.complaints("--- rank 1 ---\n" + NAMED + traceback) == [
        "prints 'Traceback (most recent call last):'"
    ]
    assert recorded.complaints("Task exception was never retrieved\n") != []
    assert recorded.complaints(traceback) == [], "Python had not yet come to Lockstep"
    assert recorded.complaints(traceback.replace("a.py", "/lib/lockstep/__init__.py")) != []
    assert recorded.complaints("told before\n" + traceback) != []


@pytest.mark.parametrize(
    ("role", "kind", "code", "text", "clean"),
    [
        ("runner", "kill", -9, "", True),
        ("runner", "terminate", 143, "stopped by SIGTERM; no process is left", True),
        ("runner", "terminate", 143, "", False),
        ("runner", "terminate", -15, "", True),  # before it could say anything
        ("runner", "interrupt", 1, "stopped by SIGINT", False),
        ("kernel", "kill", 1, "07 failed: the kernel died", True),
        ("kernel", "kill", 1, "07 failed: the kernel was ended while it started (killed from outside)", True),
        ("kernel", "kill", 1, "07 failed", False),
        ("kernel", "kill", 0, "", True),  # it had done its work
        ("kernel", "interrupt", 1, "07 failed in cell [3]: the kernel was interrupted by SIGINT; rounds", True),
        ("kernel", "interrupt", 1, "07 failed in cell [3]: KeyboardInterrupt", False),  # seen: clean
        ("kernel", "interrupt", 0, "", True),  # between two cells it is deaf to it
        ("kernel", "terminate", 1, "07 failed: the kernel died", True),
        ("kernel", "terminate", 1, "07 failed", False),
        ("kernel", "continue", 1, "07 failed", False),
        ("worker", "kill", 0, "", True),
        ("worker", "kill", 1, "07 failed", False),  # seen: clean, though a rank's end is a row
        ("worker", "kill", -11, "", False),
    ],
)
def test_a_run_ends_as_its_last_fault_lets_it(role: str, kind: str, code: int, text: str, clean: bool) -> None:
    assert (recorded.ending_complaints(role, kind, code, text) == []) == clean


def test_the_small_notebooks_have_the_parameters_of_their_own(tmp_path: Path) -> None:
    root = notebooks.build(tmp_path / "repository")
    profile = yaml.safe_load((root / "notebooks" / "profiles" / "soak.yaml").read_text())
    for small in notebooks.NOTEBOOKS.values():
        found = nbformat.read(root / "notebooks" / f"{small.name}.ipynb", as_version=4)
        nbformat.validate(found)
        first, last = found.cells
        assert all(f"\n{name}:" in first.source for name in profile[small.name]), small.name
        compile(last.source, small.name, "exec")


def test_the_table_counts_by_role_and_kind() -> None:
    trials = [
        Trial(0, "02", "kill", "worker", 1.0, noticed=True),
        Trial(0, "02", "kill", "worker", 2.0, noticed=True, unclean=["hung"]),
        Trial(0, "02", "kill", "worker", 3.0),
    ]
    head, row = running.table(trials).splitlines()
    assert head.split()[5:] == list(faults.KINDS)
    assert row.split() == ["worker", "3", "(1,", "1)", "-", "-", "-", "-"]


def test_the_table_of_phases_has_a_row_for_each_of_them() -> None:
    trials = [
        Trial(0, "02", "kill", "worker", 1.0, "warm-up", unclean=["hung"]),
        Trial(0, "02", "stop", "proxy", 2.0, "ending"),
    ]
    head, *rows = running.of_phases(trials).splitlines()
    assert head == running.table(trials).splitlines()[0]
    assert [row[:32].strip() for row in rows] == list(phases.PHASES)
    assert [row[32:].split() for row in rows][1] == ["1", "(1,", "1)", "-", "-", "-", "-"]


def visit(strategy: str) -> str:
    return f"round 0, 1/2: speed SimpleBig {strategy}: 9.9 images/s\n"


def test_a_phase_is_told_by_the_boards_and_the_messages_of_a_run() -> None:
    """Of a process that holds this board alone: the test's own may hold boards of teams that other tests left."""
    board = Board.create(2)
    process = subprocess.Popen(["sleep", "600"], pass_fds=[board.handle])
    own = [process.pid]
    try:
        assert phases.phase_of(own, "") == "starting"
        board.enter(0, "compute")
        assert phases.phase_of(own, "") == "warm-up"
        for rank, step in enumerate((1, 2)):
            board.at_step(rank, step)
        assert phases.phase_of(own, "") == "measuring"
        for rank in range(2):
            board.enter(rank, "idle")
        assert phases.phase_of(own, "") == "starting"
        assert phases.phase_of(own, visit("processes")) == "between visits"
        board.enter(1, "start")
        assert phases.phase_of(own, visit("processes")) == "starting", "of the next visit"
        assert phases.phase_of(own, visit("processes") + "02: stopped by SIGTERM; no process is left") == "ending"
    finally:
        board.close()
        process.kill()
        process.wait()
    assert phases.phase_of([2**22 + 1], visit("processes")) == "between visits", "a process that has ended"


def test_options_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        running.main(["--only", "12"])
    assert caught.value.code == 2 and "invalid choice: '12'" in capsys.readouterr().err


def test_a_process_that_has_ended_has_no_role(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = SimpleNamespace(cmdline=lambda: [], name=lambda: "python")
    assert roles.by_role({7: gone}) == {}  # type: ignore[dict-item]


def test_a_soak_without_a_fault_has_shown_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen: it ended with 0, and told of some faults without saying of how many."""
    monkeypatch.setattr(signal, "signal", lambda *of: None)
    monkeypatch.setattr(running.Soak, "run", lambda soak: None)
    assert running.main(["--out", str(tmp_path)]) == 1
    assert "not clean: no fault was dealt" in (told := capsys.readouterr().out)
    assert "0 of 200 faults with seed 1, 0 not clean" in told
    clean = Trial(0, "02", "kill", "worker", 1.0)
    monkeypatch.setattr(running.Soak, "run", lambda soak: soak.trials.append(clean))
    assert running.main(["--out", str(tmp_path)]) == 1, "too few: seen: it ended with 0"
    assert "too few: 1 of 200 faults were dealt in 30 minutes; give more minutes" in capsys.readouterr().out
    assert running.main(["--out", str(tmp_path), "--trials", "1"]) == 0
    assert "1 of 1 faults with seed 1, 0 not clean" in (told := capsys.readouterr().out) and "too few" not in told


@pytest.mark.parametrize("number", notebooks.NOTEBOOKS)
def test_a_small_notebook_is_given_parameters_that_it_has(number: str) -> None:
    """Bug: every run of 07 was refused for `tuned=[]`, so that no fault hit it."""
    small = notebooks.NOTEBOOKS[number]
    known = read_parameters(notebooks.ROOT / "notebooks" / f"{small.name}.ipynb")
    given = {"rounds": 1, "images": notebooks.IMAGES, **small.parameters}
    check_names(given, {small.name: known}, "soak")
    assert set(check_values(given, known, "soak")) == set(given)

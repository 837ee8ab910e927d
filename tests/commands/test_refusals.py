"""Every command refuses at once: it ends with 2, and has imported nothing that takes long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep import __version__
from lockstep.commands import mpi_job
from lockstep.commands.application import app
from lockstep.commands.ending import checking_arguments, clear_ends, printable
from lockstep.commands.runner.errors import RunError, RunFailed, Stopped, is_own_error
from lockstep.engine.usecases import USE_CASES

HEAVY = (
    "torch", "tensorflow", "keras", "pandas", "matplotlib", "seaborn", "scipy", "sklearn", "pyarrow", "pyspark",
    "IPython", "ipyparallel", "mpi4py", "papermill", "nbformat", "nbclient", "jupyter_client",
)  # fmt: skip
REFUSALS = {
    "run 99": "notebook '99' does not exist",
    "run 02 --profile nope": "profile 'nope' does not exist",
    "run 02 --profile ../profiles/smoke": "is a path",
    "run 02 --profile ..": "profile '..' does not exist",
    "run 02 --profile ../../smoke": "is a path",
    "run 02 --profile /etc/passwd": "is a path",
    "run ..": "notebook '..' does not exist",
    "run ../02": "notebook '../02' does not exist",
    "run \u00b2": "notebook '\u00b2' does not exist",
    "run 02 -p results=../elsewhere": "results is set by the runner",
    "run 02 -p use_cases=[{}]": "use_cases=[{}]: [0] is {}, not str; give one like",
    "run 02 -p steps=-1": "steps=-1: it is -1, and no parameter is negative",
    "run 02 -p wrokers=2": "did you mean workers?",
    "run 02 -p workers": "is not name=value",
    "run 02 -p workers=two": "workers is int",
    "run 02 --data-dir nowhere": "--data-dir nowhere is not a folder",
    "run 02 --out x --reference": "give one of them",
    "run 02 --timeout 0": "--timeout",
    "run 02 --minutes 0": "--minutes 0 is not possible; give a number above 0",
    "run 02 --minutes -5": "--minutes -5 is not possible",
    "run 02 --minutes nan": "--minutes nan is not possible",
    "run 02 --minutes soon": "--minutes",
    "run 02 --minutes 5 --profile smoke": "--minutes 5 does nothing with --profile smoke",
    "run 02 --nope": "--nope",
    "run": "notebooks",
    "advise": "name your model with --model module:factory, or a calibration with --from FILE",
    "advise --model alexnet": "--model 'alexnet' must be module:factory",
    "advise --model a:b --workers 0": "--workers '0': 0 is not possible",
    "advise --model a:b --workers 64..1": "did you mean --workers 1..64?",
    "advise --model a:b --workers 1..1e6": "'1e6' is no whole number",
    "advise --model a:b --link slow": "--link 'slow' is not a link; give its rate, such as 1gbit",
    "advise --model a:b --workers 1,2 --hosts 1,2": "needs the link between them",
    "advise --model a:b --batch 0": "--batch '0': 0 is not possible",
    "advise --model a:b --model-args x": "--model-args 'x' is no JSON",
    "advise --model a:b --model-args []": "is no JSON object",
    "advise --model a:b --price 1": "say how many with --images",
    "advise --model a:b --data nowhere": "--data nowhere is not a folder",
    "advise --model a:b --save nowhere/x.json": "its folder does not exist",
    "advise --from nowhere.json": "--from nowhere.json does not exist",
    "advise --model a:b --device tpu": "--device 'tpu' does not exist",
    "advise --model a:b --save .": "--save . is a folder",
    "advise --model a:b --seconds 0": "--seconds 0 is not possible",
    "advise --from Makefile --verify": "--verify trains the model; name it with --model",
    "notebooks 99": "notebook '99' does not exist",
    "notebooks 02 --timeout soon": "--timeout",
    "figures --results nowhere": "--results nowhere does not exist",
    "figures --results lib": "holds no records",
    "report --results nowhere": "--results nowhere does not exist",
    "report --out nowhere/report.md": "its folder does not exist",
    "report --fill nowhere.md": "nowhere.md can't be read",
    "report --fill Makefile": "holds no table to fill",
    "report --fill README.md --out x.md": "give one of them",
    "report --fill README.md --json": "--json writes no Markdown",
    "strategies nope": "strategy 'nope' does not exist",
    "strategies alreduce": "did you mean allreduce?",
    "why": "say what is slow",
    "why --model a:b -- python train.py": "--model and -- COMMAND ask for different things",
    "why --workers 2 -- python train.py": "--workers belongs to --model",
    "why -- no-such-program": "'no-such-program' is no program",
    "why --pid 999999999": "--pid 999999999 does not exist",
    "why --model alexnet": "--model 'alexnet' must be module:name",
    "why --model a:b --sync alreduce": "did you mean allreduce?",
    "why --model a:b --launcher nope": "--launcher nope does not exist",
    "why --model a:b --environment nope": "there are: plain, tuned",
    "why --model a:b --hosts 3": "--hosts 3 with --workers 2",
    "why --model a:b --hosts 2 --launcher threads": "only mpiexec emulates hosts",
    "why --model a:b --link fast": "--link 'fast' is not a link",
    "why --model a:b --data nowhere": "--data nowhere is not a folder",
    "why --model a:b --seconds 0": "--seconds 0 is not possible",
    "why --model a:b --seconds nan": "--seconds nan is not possible",
    "why --model a:b --workers 0": "--workers",
    "mpi": "--workers",
    "mpi --workers 0": "workers=0 is not possible",
    "mpi --workers 2 --sync nope": "--sync nope can't train 2 workers together",
    "mpi --workers 2 --use-case nope": "--use-case nope does not exist",
    "mpi --workers 2 --network cnn": "whose network is given",
    "mpi --workers 2 --use-case FaceMask --network nope": "network='nope' does not exist",
    "mpi --workers 2 --precision float8": "precision='float8' does not exist",
    "mpi --workers 2 --hosts a:0": "is not NAME:RANKS",
    "mpi --workers 2 --data-dir nowhere": "--data-dir nowhere",
    "mpi --workers 2 --resume": "--resume needs --checkpoint",
    "data": "",
    "data check nowhere": "nowhere",
    "data check README.md": "README.md",
    "data make --dataset nope": "--dataset nope has no stand-in",
    "data make --dataset ../fire-smoke": "--dataset ../fire-smoke has no stand-in",
    "mpi --workers 2 --use-case ../SimpleBig": "--use-case ../SimpleBig does not exist",
    "data make --images 1": "images=1 is too few",
    "doctor 7": "7",
    "nope": "nope",
}
ALSO_LIGHT = ("--version", "--help", "strategies", "mpi --workers 2 --dry-run", "mpi --help", "data --help")
ALSO_LIGHT += ("why --help",)
PROGRAM = """
import json, sys
from typer.testing import CliRunner
from lockstep.commands.application import app

commands, heavy = json.loads(sys.argv[1]), set(json.loads(sys.argv[2]))
told = {}
for command in commands:
    result = CliRunner().invoke(app, command.split())
    told[command] = (result.exit_code, result.output, sorted(heavy & set(sys.modules)))
    for name in [name for name in sys.modules if name.partition(".")[0] in heavy]:
        del sys.modules[name]  # so that each command answers for itself alone
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(root: Path) -> dict[str, Any]:
    """Exit code, output and heavy imports of each command, in an interpreter that has imported nothing before."""
    commands = json.dumps([*REFUSALS, *ALSO_LIGHT])
    environment = {name: value for name, value in os.environ.items() if name not in ("LOCKSTEP_DATA", "SLURM_JOB_ID")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, commands, json.dumps(HEAVY)],
        cwd=root, env=environment | {"COLUMNS": "200"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("command", REFUSALS)
def test_a_refusal_ends_with_2_and_says_why(told: dict[str, Any], command: str) -> None:
    code, output, _ = told[command]
    assert code == 2, output
    assert REFUSALS[command] in " ".join(output.split())


@pytest.mark.parametrize("command", [*REFUSALS, *ALSO_LIGHT])
def test_nothing_heavy_is_imported(told: dict[str, Any], command: str) -> None:
    code, output, heavy = told[command]
    assert heavy == [], "check the arguments before that import"
    assert code == (0 if command in ALSO_LIGHT else 2), output


def test_the_version(told: dict[str, Any]) -> None:
    assert told["--version"][1] == f"lockstep {__version__}\n"


@pytest.mark.slow
def test_a_failure_ends_with_1_after_its_imports(root: Path, tmp_path: Path) -> None:
    """So the list of heavy modules is worth something: a command that works does import some of them."""
    (tmp_path / "02_threads_vs_processes").mkdir()
    (tmp_path / "02_threads_vs_processes" / "records.csv").write_text("speed\n1\n")
    commands = [f"{name} --results {tmp_path}" for name in ("figures", "report")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands[:1]), json.dumps(["pandas", "torch"])],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, output, heavy = json.loads(done.stdout)[commands[0]]
    assert (code, heavy) == (1, ["pandas"]) and output.startswith("error: ") and "other columns" in output
    result = CliRunner().invoke(app, commands[1].split())
    assert result.exit_code == 1 and "other columns" in result.output


def test_mpi_knows_the_use_cases_without_torch() -> None:
    assert (*mpi_job.OF_PHOTOS, *mpi_job.OF_SMALL_IMAGES) == tuple(USE_CASES)
    assert tuple(name for name, case in USE_CASES.items() if case.network is not None) == mpi_job.OF_SMALL_IMAGES


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 1), (3, 1), (255, 255), (143, 143)])
def test_a_failed_job_never_looks_refused(monkeypatch: pytest.MonkeyPatch, code: int, expected: int) -> None:
    monkeypatch.setattr(mpi_job, "supervise", lambda words, environment: code)
    assert CliRunner().invoke(app, ["mpi", "--workers", "2"]).exit_code == expected


class OursError(ValueError):
    """As an error of the library: `clear_ends` looks at the module."""

    __module__ = "lockstep.engine.somewhere"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RunError("no such thing"), 2, "refused: no such thing"),
        (RunFailed("it broke"), 1, "it broke"),
        (OursError("bad file \x1b[2J"), 1, r"error: bad file \x1b[2J"),
        (Stopped(15), 143, "stopped by SIGTERM; no process of the run is left"),
        (KeyboardInterrupt(), 130, "stopped by SIGINT"),
    ],
)
def test_how_a_command_ends(error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception) as caught, clear_ends():
        raise error
    assert getattr(caught.value, "exit_code", None) == code
    assert capsys.readouterr().err == message + "\n"


def test_a_bug_shows_its_traceback() -> None:
    for error in (ValueError("of another library"), TypeError("a bug")):
        with pytest.raises(type(error), match=str(error)), clear_ends(), checking_arguments():
            raise error


def test_while_arguments_are_checked_an_error_of_ours_is_a_refusal() -> None:
    with pytest.raises(RunError, match="too few"), checking_arguments():
        raise OursError("too few")


def test_a_name_can_not_command_the_terminal() -> None:
    assert printable("a\x1b[2Jb\n\udcff") == r"a\x1b[2Jb\n\udcff"


def test_an_error_of_the_library_in_a_notebook_is_told_in_one_message() -> None:
    """A kernel reports the name of the class alone, and frames with the paths of files."""
    frames = ["Cell In[3]", "File /somewhere/lib/lockstep/records/schema.py:7, in check", "RecordError: no"]
    assert is_own_error("RecordError", frames)
    assert not is_own_error("RecordError", ["Cell In[3]", "File /elsewhere/records.py:7, in check", "RecordError: no"])
    assert not is_own_error("KeyError", frames), "a bug of ours shows its frames"

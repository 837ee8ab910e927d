import contextlib
import dataclasses
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.engine.job import Job
from lockstep.engine.launch.mpi.commands import Mpi, MpiError
from lockstep.measure import environment

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def _git(folder: Path, *arguments: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, env=clean)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init")
    (tmp_path / "file").write_text("1")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-m", "one")
    return tmp_path


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return [value] if isinstance(value, str) else []


def _names_of_this_place() -> list[str]:
    names = {os.uname().nodename, str(Path.home()), str(Path.cwd())}
    with contextlib.suppress(KeyError):  # a container's user without an entry
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    return [name for name in names if len(name) > 1]


def _leaks(captured: dict) -> list[tuple[str, str]]:
    return [
        (name, text)
        for name in _names_of_this_place()
        for text in _strings(captured)
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text)
    ]


def test_capture_is_json_and_complete(repository: Path) -> None:
    captured = environment.capture(repository)
    assert json.loads(json.dumps(captured)) == captured
    assert set(captured) == {"git", "machine", "versions"}
    machine = captured["machine"]
    assert machine["cpu"] and machine["os"]
    assert 1 <= machine["cores"] <= machine["cores_total"]
    assert machine["memory_bytes"] > 2**28
    assert len(machine["gpu"]) == environment.cuda_devices()
    packages = {"python", "torch", "numpy", "pillow", "pandas", "papermill", "mpi4py", "mpich", "ipyparallel"}
    packages |= {"tensorflow", "keras", "pyspark", "pyarrow"}
    assert set(captured["versions"]) == packages | {"mpiexec", "java", "glibc"}
    for package in ("python", "torch", "numpy", "pandas"):
        assert re.match(r"\d+\.\d+", captured["versions"][package]), package


def test_capture_names_no_host_user_or_path(repository: Path) -> None:
    captured = environment.capture(repository)
    assert _leaks(captured) == []
    assert [text for text in _strings(captured) if Path(text).is_absolute() or str(repository) in text] == []


def test_the_scan_for_names_finds_them() -> None:
    for name in _names_of_this_place():
        assert _leaks({"a": [{"b": f"x {name} y"}]})


def test_kernel_keeps_its_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "release", lambda: "6.1.44-somebody's-build")
    assert environment.machine()["kernel"] == "6.1.44"


def test_a_package_that_is_absent_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-package-at-all"))
    assert environment.versions()["no-such-package-at-all"] is None


def test_versions_name_the_mpi_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where it is; and a run without MPI has none."""
    found = environment.versions()
    for package in ("mpi4py", "ipyparallel"):
        assert re.match(r"\d+\.\d+", found[package] or ""), package
    assert re.fullmatch(r"(mpich|openmpi|slurm) \d+(\.\d+)+", found["mpiexec"] or "")
    monkeypatch.setattr(environment, "find_mpiexec", lambda: Mpi("openmpi", (5, 0, 11), "/somewhere/mpiexec"))
    assert environment.versions()["mpiexec"] == "openmpi 5.0.11"

    def none() -> Mpi:
        raise MpiError("no mpiexec in this environment or on PATH")

    monkeypatch.setattr(environment, "find_mpiexec", none)
    assert environment.versions()["mpiexec"] is None


@pytest.mark.slow
def test_asking_for_versions_does_not_start_mpi() -> None:
    """The launcher would be an MPI job of its own, with a file in /dev/shm."""
    program = "from lockstep.measure.environment import versions\nassert versions()['mpiexec']\n"
    program += "from lockstep.engine.groups.library import MPI\nprint(MPI.Is_initialized())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@needs_git
def test_git_commit_and_dirty_flag(repository: Path) -> None:
    state = environment.git_state(repository)
    assert re.fullmatch(r"[0-9a-f]{40}", state["commit"])
    assert state["dirty"] is False
    (repository / "new").write_text("2")
    assert environment.git_state(repository) == {"commit": state["commit"], "dirty": True}


@needs_git
def test_git_of_another_repository_does_not_answer(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = environment.git_state(repository)
    other = tmp_path_factory.mktemp("other")
    _git(other, "init")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))  # as inside a commit hook
    assert environment.git_state(repository) == expected


@needs_git
def test_no_commit_yet(tmp_path: Path) -> None:
    _git(tmp_path, "init")
    assert environment.git_state(tmp_path) == {"commit": None, "dirty": None}


def test_no_repository(tmp_path: Path) -> None:
    nothing = {"commit": None, "dirty": None}
    assert environment.git_state(tmp_path) == nothing
    assert environment.git_state(tmp_path / "missing") == nothing
    assert environment.git_state(None) == nothing


@needs_git
def test_no_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert environment.git_state(repository) == {"commit": None, "dirty": None}


@pytest.mark.parametrize(
    ("cpuinfo", "units"),
    [
        ("flags\t\t: fpu avx512f avx512_vnni", "none"),
        ("flags\t\t: fpu avx512f avx512_bf16", "avx512_bf16"),
        ("flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile", "amx"),
        ("Features\t: fp asimd bf16 i8mm", "arm bf16"),
        ("flags\t\t: avx512_bf16\n\nflags\t\t: fpu", "none"),  # one core has none
        ("vmx flags\t: amx_bf16\nflags\t\t: fpu", "none"),
        ("", "none"),
    ],
)
def test_bfloat16_units_from_flags(cpuinfo: str, units: str) -> None:
    assert environment.bfloat16_units(cpuinfo) == units


@pytest.mark.parametrize(("kind", "expected"), [("none", False), ("amx", True), ("arm bf16", True)])
def test_has_bfloat16_units(kind: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "bfloat16_kind", lambda: kind)
    assert environment.has_bfloat16_units() is expected


@pytest.mark.parametrize(
    ("device", "precision", "gpus", "cpu_units", "gpu_units", "reason"),
    [
        ("cpu", "float32", 0, False, False, None),
        ("cpu", "bfloat16", 0, False, False, "this CPU has no bfloat16 matrix or vector units"),
        ("cpu", "bfloat16", 0, True, False, None),
        ("cuda", "float32", 0, True, False, "no CUDA device"),
        ("cuda", "bfloat16", 0, False, False, "no CUDA device"),
        ("cuda", "float32", 1, False, False, None),
        ("cuda", "bfloat16", 1, False, True, None),
        ("cuda", "bfloat16", 1, True, False, "this GPU has no bfloat16 units"),
    ],
)
def test_missing(
    device: str,
    precision: str,
    gpus: int,
    cpu_units: bool,
    gpu_units: bool,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "cuda_devices", lambda: gpus)
    monkeypatch.setattr(environment, "has_bfloat16_units", lambda: cpu_units)
    monkeypatch.setattr(environment, "_gpu_has_bfloat16", lambda: gpu_units)
    job = dataclasses.replace(Job.of("sequential"), device=device, precision=precision)
    assert environment.missing(job) == reason


def test_tensorflow_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its own rows lack it."""
    wanted = Job.of("sequential", use_case="Pneumonia", framework="tensorflow")
    monkeypatch.setattr(environment, "has_tensorflow", lambda: False)
    assert environment.missing(wanted) == environment.NO_TENSORFLOW
    assert environment.NO_TENSORFLOW.startswith("TensorFlow is not installed; ")
    assert environment.missing(wanted.with_(framework="torch")) is None
    monkeypatch.setattr(environment, "has_tensorflow", lambda: True)
    assert environment.missing(wanted) is None


@pytest.mark.parametrize("absent", ["tensorflow", "keras", ""])
def test_tensorflow_without_keras_is_no_tensorflow(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows failed instead of being skipped."""
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None if name == absent else object())
    assert environment.has_tensorflow() is (absent == "")


def test_tensorflow_cpu_has_a_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same package from another distribution was recorded as not installed."""
    installed = {"tensorflow-cpu": "2.21.0", "keras": "3.1.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise environment.importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(environment.importlib.metadata, "version", version)
    found = environment.versions()
    assert (found["tensorflow"], found["keras"], found["torch"]) == ("2.21.0", "3.1.0", None)

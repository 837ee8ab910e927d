"""The doctor: every check, once where it must find a lack and name its fix, and once where there is none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from rich.console import Console
from typer.testing import CliRunner

from lockstep.commands.application import app
from lockstep.commands.doctor import CHECKS, GOOD, LACKING, NOTE, Finding, machine, show, software
from lockstep.engine import cgroups
from lockstep.engine.launch.spark import java
from small_notebooks import small_repository

Patch = pytest.MonkeyPatch
GIB = 2**30


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A small clone of its own, as the working folder."""
    root = small_repository(tmp_path / "clone")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def control_groups(tmp_path: Path, monkeypatch: Patch) -> Callable[[str, dict[str, str]], None]:
    """Puts this process into the control groups of a made-up system: what /proc/self/cgroup says, and the files."""

    def put(own: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "cgroup" / name).write_text(text)
        (tmp_path / "own").write_text(own)
        monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
        monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")

    return put


def fake_cores(monkeypatch: Patch, usable: int, total: int) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: list(range(4, 4 + usable)))
    monkeypatch.setattr(os, "cpu_count", lambda: total)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4, 4 + usable)), raising=False)


def test_every_check_is_asked(monkeypatch: Patch) -> None:
    """Also of the real machine: a check that raises would end the report."""
    monkeypatch.setattr(machine, "LOAD_SECONDS", 0.1)
    result = CliRunner().invoke(app, ["doctor"])
    names = [line[9:20].strip() for line in result.output.splitlines() if not line.startswith(" ")]
    expected = (
        "python lock torch tensorflow mpi spark kernel git compiler cores load memory sharing huge_pages bfloat16 gpu "
        "disk results data"
    )
    assert "-".join(names).replace(" ", "_") == expected.replace(" ", "-")
    assert len(names) == len(CHECKS)
    assert result.exit_code == int("LACKING" in result.output)


def test_a_lack_is_shown_with_its_fix_and_fails_the_command() -> None:
    console = Console(record=True, width=200)
    assert not show([Finding("a", GOOD, "fine"), Finding("b", LACKING, "gone [x]", "mend [y] it")], console)
    assert console.export_text().splitlines() == [
        "ok       a          fine", "LACKING  b          gone [x]", " " * 20 + "fix: mend [y] it"
    ]  # fmt: skip
    assert show([Finding("a", GOOD, "fine"), Finding("b", NOTE, "well", "think")], Console(quiet=True))


@pytest.mark.parametrize(("version", "state"), [((3, 10, 9), LACKING), ((3, 13, 0), LACKING), ((3, 12, 1), GOOD)])
def test_python(version: tuple[int, int, int], state: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(software, "sys", SimpleNamespace(version_info=version))
    found = software.check_python()
    assert found.state == state and ".".join(map(str, version)) in found.detail
    assert ("environment.yml" in found.fix) == (state == LACKING)


def test_lock(clone: Path) -> None:
    assert software.check_lock().state == NOTE, "a folder without a lock"
    (clone / "requirements.lock").write_text("# pins\npytest==0.0.1\nno-such-package==1.0\n")
    found = software.check_lock()
    assert found.state == LACKING and "no-such-package missing (lock: 1.0)" in found.detail
    assert found.fix == f"{sys.executable} -m pip install -r {clone / 'requirements.lock'}"
    (clone / "requirements.lock").write_text(f"pytest=={pytest.__version__}\n")
    assert software.check_lock().state == GOOD


def test_torch_missing_or_without_gloo(monkeypatch: Patch) -> None:
    import torch

    assert software.check_torch().state == GOOD
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_gloo_available", lambda: False)
        assert software.check_torch().state == LACKING and "without gloo" in software.check_torch().detail
    monkeypatch.setitem(sys.modules, "torch", None)
    found = software.check_torch()
    assert found.state == LACKING and "can't be imported" in found.detail and "grep '^torch=='" in found.fix


def test_tensorflow_may_be_missing(monkeypatch: Patch, clone: Path) -> None:
    """Its rows are skipped then; all else runs, so that neither its line nor the lock's is a lack."""
    (clone / "requirements.lock").write_text(f"pytest=={pytest.__version__}\ntensorflow==2.0.0\n")
    monkeypatch.setattr(software, "has_tensorflow", lambda: True)
    versions = {"pytest": pytest.__version__, "tensorflow": "2.0.0", "keras": "3.0.0"}
    monkeypatch.setattr(software, "_version", versions.get)
    found = software.check_tensorflow()
    assert (found.state, found.detail) == (GOOD, "2.0.0, Keras 3.0.0")
    assert software.check_lock().detail == "all 2 packages as in requirements.lock"
    versions["tensorflow"] = "1.0.0"
    assert software.check_lock().state == LACKING
    del versions["tensorflow"]
    monkeypatch.setattr(software, "has_tensorflow", lambda: False)
    found = software.check_tensorflow()
    assert found.state == NOTE and "rows of TensorFlow are skipped" in found.detail and "pip install" in found.fix
    found = software.check_lock()
    assert (found.state, found.detail) == (GOOD, "1 packages as in requirements.lock, without tensorflow")


def test_spark_and_its_java(monkeypatch: Patch, tmp_path: Path) -> None:
    found = software.check_spark()
    assert found.state == GOOD and "pyspark 3.5" in found.detail and "Java 17" in found.detail
    monkeypatch.setenv(java.VARIABLE, str(tmp_path))
    found = software.check_spark()
    assert found.state == LACKING and "there is no bin/java in it" in found.detail and "pip install" in found.fix


def test_compiler(monkeypatch: Patch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = software.check_compiler()
    assert found.state == NOTE and "nothing here needs one" in found.detail and found.fix.endswith("install gcc g++")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/" + name)
    assert software.check_compiler().state == GOOD


def test_git_missing_or_without_a_commit(clone: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(software, "git_state", lambda root: {"commit": None, "dirty": None})
    assert software.check_git().fix.startswith("git init") and software.check_git().state == NOTE
    (clone / ".git").mkdir()
    assert "safe.directory" in software.check_git().fix
    monkeypatch.setattr(software, "git_state", lambda root: {"commit": "a" * 40, "dirty": True})
    assert software.check_git() == Finding(
        "git", GOOD, "commit aaaaaaaa, with uncommitted changes, which run.json will say"
    )
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert software.check_git().state == NOTE and software.check_git().fix.endswith("install git")


def test_kernel(monkeypatch: Patch) -> None:
    def named(*argv: str) -> None:
        monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", lambda self, name: SimpleNamespace(argv=list(argv)))

    for own in ("python", sys.executable, str(Path(sys.executable).parent / "python3")):
        named(own, "-m", "ipykernel_launcher")
        assert software.check_kernel().state == GOOD, own
    named("/elsewhere/bin/python", "-m", "ipykernel_launcher")
    found = software.check_kernel()
    assert found.state == NOTE and "/elsewhere/bin/python" in found.detail
    assert found.fix == f"{sys.executable} -m ipykernel install --sys-prefix --name python3"

    def none(self: Any, name: str) -> None:
        raise NoSuchKernel(name)

    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", none)
    assert software.check_kernel().state == NOTE
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert software.check_kernel().state == LACKING and "requirements.lock" in software.check_kernel().fix


def test_bfloat16(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "bfloat16_kind", lambda: "none")
    assert machine.check_bfloat16().state == NOTE and "amx_bf16" in machine.check_bfloat16().fix
    monkeypatch.setattr(machine, "bfloat16_kind", lambda: "amx")
    assert machine.check_bfloat16() == Finding("bfloat16", GOOD, "in hardware: amx")


def test_gpu(tmp_path: Path, monkeypatch: Patch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine, "NVIDIA", tmp_path / "nvidia0")
    assert machine.check_gpu().state == NOTE and machine.check_gpu().detail.startswith("none")
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(torch.version, "cuda", None)
    found = machine.check_gpu()
    assert found.state == NOTE and "a CPU build" in found.detail
    assert found.fix.endswith(f"-m pip install torch=={torch.__version__.partition('+')[0]}")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert "CUDA 12.8" in machine.check_gpu().detail and machine.check_gpu().fix.startswith("nvidia-smi")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "H200")
    assert machine.check_gpu() == Finding("gpu", GOOD, "H200")


V1 = "3:cpu,cpuacct:/batch/job\n2:memory:/batch/job\n0::/\n"


@pytest.mark.parametrize(("own", "files"), [
    ("0::/batch/job\n", {"batch/cpu.max": "200000 100000", "batch/job/cpu.max": "max 100000"}),
    ("0::/\n", {"cpu.max": "200000 100000"}),
    ("0::/../../host\n", {"cpu.max": "200000 100000"}),
    (V1, {"cpu/batch/job/cpu.cfs_quota_us": "200000", "cpu/batch/job/cpu.cfs_period_us": "100000",
          "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}),
])  # fmt: skip
def test_a_quota_below_the_cores(own: str, files: dict[str, str], control_groups: Any, monkeypatch: Patch) -> None:
    control_groups(own, files)
    fake_cores(monkeypatch, usable=8, total=8)
    found = machine.check_cores()
    assert found.state == NOTE and "8 usable, but CPU time for 2 only" in found.detail
    assert found.fix == "taskset -c 4,5 .venv/bin/lockstep run 02"
    fake_cores(monkeypatch, usable=2, total=8)
    assert machine.check_cores() == Finding("cores", GOOD, "2 usable of 8")


def test_less_than_a_core_and_one_core(control_groups: Any, monkeypatch: Patch) -> None:
    control_groups("0::/\n", {"cpu.max": "50000 100000"})
    fake_cores(monkeypatch, usable=4, total=4)
    assert "for 0.5 only" in machine.check_cores().detail and "--cpus 1" in machine.check_cores().fix
    control_groups("0::/\n", {"cpu.max": "max 100000"})
    fake_cores(monkeypatch, usable=1, total=4)
    found = machine.check_cores()
    assert found.state == NOTE and "1 usable of 4" in found.detail and "taskset -c 0-3" in found.fix
    fake_cores(monkeypatch, usable=1, total=1)
    assert "two cores or more" in machine.check_cores().fix


def available(monkeypatch: Patch, gib: float) -> None:
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=int(gib * GIB)))


def test_memory_of_the_machine(control_groups: Any, monkeypatch: Patch) -> None:
    control_groups("0::/\n", {"memory.max": "max", "memory.current": "5"})
    available(monkeypatch, 3)
    found = machine.check_memory()
    assert (found.state, found.detail) == (LACKING, "3 GiB available, 4 GiB needed") and found.fix.startswith("ps ")
    available(monkeypatch, 9)
    assert machine.check_memory().state == GOOD


@pytest.mark.parametrize(("own", "files"), [
    ("0::/job\n", {"job/memory.max": str(8 * GIB), "job/memory.current": str(7 * GIB),
                   "job/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n"}),
    (V1, {"memory/batch/job/memory.limit_in_bytes": str(8 * GIB), "memory/batch/memory.limit_in_bytes": str(2**63 - 1),
          "memory/batch/memory.usage_in_bytes": "1", "memory/batch/job/memory.usage_in_bytes": str(7 * GIB),
          "memory/batch/job/memory.stat": f"inactive_file 0\ntotal_inactive_file {2 * GIB}\n"}),
])  # fmt: skip
def test_memory_of_the_container(own: str, files: dict[str, str], control_groups: Any, monkeypatch: Patch) -> None:
    """8 GiB allowed, 7 used, of which 2 can be dropped: 3 are left, however much the machine has."""
    control_groups(own, files)
    available(monkeypatch, 100)
    found = machine.check_memory()
    assert found.state == LACKING and found.detail.startswith("3 GiB available under this control group's limit")
    assert "docker update --memory" in found.fix
    assert cgroups.memory_left(unused=True) == 8 * GIB, "whatever is used now"


def test_disk(clone: Path, monkeypatch: Patch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9, 8, 1 * GIB))
    found = machine.check_disk()
    assert (found.state, found.detail) == (LACKING, "1 GiB free, 2 GiB needed")
    assert found.fix.startswith(f"du -sh {clone}/results/runs/*")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9, 1, 3 * GIB))
    assert machine.check_disk().state == GOOD


def test_results(clone: Path) -> None:
    assert machine.check_results().state == GOOD and not list((clone / "results" / "runs").iterdir())
    (clone / "results" / "runs").rmdir()
    (clone / "results" / "runs").write_text("in the way")  # a permission would not stop root
    found = machine.check_results()
    assert found.state == LACKING and "chown" in found.fix and "--out" in found.fix


def test_sharing(tmp_path: Path, monkeypatch: Patch) -> None:
    if sys.platform == "linux":
        assert machine.check_sharing().state == GOOD
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "sys", SimpleNamespace(platform="linux"))
    found = machine.check_sharing()
    assert found.state == LACKING and "processes" in found.detail and "mount -t proc" in found.fix
    monkeypatch.setattr(machine, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    found = machine.check_sharing()
    assert found.state == NOTE and "memfd_create" in found.detail and "sync='allreduce'" in found.fix


def test_huge_pages(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "enabled"
    monkeypatch.setattr(machine, "HUGE_PAGES", path)
    assert machine.check_huge_pages().state == NOTE and "CONFIG_" in machine.check_huge_pages().fix
    path.write_text("always madvise [never]\n")
    found = machine.check_huge_pages()
    assert found.state == NOTE and found.detail.startswith("never") and found.fix == f"echo madvise | sudo tee {path}"
    path.write_text("always [madvise] never\n")
    assert machine.check_huge_pages().state == GOOD


class Watched:
    """What `Contention` measured, made up: two cores for a second."""

    cores_seconds, steal_seconds = 2.0, 0.1

    def __init__(self, others: float) -> None:
        self.other_cpu_seconds = others

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def contended(self) -> bool:
        return self.other_cpu_seconds > 0.5


def test_load(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "LOAD_SECONDS", 0.0)
    monkeypatch.setattr(machine, "Contention", lambda: Watched(1.2))
    found = machine.check_load()
    assert found.state == NOTE and "others take 60% of the usable cores, the hypervisor withholds 5%" in found.detail
    assert "marked contended" in found.detail and found.fix.startswith("ps -eo pcpu")
    monkeypatch.setattr(machine, "Contention", lambda: Watched(0.02))
    assert machine.check_load().state == GOOD and machine.check_load().fix == ""

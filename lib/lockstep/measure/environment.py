"""Under which conditions a run was made (commit, machine, versions), and whether this machine can run a cell at all.

Nothing here names the host, the user or a path, because results are published.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from lockstep.engine import registry
from lockstep.engine.cores import usable_cores
from lockstep.engine.job import Job
from lockstep.engine.launch.mpi.commands import MpiError, find_mpiexec
from lockstep.engine.launch.spark.java import SparkError, find_java, problem

PACKAGES = (
    *("torch", "tensorflow", "keras", "numpy", "pillow", "pandas", "papermill", "mpi4py", "mpich", "ipyparallel"),
    *("pyspark", "pyarrow"),
)
_ALSO_CALLED = {"tensorflow": "tensorflow-cpu"}
"""Another distribution of the same package."""
NO_CUDA = "no CUDA device"
NO_SPARK = "no Java that Spark runs on, or no pyspark; lockstep doctor says which"  # a path must not be recorded
NO_TENSORFLOW = "TensorFlow is not installed; pip install -r requirements.lock brings it"
NO_BFLOAT16 = "this CPU has no bfloat16 matrix or vector units"
NO_BFLOAT16_GPU = "this GPU has no bfloat16 units"
_CPUINFO = Path("/proc/cpuinfo")


def capture(repository: Path | None) -> dict[str, Any]:
    """The description of this machine for `run.json`, as JSON values.

    Keys: `git` (commit, dirty: both None without git, a repository or a commit; untracked files count as dirty),
    `machine` (cpu, cores usable by this process, cores_total, memory_bytes, gpu names, bfloat16 units, os, kernel) and
    `versions` (None for a package that is not installed).
    """
    return {"git": git_state(repository), "machine": machine(), "versions": versions()}


def git_state(repository: Path | None) -> dict[str, Any]:
    """Commit (40 hex digits) and dirty flag of the repository that holds the folder; None where there is none."""
    commit = None if repository is None else _git(repository, "rev-parse", "--verify", "HEAD")
    if repository is None or not commit:
        return {"commit": None, "dirty": None}
    # Results don't count, because a run that writes into the repository must find it clean when it is resumed.
    changes = _git(repository, "status", "--porcelain", "--", ":/", ":(top,exclude)results")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def machine() -> dict[str, Any]:
    """CPU, cores, memory, GPUs, bfloat16 units and operating system. Memory in bytes."""
    return {
        "cpu": cpu_model(),
        "cores": len(usable_cores()),
        "cores_total": os.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": _gpu_names(),
        "bfloat16": bfloat16_kind(),
        "os": platform.system(),
        # Only the numbers: the text after them can name the provider or the builder of the kernel.
        "kernel": leading_numbers(platform.release()),
    }


def versions() -> dict[str, str | None]:
    """Versions of Python, of the packages that numbers depend on, of mpiexec (its kind too) and of glibc.

    None for what is missing. MPI is not started; its library is identified by its mpiexec.
    """
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        found[package] = _version(package) or _version(_ALSO_CALLED.get(package, package))
    found["mpiexec"] = _mpiexec()
    found["java"] = _java()
    found["glibc"] = _glibc()
    return found


def has_bfloat16_units() -> bool:
    """Whether this CPU computes in bfloat16; without units it is emulated, many times slower than float32."""
    return bfloat16_kind() != "none"


@functools.cache
def bfloat16_kind() -> str:
    """The CPU's bfloat16 units: `amx`, `avx512_bf16`, `arm bf16` or `none` (also where it can't be found out)."""
    if _CPUINFO.exists():
        return bfloat16_units(_CPUINFO.read_text(errors="replace"))
    if sys.platform == "darwin" and _output("sysctl", "-n", "hw.optional.arm.FEAT_BF16") == "1":
        return "arm bf16"
    return "none"


def bfloat16_units(cpuinfo: str) -> str:
    """The best bfloat16 units in the text of /proc/cpuinfo: `amx`, `avx512_bf16`, `arm bf16` or `none`.

    With several kinds of core, units count only if every core has them: a worker may be pinned to any.
    """
    lines = [line for line in cpuinfo.splitlines() if re.match(r"(flags|Features)\s*:", line)]
    flags = [set(line.split(":", 1)[1].split()) for line in lines]
    common = set.intersection(*flags) if flags else set()
    for flag, name in (("amx_bf16", "amx"), ("avx512_bf16", "avx512_bf16"), ("bf16", "arm bf16")):
        if flag in common:
            return name
    return "none"


def cuda_devices() -> int:
    """CUDA devices that torch can use."""
    import torch  # takes a second, which callers that need no GPU, such as `lockstep doctor`, should not wait for

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def has_tensorflow() -> bool:
    """Whether TensorFlow and Keras are installed; they are not imported, which takes seconds."""
    return all(importlib.util.find_spec(package) is not None for package in ("tensorflow", "keras"))


def missing(job: Job) -> str | None:
    """The reason why this cell can't run on this machine, for its row, or None if it can."""
    if job.link_bits_per_second:
        from lockstep.engine.launch.mpi.emulated import why_not  # on demand: it imports torch, which may be lacking

        if lacking := why_not():
            return lacking
    launcher = registry.launcher_of(job.launcher)
    if launcher is not None and launcher.spark and problem():
        return NO_SPARK
    if job.framework == "tensorflow" and not has_tensorflow():
        return NO_TENSORFLOW
    if job.device.startswith("cuda"):
        if not cuda_devices():
            return NO_CUDA
        if job.workers > cuda_devices():
            return f"{job.workers} workers need a CUDA device each, and there are {cuda_devices()}"
        return NO_BFLOAT16_GPU if job.precision == "bfloat16" and not _gpu_has_bfloat16() else None
    return NO_BFLOAT16 if job.precision == "bfloat16" and not has_bfloat16_units() else None


def _gpu_names() -> list[str]:
    count = cuda_devices()
    if not count:
        return []
    import torch

    return [torch.cuda.get_device_name(index) for index in range(count)]


def _gpu_has_bfloat16() -> bool:
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def cpu_model() -> str:
    if _CPUINFO.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", _CPUINFO.read_text(errors="replace"), re.MULTILINE)
        if found:
            return found.group(1).strip()
    if sys.platform == "darwin" and (brand := _output("sysctl", "-n", "machdep.cpu.brand_string")):
        return brand
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _mpiexec() -> str | None:
    """The kind and version of mpiexec, such as "mpich 5.0.2", without its path; None if there is no known one."""
    try:
        found = find_mpiexec()
    except MpiError:
        return None
    return f"{found.kind} {'.'.join(map(str, found.version))}"


def _java() -> str | None:
    """The version of the Java that Spark would start."""
    try:
        return str(find_java().version)
    except SparkError:
        return None


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):  # not glibc
        return None
    return version if name == "glibc" else None


def leading_numbers(release: str) -> str:
    found = re.match(r"\d+(\.\d+)*", release)
    return found.group(0) if found else ""


def _git(repository: Path, *arguments: str) -> str | None:
    # A commit hook sets GIT_DIR and GIT_INDEX_FILE, which would answer for another repository; the lock would
    # disturb a commit made meanwhile.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return _output("git", "--no-optional-locks", "-C", str(repository), *arguments, environment=environment)


def _output(*command: str, environment: Mapping[str, str] | None = None) -> str | None:
    """What a command prints, stripped; None if it is absent, fails or takes over 30 s."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

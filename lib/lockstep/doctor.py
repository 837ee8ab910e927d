"""What this machine and this environment lack for a run, each with its exact fix."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
from rich.console import Console

from lockstep.runner.errors import RunError
from lockstep.runner.places import repository

LEAST_MEMORY_BYTES = 4 * 2**30  # two VGG16 replicas at batch 32 take about 3 GiB beside the system
LEAST_DISK_BYTES = 2 * 2**30
GOOD, LACKING, NOTE = "ok", "lacking", "note"


@dataclass(frozen=True)
class Finding:
    """One line: `lacking` is what keeps a run from working, `note` is worth knowing."""

    name: str
    state: str
    detail: str
    fix: str = ""


def check_all() -> list[Finding]:
    """All checks, in the order in which their fixes make sense."""
    checks: list[Callable[[], Finding]] = [
        check_python,
        check_lock,
        check_torch,
        check_bfloat16,
        check_gpu,
        check_cores,
        check_memory,
        check_disk,
        check_results,
        check_data,
    ]
    return [check() for check in checks]


def show(findings: list[Finding], console: Console) -> bool:
    """Print the findings; True if nothing that is needed is missing."""
    marks = {GOOD: "ok     ", NOTE: "note   ", LACKING: "LACKING"}
    for finding in findings:
        console.print(
            f"{marks[finding.state]}  {finding.name:<9} {finding.detail}", markup=False, highlight=False, soft_wrap=True
        )
        if finding.fix:
            console.print(f"{'':<19}fix: {finding.fix}", markup=False, highlight=False, soft_wrap=True)
    return all(finding.state != LACKING for finding in findings)


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        return Finding("python", GOOD, version)
    return Finding(
        "python", LACKING, f"{version}; 3.11 or 3.12 is needed", "install Python 3.11, then `make clean test`"
    )


def check_lock() -> Finding:
    """Installed versions against requirements.lock; a local part such as +cpu is no difference."""
    try:
        path = repository() / "requirements.lock"
        lines = path.read_text(encoding="utf-8").splitlines()
    except (RunError, OSError) as error:
        return Finding("lock", NOTE, f"not compared: {error}")
    pins = dict(line.split("==", 1) for line in lines if "==" in line and not line.startswith("#"))
    other = [
        f"{name} {found or 'missing'} (lock: {pin})" for name, pin in pins.items() if (found := _version(name)) != pin
    ]
    if not other:
        return Finding("lock", GOOD, f"all {len(pins)} packages as in requirements.lock")
    shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
    return Finding("lock", LACKING, f"other versions: {shown}", f"{sys.executable} -m pip install -r requirements.lock")


def check_torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("torch", LACKING, f"can't be imported: {error}", "make test, which installs requirements.lock")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return Finding("torch", LACKING, f"{torch.__version__} without gloo", "install torch from requirements.lock")
    return Finding("torch", GOOD, f"{torch.__version__}, {build}, {torch.get_num_threads()} threads, gloo")


def check_bfloat16() -> Finding:
    from lockstep.measure.environment import bfloat16_kind

    kind = bfloat16_kind()
    if kind != "none":
        return Finding("bfloat16", GOOD, f"in hardware: {kind}")
    return Finding("bfloat16", NOTE, "not among this CPU's instructions: bfloat16 rows are recorded as skipped")


def check_gpu() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("gpu", NOTE, "unknown without torch")
    if torch.cuda.is_available():
        return Finding("gpu", GOOD, torch.cuda.get_device_name(0))
    return Finding("gpu", NOTE, "none that torch can use: the GPU rows are recorded as skipped")


def check_cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores >= 2:
        return Finding("cores", GOOD, f"{cores} usable")
    return Finding("cores", NOTE, "1 usable: two workers will share it, which is recorded, and gain nothing")


def check_memory() -> Finding:
    free = psutil.virtual_memory().available
    text = f"{free / 2**30:.1f} GiB available"
    if free >= LEAST_MEMORY_BYTES:
        return Finding("memory", GOOD, text)
    return Finding("memory", LACKING, f"{text}, {LEAST_MEMORY_BYTES / 2**30:.0f} GiB needed", "close other programs")


def check_disk() -> Finding:
    free = shutil.disk_usage(_root()).free
    text = f"{free / 2**30:.1f} GiB free"
    if free >= LEAST_DISK_BYTES:
        return Finding("disk", GOOD, text)
    return Finding(
        "disk", LACKING, f"{text}, {LEAST_DISK_BYTES / 2**30:.0f} GiB needed", "free some, or clone elsewhere"
    )


def check_results() -> Finding:
    folder = _root() / "results" / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".doctor"
        probe.write_text("x", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        return Finding(
            "results", LACKING, f"results/runs is not writable: {error.strerror}", "lockstep run … --out FOLDER"
        )
    return Finding("results", GOOD, "results/runs is writable")


def check_data() -> Finding:
    named = os.environ.get("LOCKSTEP_DATA")
    if not named:
        return Finding(
            "data", NOTE, "LOCKSTEP_DATA is not set: the synthetic stand-in is used (data/README.md has the rest)"
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        return Finding("data", LACKING, f"LOCKSTEP_DATA={named} is not a folder", "unset LOCKSTEP_DATA or correct it")
    there = sorted(child.name for child in folder.iterdir() if child.is_dir())
    if not there:
        return Finding("data", LACKING, f"LOCKSTEP_DATA={named} is empty", "data/README.md says what belongs there")
    return Finding("data", GOOD, f"LOCKSTEP_DATA holds {', '.join(there)}")


def _root() -> Path:
    try:
        return repository()
    except RunError:
        return Path.cwd()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None

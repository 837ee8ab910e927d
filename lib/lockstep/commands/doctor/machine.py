"""Processor, memory, disk, and what the operating system allows."""

from __future__ import annotations

import importlib.util
import mmap
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil

from lockstep.commands.doctor.findings import GOOD, LACKING, LOCKSTEP, NOTE, Finding, here
from lockstep.engine import cgroups
from lockstep.engine.cores import usable_cores
from lockstep.engine.units import bytes_text
from lockstep.measure.contention import CONTENTION_THRESHOLD, Contention
from lockstep.measure.environment import NO_BFLOAT16, bfloat16_kind

LEAST_MEMORY_BYTES = 4 * 2**30  # two VGG16 replicas at batch 32 take about 3 GiB beside the system
LEAST_DISK_BYTES = 2 * 2**30
LOAD_SECONDS = 1.0
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
NVIDIA = Path("/dev/nvidia0")
PROC = Path("/proc")


def check_bfloat16() -> Finding:
    kind = bfloat16_kind()
    if kind != "none":
        return Finding("bfloat16", GOOD, f"in hardware: {kind}")
    return Finding("bfloat16", NOTE, f"{NO_BFLOAT16}: bfloat16 rows are recorded as skipped",
                   "# another CPU only: amx_bf16 or avx512_bf16 must stand in /proc/cpuinfo")  # fmt: skip


def check_gpu() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("gpu", NOTE, "unknown without torch")
    import torch

    if torch.cuda.is_available():
        return Finding("gpu", GOOD, torch.cuda.get_device_name(0))
    if NVIDIA.exists():
        fix = f"{sys.executable} -m pip uninstall -y torch && {sys.executable} -m pip install torch=={_public(torch)}"
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
        fix = "nvidia-smi  # shows whether the driver is new enough for it" if torch.version.cuda else fix
        return Finding("gpu", NOTE, f"there is one, but torch ({build}) can't use it: GPU rows are skipped", fix)
    return Finding("gpu", NOTE, "none: the GPU rows are recorded as skipped", "# a machine with an NVIDIA GPU")


def check_cores() -> Finding:
    """Usable cores are those of the affinity; a quota below them stops the workers in the middle of a step."""
    cores, total, quota = len(usable_cores()), os.cpu_count() or 1, cgroups.cpu_limit()
    if quota is not None and quota < cores:
        detail = f"{cores} usable, but CPU time for {quota:g} only (control group): workers are stopped in mid-step"
        if quota < 1:
            return Finding("cores", NOTE, detail, "docker update --cpus 1 CONTAINER  # or ask the batch system for one")
        return Finding("cores", NOTE, detail, f"taskset -c {_first_cores(int(quota))} {LOCKSTEP} run 02")
    if cores >= 2:
        return Finding("cores", GOOD, f"{cores} usable" + (f" of {total}" if total > cores else ""))
    detail = f"1 usable of {total}: two workers will share it, which is recorded, and gain nothing"
    fix = f"taskset -c 0-{total - 1} {LOCKSTEP} run 02" if total > 1 else "# a machine with two cores or more"
    return Finding("cores", NOTE, detail, fix)


def check_memory() -> Finding:
    left, free = cgroups.memory_left(), psutil.virtual_memory().available
    limited = left is not None and left < free
    free = left if left is not None and limited else free
    text = f"{bytes_text(free)} available" + (" under this control group's limit" if limited else "")
    if free >= LEAST_MEMORY_BYTES:
        return Finding("memory", GOOD, text)
    fix = "ps -eo rss,pid,comm --sort=-rss | head -5  # the largest programs; end what you can spare"
    if limited:
        fix = "docker update --memory 8g --memory-swap 8g CONTAINER  # or ask the batch system for more"
    return Finding("memory", LACKING, f"{text}, {bytes_text(LEAST_MEMORY_BYTES)} needed", fix)


def check_disk() -> Finding:
    free = shutil.disk_usage(here()).free
    text = f"{bytes_text(free)} free"
    if free >= LEAST_DISK_BYTES:
        return Finding("disk", GOOD, text)
    runs = here() / "results" / "runs"
    fix = f"du -sh {runs}/* | sort -h  # your runs, the largest last; remove what you can spare"
    return Finding("disk", LACKING, f"{text}, {bytes_text(LEAST_DISK_BYTES)} needed", fix)


def check_results() -> Finding:
    folder = here() / "results" / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fix = (
            f'sudo chown -R "$USER" {here() / "results"}  # or write elsewhere: {LOCKSTEP} run 02 --out ~/lockstep-runs'
        )
        return Finding("results", LACKING, f"results/runs is not writable: {error.strerror}", fix)
    return Finding("results", GOOD, "results/runs is writable")


def check_sharing() -> Finding:
    """Workers share parameters in a file without a name, which the others open through /proc."""
    try:
        handle = os.memfd_create("lockstep-doctor") if hasattr(os, "memfd_create") else -1
        if handle < 0:
            raise OSError(0, "this system has no memfd_create")
        try:
            os.ftruncate(handle, mmap.PAGESIZE)
            other = os.open(PROC / str(os.getpid()) / "fd" / str(handle), os.O_RDWR)
            with mmap.mmap(other, mmap.PAGESIZE) as memory:
                memory[0] = 1
            os.close(other)
        finally:
            os.close(handle)
    except OSError as error:
        detail = f"no memory that processes share ({error.strerror}): the strategy `processes` would fail"
        if sys.platform != "linux":
            return Finding("sharing", NOTE, detail, "# Linux only; lockstep.train(..., sync='allreduce') works without")
        return Finding(
            "sharing", LACKING, detail, "sudo mount -t proc proc /proc  # in a container: start it with /proc"
        )
    return Finding("sharing", GOOD, "memory can be shared between processes (memfd, /proc)")


def check_huge_pages() -> Finding:
    """The environment profile `tuned` asks for huge pages; where the kernel gives none, steps take more page faults."""
    try:
        chosen = HUGE_PAGES.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return Finding("huge pages", NOTE, "this kernel has no transparent huge pages: steps take more page faults",
                       "# a Linux kernel with CONFIG_TRANSPARENT_HUGEPAGE")  # fmt: skip
    if chosen in ("always", "madvise"):
        return Finding("huge pages", GOOD, f"{chosen}: given on request")
    detail = f"{chosen or 'unknown'}: the kernel gives none, and the allocator profile gains less"
    return Finding("huge pages", NOTE, detail, f"echo madvise | sudo tee {HUGE_PAGES}")


def check_load() -> Finding:
    """What others take of our cores right now: above the threshold, cells are recorded as contended."""
    with Contention() as seen:
        time.sleep(LOAD_SECONDS)
    others, stolen = seen.other_cpu_seconds / seen.cores_seconds, seen.steal_seconds / seen.cores_seconds
    detail = f"others take {others:.0%} of the usable cores"
    detail += f", the hypervisor withholds {stolen:.0%}" if stolen >= 0.005 else ""
    if not seen.contended():
        return Finding("load", GOOD, f"{detail} right now")
    fix = "ps -eo pcpu,pid,comm --sort=-pcpu | head -5  # who it is; wait for them, or end what is yours"
    why = f"more than {CONTENTION_THRESHOLD:.0%}, so measurements now will be marked contended"
    return Finding("load", NOTE, f"{detail} right now, {why}", fix)


def _first_cores(count: int) -> str:
    return ",".join(str(core) for core in usable_cores()[:count])


def _public(torch: object) -> str:
    return str(getattr(torch, "__version__", "")).partition("+")[0]


CHECKS = (
    check_cores,
    check_load,
    check_memory,
    check_sharing,
    check_huge_pages,
    check_bfloat16,
    check_gpu,
    check_disk,
    check_results,
)

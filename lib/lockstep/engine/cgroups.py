"""What this process's control groups allow: containers and batch systems limit CPU time and memory with them."""

from __future__ import annotations

from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def cpu_limit() -> float | None:
    """Cores' worth of CPU time that we may use; None if there is no limit (or no control group)."""
    found = []
    for folder in _folders("cpu"):
        quota, period = [*_text(folder / "cpu.max").split(), "", ""][:2]  # version 2
        quota, period = quota or _text(folder / "cpu.cfs_quota_us"), period or _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_left(*, unused: bool = False) -> int | None:
    """Bytes until the limit, droppable file cache not counted, or (`unused`) the limit itself; None: there is none."""
    found = []
    for folder in _folders("memory"):
        limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        used = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
        if limit.isdigit() and used.isdigit() and int(limit) < 2**60:  # version 1 writes a huge number for no limit
            stat = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
            cached = stat.get("total_inactive_file") or stat.get("inactive_file") or "0"
            found.append(max(0, int(limit) - (0 if unused else max(0, int(used) - int(cached)))))
    return min(found, default=None)


def free_memory() -> int:
    """Bytes that may still be used on this machine and by its control groups."""
    free, left = int(psutil.virtual_memory().available), memory_left()
    return free if left is None else min(free, left)


def _folders(controller: str) -> list[Path]:
    """Our group of that controller and all above it, in version 1 or 2, as far as they can be seen from here."""
    found: list[Path] = []
    for line in _text(OWN).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        base = ROOT / controller if controllers else ROOT
        group = base if ".." in path else base / path.lstrip("/")
        while group.is_relative_to(base):
            found += [group] if group.is_dir() else []
            group = group.parent
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

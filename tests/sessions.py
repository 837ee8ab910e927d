"""A session of measuring as run.json describes it, made up."""

from __future__ import annotations

from typing import Any

MACHINE: dict[str, Any] = {
    "cpu": "A CPU", "cores": 2, "cores_total": 2, "memory_bytes": 24 * 2**30, "gpu": [], "bfloat16": "none",
    "os": "Linux", "kernel": "6.1",
}  # fmt: skip
SESSION: dict[str, Any] = {
    "git": {"commit": "abc", "dirty": False},
    "machine": MACHINE,
    "versions": {"torch": "2.13.0"},
    "day": "2026-11-22",
}

"""The options of `lockstep mpi` and their defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MpiOptions:
    """The options of `lockstep mpi`, which `mpi` explains."""

    workers: int
    use_case: str = "SimpleBig"
    network: str = "default"
    sync: str = "allreduce"
    steps: int = 20
    per_worker_batch_size: int = 32
    threads_per_worker: int = 1
    precision: str = "float32"
    data_dir: str = ""
    images: int = 0
    checkpoint: str = ""
    resume: bool = False
    hosts: str = ""
    hostfile: str = ""
    iface: str = ""
    launcher_kind: str = ""
    stall_seconds: float = 600
    batch: bool = False
    dry_run: bool = False

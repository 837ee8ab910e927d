"""Where a job runs: hosts, workers, servers, cores, and what its launcher can do."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine import registry
from lockstep.engine.declared import DeclaredLauncher
from lockstep.engine.job.agreement import Agreement, declared
from lockstep.engine.options import JobError, choice, option

_DRIVERS_OWN = ("overhead", "preparation")
"""Experiments on Spark's driver that train nothing."""


@dataclass(frozen=True)
class Where(Agreement):
    """Hosts, workers and cores."""

    framework: str = choice("torch", "tensorflow")
    device: str = choice("cpu", "cuda")
    hosts: int = option(1, "machines, real or emulated", least=1)
    host_workers: str = choice("processes", "threads", help="the workers of one host: processes, or threads of one")
    workers: int = option(1, "ranks that train", least=1)
    servers: int = declared("servers")
    threads_per_worker: int = option(1, "threads inside each operator", least=1)
    cores_per_worker: int = option(1, "affinity: computing and decoding share these cores", least=1)

    @property
    def ranks(self) -> int:
        """Workers and dedicated servers together; the servers are the last ranks."""
        return self.workers + self.servers

    @property
    def declared_launcher(self) -> type[DeclaredLauncher] | None:
        """What the file of this job's launcher declares; None for a launcher that only a caller knows."""
        return registry.launcher_of(self.launcher)

    @property
    def simulated(self) -> bool:
        """Are the workers simulated, in virtual time?"""
        return self.declared_launcher is not None and self.declared_launcher.simulated

    def check(self) -> None:
        super().check()
        launcher = self.declared_launcher
        if launcher is None:
            return
        if self.hosts > 1 and launcher.one_host:
            raise JobError(f"hosts={self.hosts}: launcher={self.launcher!r} stays on this machine; give 'mpiexec'")
        self._check_host_workers(launcher)
        if launcher.spark:
            self._check_spark()
        self._check_sync(launcher)

    def _check_host_workers(self, launcher: type[DeclaredLauncher]) -> None:
        if self.host_workers == "processes":
            return
        sync = self.declared_sync
        if not launcher.hosts_of_threads or sync is None or not sync.hosts_of_threads:
            starts = _named(name for name, each in registry.launchers().items() if each.hosts_of_threads)
            trains = _named(name for name, each in registry.syncs_and_peers().items() if each.hosts_of_threads)
            raise JobError(
                f"host_workers='threads' with launcher={self.launcher!r}, sync={self.sync!r}: only {starts} starts "
                f"such hosts, and only {trains} trains on them"
            )
        if self.workers % self.hosts:
            raise JobError(f"host_workers='threads': workers={self.workers} can't be split over hosts={self.hosts}")

    def _check_spark(self) -> None:
        if self.hosts > 1:
            raise JobError(
                f"hosts={self.hosts} with launcher={self.launcher!r}: the hosts are the cluster's, which a master's "
                "URL names (LOCKSTEP_SPARK_MASTER); give hosts=1"
            )
        if self.device != "cpu":
            raise JobError(f"device={self.device!r} with launcher={self.launcher!r}: ranks get no GPU; give 'cpu'")

    def _check_sync(self, launcher: type[DeclaredLauncher]) -> None:
        sync = self.declared_sync
        if sync is None or sync.runs_on(self.launcher, launcher):
            return
        if launcher.owns_loop and sync.alone and self.experiment in _DRIVERS_OWN:
            return
        if sync.needs_processes and not launcher.process_per_worker:
            raise JobError(
                f"sync={self.sync!r} needs a process per worker, not launcher={self.launcher!r}; give "
                "launcher='processes'"
            )
        where = _named(name for name, each in registry.launchers().items() if sync.runs_on(name, each))
        raise JobError(f"sync={self.sync!r} with launcher={self.launcher!r}: it runs on {where} only")


def _named(names: object) -> str:
    """'threads', 'processes' or 'spark'"""
    *first, last = [repr(name) for name in names]  # type: ignore[attr-defined]
    return f"{', '.join(first)} or {last}" if first else last

"""Detects contention: whether other processes used the machine during a measurement, which can halve a result.

Other CPU time = the cores' busy time - the CPU time of our own processes. Steal = the time that the hypervisor gave to
other machines while this one had work. Both come from the kernel's ticks (10 ms per core), so an interval should last a
second or more. Work that the kernel does for us in its own threads, such as writing pages back, counts as other.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import psutil

from lockstep.measure.resources import ProcessTree

# The share of the usable cores' time that others may take before a cell counts as contended. Two workers that wait for
# each other lose as much as the slower one: 5 % of two cores can cost 10 % of a step.
CONTENTION_THRESHOLD = 0.05
ALL_CORES = -1  # the key where the system has one count for all cores
_STAT = Path("/proc/stat")


class CpuSeconds(NamedTuple):
    """CPU time since the machine started."""

    busy: float
    steal: float
    interrupts: float = 0.0
    """The part of the busy time that interrupts took, with their deferred work, such as moving packets.

    A kernel with CONFIG_IRQ_TIME_ACCOUNTING attributes this time to no process, except for that of ksoftirqd. Other
    kernels also attribute each tick to the interrupted process.
    """


class Contention:
    """Measures the CPU time that other processes took during a `with` block.

    Our own processes are this one and all its descendants, those that ended within the block included, and the trees
    of `pids` (workers that another program started, such as MPI ranks). Where the system knows affinities, only the
    cores that our own threads may run on count: on a large shared machine, work on other cores is no contention.

    `network`: the measured cell communicates over (emulated) links, so the kernel's work on packets is its own, and
    the time of interrupts is subtracted too. A kernel that also attributes them to the interrupted process (see
    `CpuSeconds.interrupts`) makes some of them count twice. The work of others may then be underestimated, by at most
    the time of the interrupts.

    After the block: `wall_seconds`, `own_cpu_seconds`, `other_cpu_seconds`, `steal_seconds`, `usable_cores`, and
    `others_share`.
    """

    def __init__(self, pids: Iterable[int] = (), network: bool = False) -> None:
        self._roots, self._network = {os.getpid(), *pids}, network
        self._measured = False
        self.wall_seconds = 0.0
        self.own_cpu_seconds = 0.0
        self.other_cpu_seconds = 0.0
        self.steal_seconds = 0.0
        self.usable_cores = 0

    def __enter__(self) -> Contention:
        self._measured = False
        self._tree = ProcessTree(self._roots)
        self._cores = allowed_cores(self._tree.seen)
        self._start = cpu_seconds_by_core()
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.wall_seconds = time.perf_counter() - self._began
        end = cpu_seconds_by_core()
        self.own_cpu_seconds = self._tree.advance()
        # Workers that started within the block may be bound to other cores.
        allowed = self._cores | allowed_cores(self._tree.seen)
        self.usable_cores = len(allowed) or os.cpu_count() or 1
        cores = [core for core in end if core in self._start and (core in allowed or core == ALL_CORES)]
        busy = sum(end[core].busy - self._start[core].busy for core in cores)
        if self._network:
            busy -= sum(end[core].interrupts - self._start[core].interrupts for core in cores)
        self.steal_seconds = max(0.0, sum(end[core].steal - self._start[core].steal for core in cores))
        self.other_cpu_seconds = max(0.0, busy - self.own_cpu_seconds)
        self._measured = True

    @property
    def cores_seconds(self) -> float:
        """The time of all usable cores during the block."""
        return self.wall_seconds * self.usable_cores

    @property
    def others_share(self) -> float:
        """The share of the usable cores' time that other processes and the hypervisor took.

        Raises RuntimeError before the block has ended.
        """
        if not self._measured:
            raise RuntimeError("nothing is known of others before the `with Contention()` block has ended")
        return (self.other_cpu_seconds + self.steal_seconds) / max(self.cores_seconds, 1e-9)

    def contended(self, threshold_fraction: float = CONTENTION_THRESHOLD) -> bool:
        """Whether `others_share` is above the threshold."""
        return self.others_share > threshold_fraction


def cpu_seconds_by_core() -> dict[int, CpuSeconds]:
    """Busy and stolen CPU time of each core; except on Linux, of all cores together under ALL_CORES."""
    if _STAT.exists():
        return parse_stat(_STAT.read_text(), os.sysconf("SC_CLK_TCK"))
    times = psutil.cpu_times()
    busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq"))
    return {ALL_CORES: CpuSeconds(busy, 0.0)}


def parse_stat(text: str, ticks_per_second: int) -> dict[int, CpuSeconds]:
    """The cores' lines of /proc/stat: busy = user + nice + system + irq + softirq (guests are part of user)."""
    found = {}
    for line in text.splitlines():
        if name := re.match(r"cpu(\d+) ", line):
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
            busy = user + nice + system + irq + softirq
            counts = (busy, steal, irq + softirq)
            found[int(name.group(1))] = CpuSeconds(*(ticks / ticks_per_second for ticks in counts))
    return found


def allowed_cores(pids: Iterable[int]) -> set[int]:
    """Cores that any thread of these processes may run on; empty where the system has no affinity."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    cores: set[int] = set()
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                cores |= os.sched_getaffinity(int(thread))
        except OSError:
            continue  # ended meanwhile
    return cores

"""What worker processes use while they train: CPU, memory, threads and I/O wait against time.

Memory is PSS (proportional set size): a page that n processes share counts 1/n in each, so a sum over workers counts
shared parameters once. RSS would count them n times.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import pandas as pd
import psutil

from lockstep.engine.thread_names import trains

_PROC = Path("/proc")
_HAS_PSS = (_PROC / "self" / "smaps_rollup").exists()
# Far cheaper than psutil's method, which reads every process of the machine.
_HAS_CHILDREN = (_PROC / "thread-self" / "children").exists()
_HAS_NAMES = (_PROC / "thread-self" / "comm").exists()
# To compute a PSS the kernel walks the process's page tables, about 20 ms per gigabyte, and its page faults wait
# meanwhile. Reading may therefore cost only this part of a core; in between, the last value is used. Only a new maximum
# of the RSS, which the kernel always knows, is read in any case, for the sake of the peak.
PSS_BUDGET = 0.004
NEW_HEIGHT = 1.02


class Sample(NamedTuple):
    """One row of `ResourceSampler.frame()`, for the whole set of process trees."""

    seconds: float  # since the sampler began
    cpu_percent: float  # since the sample before; one busy core = 100
    pss_bytes: int
    threads: int
    training_threads: float  # of these, those that were started to train: ranks, loaders, exchanges
    framework_threads: float  # the others: the framework's and the runtime's; both nan where nobody asked or can tell
    io_wait_percent: float  # of all cores of the machine; nan where the system does not say


@dataclass(frozen=True)
class ProcessUse:
    """A process of a tree, at its last reading."""

    process: psutil.Process
    cpu_seconds: float  # its own, and that of the children that it has waited for
    parent: int | None  # in the tree
    root: int  # the given process that it descends from


class ProcessTree:
    """Processes and all their descendants, and the CPU time they use; processes may come and go.

    Each process's count includes the children it has waited for (RUSAGE_CHILDREN of every process), so nothing is lost
    when a process ends between two readings. Only a process that left the tree, because its parent ended, and then
    ended itself between two readings is missed.
    """

    def __init__(self, roots: Iterable[int]) -> None:
        self.roots = set(roots)
        self.seen = self._look({pid: pid for pid in self.roots})

    def advance(self) -> float:
        """Reads the tree again; returns the CPU seconds used since the last reading."""
        now = self._look({pid: pid for pid in self.roots})
        # A process whose parent has ended becomes a child of init, but it still belongs to this tree.
        orphans = {pid: old.root for pid, old in self.seen.items() if pid not in now and old.process.is_running()}
        if orphans:
            now = self._look(orphans) | now
        same = {pid for pid, old in self.seen.items() if pid in now and now[pid].process == old.process}
        before = sum(old.cpu_seconds for pid, old in self.seen.items() if pid in same or self._absorbed(pid, same))
        self.seen = now
        return max(0.0, sum(seen.cpu_seconds for seen in now.values()) - before)

    def _absorbed(self, pid: int, alive: Collection[int]) -> bool:
        """Whether an ended process's CPU time is now included in that of an ancestor, which has waited for it."""
        parent = self.seen[pid].parent
        while parent is not None and parent not in alive:
            parent = self.seen[parent].parent if parent in self.seen else None
        return parent is not None

    def _look(self, starts: dict[int, int]) -> dict[int, ProcessUse]:
        """The trees below `starts` (process -> the root it counts for), as they are now."""
        relations: dict[int, tuple[int | None, int]] = {}  # process -> (its parent, its root)
        waiting: list[tuple[int, int | None, int]] = [(pid, None, root) for pid, root in starts.items()]
        while waiting:
            pid, parent, root = waiting.pop()
            if pid in relations:  # a root inside another root's tree
                relations[pid] = (relations[pid][0] if parent is None else parent, relations[pid][1])
                continue
            relations[pid] = (parent, root)
            waiting.extend((child, pid, child if child in self.roots else root) for child in _children(pid))
        found = {}
        for pid, (parent, root) in relations.items():
            try:
                process = psutil.Process(pid)
                found[pid] = ProcessUse(process, _cpu_seconds(process), parent, root)
            except psutil.Error:
                continue  # ended meanwhile
        return found


class ResourceSampler:
    """A context manager that samples process trees in a thread of its own. It can be read meanwhile and afterwards.

    `pids` are the worker processes, whose children are followed. `memory_kind` says what `pss_bytes` holds: `pss`, or
    `rss` where the system has no PSS or refuses it. Memory is read as often as PSS_BUDGET allows and whenever it grows;
    in between, the last reading is repeated. `tell_threads` tells threads that train from the framework's, which takes
    a look at each thread.

    Raises ValueError for an interval of 0 or less; on leaving the block, RuntimeError if sampling stopped early.
    """

    def __init__(self, pids: Iterable[int], interval_seconds: float = 0.5, tell_threads: bool = False) -> None:
        if not interval_seconds > 0:
            raise ValueError(f"interval_seconds={interval_seconds} is not possible; give more than 0")
        self.interval_seconds = interval_seconds
        self.tell_threads = tell_threads
        self.samples: list[Sample] = []
        self.memory_kind = "pss" if _HAS_PSS else "rss"
        self.peak_pss_bytes = 0  # of the sum over all trees
        self._tree = ProcessTree(pids)
        self._memory: dict[psutil.Process, int] = {}
        self._memory_due = 0.0
        self._height = 0  # highest RSS at which memory has been read
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._began = self._last = 0.0
        self._io = _io_wait()

    @property
    def began(self) -> float:
        """time.perf_counter() when `seconds` was 0."""
        return self._began

    def __enter__(self) -> ResourceSampler:
        if self._thread is not None:
            raise RuntimeError("this ResourceSampler has run already; make a new one")
        self._tree.advance()
        self._io = _io_wait()
        self._began = self._last = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="lockstep-resources", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None and error is None:
            raise RuntimeError("the resource sampler stopped early; its samples are not complete") from self._error

    def frame(self) -> pd.DataFrame:
        """The samples so far; a column for each field of `Sample`."""
        return pd.DataFrame(list(self.samples), columns=list(Sample._fields))

    def _run(self) -> None:
        try:
            due = self._began + self.interval_seconds
            while not self._stop.wait(max(0.0, due - time.perf_counter())):
                self._sample()
                due = max(due + self.interval_seconds, time.perf_counter())
            # A last sample, so that a short run has one. Over a very short time, CPU % would only show the clock's
            # ticks.
            if not self.samples or time.perf_counter() - self._last >= self.interval_seconds / 2:
                self._sample()
        except Exception as error:
            self._error = error

    def _sample(self) -> None:
        now = time.perf_counter()
        used = self._tree.advance()
        seen = list(self._tree.seen.values())
        memory = self._read_memory(seen)
        io = _io_wait()
        elapsed, self._last = max(now - self._last, 1e-6), now
        waited, passed = io[0] - self._io[0], io[1] - self._io[1]
        self._io = io
        # The kernel's count may decrease a little.
        wait = 100 * (0.0 if waited < 0 else waited) / passed if passed > 0 else math.nan
        threads = sum(_threads(each.process) for each in seen)
        training = sum(_training_threads(each.process.pid) for each in seen) if self.tell_threads else math.nan
        counts = (threads, training, max(training * 0.0, threads - training))  # some end between the two; nan stays
        self.samples.append(Sample(now - self._began, 100 * used / elapsed, memory, *counts, wait))

    def _read_memory(self, seen: list[ProcessUse]) -> int:
        """The PSS of all trees in bytes; also keeps their peak."""
        height = sum(_rss(each.process) for each in seen)
        if time.perf_counter() >= self._memory_due or height > NEW_HEIGHT * self._height:
            self._height = max(self._height, height)
            cost = time.thread_time()
            self._memory = {each.process: self._pss(each.process) for each in seen}
            self._memory_due = time.perf_counter() + (time.thread_time() - cost) / PSS_BUDGET
            self.peak_pss_bytes = max(self.peak_pss_bytes, sum(self._memory.values()))
        return sum(self._memory.get(each.process, 0) for each in seen)

    def _pss(self, process: psutil.Process) -> int:
        """PSS in bytes; 0 for a process that has ended."""
        if _HAS_PSS:
            try:
                for line in (_PROC / str(process.pid) / "smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        return int(line.split()[1]) * 1024
                return 0  # a zombie
            except PermissionError:
                self.memory_kind = "rss"  # somebody else's process
            except (FileNotFoundError, ProcessLookupError):
                return 0
        return _rss(process)


def _children(pid: int) -> list[int]:
    if not _HAS_CHILDREN:
        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except psutil.Error:
            return []
    found: list[int] = []
    with contextlib.suppress(OSError):  # a process or thread that has ended
        # By thread, for a child belongs to the thread that started it. This is most of a sample's cost, hence no Path.
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.readall().split())
    return found


def _cpu_seconds(process: psutil.Process) -> float:
    if process.pid == os.getpid():
        own = os.times()  # psutil knows the children's time on Linux alone
        return own.user + own.system + own.children_user + own.children_system
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _threads(process: psutil.Process) -> int:
    try:
        return int(process.num_threads())
    except psutil.Error:
        return 0


def _training_threads(pid: int) -> float:
    """How many threads of a process were started to train; nan where the system does not show their names."""
    if not _HAS_NAMES:
        return math.nan
    count = 0
    with contextlib.suppress(OSError):  # a process that has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/comm") as comm:
                count += trains(comm.read(), int(thread))
    return count


def _io_wait() -> tuple[float, float]:
    """Seconds of waiting for input and output, and of everything, over all cores since the machine started."""
    times = psutil.cpu_times()
    # guest time is part of user time
    whole = sum(value for name, value in times._asdict().items() if not name.startswith("guest"))
    return getattr(times, "iowait", math.nan), whole

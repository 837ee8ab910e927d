"""Reads a tree of processes from /proc, again and again: who is awake, who sleeps in what, what it costs. Linux only.

Nothing is attached to a process and nothing is written: these are files that the kernel keeps for `top`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.advisor.why.script import CHILD, FILES, HELPS, LOADS, LOCK, OTHER, PIPE, SLEEP, TRAINS, ProcessSeen
from lockstep.measure.contention import allowed_cores
from lockstep.measure.resources import ProcessTree

PERIOD_SECONDS = 0.1
LEAST_SLEEP_SECONDS = 0.01
MOST_COST = 0.05
"""Of one core, that looking may take: with many threads the looks become rarer."""
SETTLING_SECONDS = 2.0
"""After a framework's library was mapped, its import still goes on for about so long."""
START_SECONDS = 60.0
"""That a script may take to begin, beyond the seconds that it is sampled for."""
LEAST_PART = 0.4
"""Of the time after the framework was loaded, that must be left to judge by."""
FRAMEWORKS = ("libtorch_cpu", "libtensorflow", "xla_extension", "libjax")
_TICKS = os.sysconf("SC_CLK_TCK")
_WAITS = (  # the kernel function that a thread sleeps in -> what it waits for
    ("nanosleep", SLEEP), ("futex", LOCK), ("do_wait", CHILD), ("wait4", CHILD), ("poll", PIPE), ("select", PIPE),
    ("pipe", PIPE), ("sock", PIPE), ("unix_", PIPE), ("tcp", PIPE), ("skb", PIPE), ("wait_woken", PIPE), ("io", FILES),
    ("page", FILES), ("folio", FILES), ("nfs", FILES), ("fuse", FILES), ("jbd", FILES),
)  # fmt: skip
_LOADER_NAMES = ("pt_data_worker",)
_STARTED_BY_MULTIPROCESSING = ("multiprocessing.spawn", "multiprocessing.forkserver")
_DRIVER_SHARE = 0.01
"""Of a core: what has forked others that load, and trains, takes at least so much; what only waits for others less."""


@dataclass
class _Look:
    """One look at one process."""

    at: float  # time.perf_counter()
    awake: int  # threads that ran or were ready to
    threads: int
    main_awake: bool
    main_waits: str
    cpu_seconds: float
    page_faults: int
    swapped: int
    switched_out: int
    read_bytes: int


@dataclass
class _Watched:
    """A process and all looks at it."""

    pid: int
    parent: int
    born: float
    name: str = ""
    words: tuple[str, ...] = ()
    omp_threads: str = ""
    loaded: float = 0.0  # when its framework was first seen to be mapped; 0: not seen
    cores: set[int] = field(default_factory=set)
    looks: list[_Look] = field(default_factory=list)

    def since(self, at: float) -> list[_Look]:
        return [look for look in self.looks if look.at >= at]

    @property
    def only_waits(self) -> bool:
        """Does it mostly wait for processes that it has started to end, or was it hardly seen?"""
        waits = sum(look.main_waits == CHILD for look in self.looks)
        return len(self.looks) < 2 or waits > len(self.looks) / 2

    def cpu_since(self, at: float) -> float:
        """Cores' worth of CPU time after `at`."""
        looks = self.since(at)
        passed = looks[-1].at - looks[0].at if len(looks) > 1 else 0.0
        return (looks[-1].cpu_seconds - looks[0].cpu_seconds) / passed if passed > 0 else 0.0


class TreeSampler:
    """Looks at the processes below `root` (not at `root` itself where `below` is set), one look after the other.

    `look()` takes one; `sample(seconds, until)` takes them until the time is over or `until()` says so. Afterwards
    `processes()` says what was seen of each process since training began, and `start_seconds` when that was.
    """

    def __init__(self, root: int, below: bool = False) -> None:
        self._tree = ProcessTree([root])
        self._without = {root} if below else set()
        self._watched: dict[tuple[int, float], _Watched] = {}
        self.began = self.last = time.perf_counter()
        self.looks = 0

    def sample(self, seconds: float, until: Callable[[], bool]) -> None:
        """Look until `seconds` have passed since training may have begun (at most START_SECONDS more since this sampler
        was made), or `until()` is true."""
        while (now := time.perf_counter()) - self._begun() < seconds and not until():
            if now - self.began > seconds + START_SECONDS:
                return
            cost = time.thread_time()  # on a busy machine a look takes long that costs little
            self.look()
            cost = time.thread_time() - cost
            time.sleep(max(PERIOD_SECONDS - (time.perf_counter() - now), cost / MOST_COST, LEAST_SLEEP_SECONDS))

    def look(self) -> None:
        """One look at every process of the tree."""
        self._tree.advance()
        self.looks += 1
        for pid, use in list(self._tree.seen.items()):
            if pid in self._without:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                key = (pid, use.process.create_time())
                watched = self._watched.get(key)
                if watched is None:
                    watched = self._watched[key] = _Watched(pid, use.parent or 0, key[1])
                _describe(watched)
                watched.looks.append(_look_at(pid))
        self.last = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.last - self.began

    @property
    def start_seconds(self) -> float:
        """From the first look until the last process that trains had loaded its framework; 0 where none was seen."""
        return max([each.loaded - self.began for each in self._trains() if each.loaded] or [0.0])

    def cores(self) -> set[int]:
        """All cores that the processes may run on."""
        found: set[int] = set()
        for each in self._watched.values():
            found |= each.cores
        return found

    def processes(self) -> list[ProcessSeen]:
        """What was seen of each process since training began: of those that lived on into that time."""
        trains, since = self._trains(), self._settled()
        named = {id(each): TRAINS for each in trains} | {id(each): LOADS for each in self._loads()}
        return [
            _seen(each, named.get(id(each), HELPS), looks)
            for each in self._watched.values()
            if (looks := each.since(since))
        ]

    def _begun(self) -> float:
        """When training may have begun, in time.perf_counter()."""
        begun = self.began + self.start_seconds + (SETTLING_SECONDS if self.start_seconds else 0.0)
        # Who loads images begins to when training begins.
        return max([begun, *(each.looks[0].at for each in self._loads()[:1] if each.looks)])

    def _settled(self) -> float:
        """From when on looks are judged by: from when training began, where that leaves enough of them."""
        begun, loaded = self._begun(), self.began + self.start_seconds
        return begun if self.last - begun > LEAST_PART * (self.last - loaded) else loaded

    def _loads(self) -> list[_Watched]:
        """Processes that load for another: PyTorch names them, and others are children of a process that computes."""
        living = {each.pid: each for each in self._watched.values()}
        return [each for each in living.values() if self._is_loader(each, living.get(each.parent))]

    def _is_loader(self, process: _Watched, parent: _Watched | None) -> bool:
        if process.name.startswith(_LOADER_NAMES):
            return True
        if parent is None or not parent.loaded or parent.cpu_since(parent.loaded) < _DRIVER_SHARE:
            return False
        spawned = any(mark in word for mark in _STARTED_BY_MULTIPROCESSING for word in process.words)
        return spawned or (bool(process.words) and process.words == parent.words)

    def _trains(self) -> list[_Watched]:
        """Those that have loaded a framework; without any, those that use most of the CPU time."""
        loads = {id(each) for each in self._loads()}
        rest = [each for each in self._watched.values() if id(each) not in loads and not each.only_waits]
        loaded = [each for each in rest if each.loaded]
        parents = {each.parent for each in loaded}
        # A program that starts ranks may load the framework too, and then only waits for them.
        ranks = [each for each in loaded if each.pid not in parents or each.cpu_since(each.loaded) >= _DRIVER_SHARE]
        if ranks:
            return ranks
        most = max((each.cpu_since(0.0) for each in rest), default=0.0)
        return [each for each in rest if each.cpu_since(0.0) >= most / 10 and each.looks]


def _describe(watched: _Watched) -> None:
    """What may change while it starts: its name and words (exec), and what it has loaded."""
    folder = Path("/proc", str(watched.pid))
    watched.name = (folder / "comm").read_text().strip()
    watched.cores = allowed_cores([watched.pid]) or watched.cores
    if watched.loaded:
        return
    words = (folder / "cmdline").read_bytes().split(b"\0")
    watched.words = tuple(word.decode(errors="replace") for word in words if word)
    for entry in (folder / "environ").read_bytes().split(b"\0"):
        if entry.startswith(b"OMP_NUM_THREADS="):
            watched.omp_threads = entry.partition(b"=")[2].decode(errors="replace")
    maps = (folder / "maps").read_text(errors="replace")
    if any(name in maps for name in FRAMEWORKS):
        watched.loaded = time.perf_counter()


def _look_at(pid: int) -> _Look:
    """Raises OSError, ValueError or IndexError for a process that ends meanwhile."""
    folder = f"/proc/{pid}"
    fields = _fields(f"{folder}/stat")
    awake = threads = switched = 0
    main_awake, main_waits = False, OTHER
    for thread in os.listdir(f"{folder}/task"):
        with contextlib.suppress(OSError, IndexError):
            is_awake = _fields(f"{folder}/task/{thread}/stat")[0] == "R"
            awake, threads = awake + is_awake, threads + 1
            switched += _switched_out(f"{folder}/task/{thread}/status")
            if int(thread) == pid:
                main_awake, main_waits = is_awake, "" if is_awake else _waiting_for(f"{folder}/task/{thread}")
    cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    return _Look(
        time.perf_counter(), awake, threads, main_awake, main_waits, cpu_seconds, int(fields[7]), int(fields[9]),
        switched, _read_bytes(f"{folder}/io"),
    )  # fmt: skip


def _fields(path: str) -> list[str]:
    """Of a stat file, from the state on (proc_pid_stat(5): state is field 3, minflt 10, majflt 12, utime 14)."""
    with open(path) as file:
        return file.read().rpartition(")")[2].split()


def _switched_out(path: str) -> int:
    with open(path) as file:
        for line in file:
            if line.startswith("nonvoluntary_ctxt_switches:"):
                return int(line.split()[1])
    return 0


def _waiting_for(folder: str) -> str:
    """What a sleeping thread waits for, by the kernel function that it sleeps in; OTHER where it can't be told."""
    with contextlib.suppress(OSError), open(f"{folder}/wchan") as file:
        function = file.read()
        return next((kind for mark, kind in _WAITS if mark in function), OTHER)
    return OTHER


def _read_bytes(path: str) -> int:
    with contextlib.suppress(OSError, ValueError), open(path) as file:  # of somebody else's process it is closed
        return int(file.readline().split()[1])
    return 0


def _seen(watched: _Watched, role: str, looks: list[_Look]) -> ProcessSeen:
    count = len(looks)
    passed = max(looks[-1].at - looks[0].at, 1e-9)
    waits = Counter(look.main_waits for look in looks if not look.main_awake)

    def rate(name: str) -> float:
        return max(0.0, getattr(looks[-1], name) - getattr(looks[0], name)) / passed if count > 1 else 0.0

    return ProcessSeen(
        role, len(watched.cores), rate("cpu_seconds"), sum(look.awake for look in looks) / count,
        sum(look.threads for look in looks) / count, sum(look.main_awake for look in looks) / count,
        tuple((kind, times / count) for kind, times in sorted(waits.items())), rate("page_faults"), rate("swapped"),
        rate("switched_out"), rate("read_bytes"), watched.omp_threads,
    )  # fmt: skip

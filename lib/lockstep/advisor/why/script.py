"""What was seen of somebody else's script, and the path for it. Pure functions.

    the tree of processes, as /proc shows it, while it trains
      │
      ├─ 1  do those that train sleep while others load, or in reading and sleeping? ── input
      ├─ 2  more threads that want to run than cores? ───────────────────────────────── threads
      │     awake, on fewer cores than there are? ───────────────────────────────────── few threads
      ├─ 3  do several that train sleep while the network carries bytes? ────────────── exchange
      ├─ 4  does one of them compute while the others sleep? ────────────────────────── unequal workers
      ├─ 6  how long until the framework was loaded? ────────────────────────────────── start-up
      ├─ 7  how much CPU time are page faults? ──────────────────────────────────────── page faults
      └─ 8  do other programs use the cores? ────────────────────────────────────────── others

What nobody can see from outside (CANNOT_SEE): steps, batches (5) and denormals (7). A process that is ready to run and
waits for a core counts as awake, so that a busy machine does not look like a slow input.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.advisor.why.observations import (
    EXCHANGE,
    FEW_THREADS,
    INPUT,
    OTHERS,
    PAGE_FAULTS,
    START,
    THREADS,
    UNEQUAL,
    Cause,
    ordered,
)  # fmt: skip
from lockstep.advisor.why.thresholds import FAULT_SECONDS, FAULT_SHARE, UNEQUAL_RATIO
from lockstep.engine.units import bytes_text, took
from lockstep.measure.contention import CONTENTION_THRESHOLD

TRAINS, LOADS, HELPS = "trains", "loads", "helps"
SLEEP, FILES, PIPE, LOCK, CHILD, OTHER = "sleep", "files", "pipe", "lock", "child", "other"
"""What a sleeping thread waits for: time, a file, bytes of another process, another thread, the end of a process."""

CANNOT_SEE = (
    "the seconds of a step and how many there were: no step of a foreign script can be told from another",
    "the batch per worker, and whether it is too small: lockstep why --model measures that",
    "denormal numbers: lockstep why --model measures them",
    "what an exchange within one host moves, where it goes through shared memory",
    "what a GPU does",
)
"""Of a foreign script."""

ASLEEP = 0.3
"""Of the looks at a process that trains. One that is fed in time sleeps for some percent: while it starts threads, or
waits for the slowest of its own."""
RUNNABLE_PER_CORE = 1.5
"""Threads that run or are ready to, per core. One for each core, and half as many again that load images now and then,
is no trouble."""
BUSY_PART = 0.6
"""Of the cores. With less, more threads could at least try to use what is idle."""
IDLE = 0.5
"""Threads of a process that are awake on average: with less it computes in no thread, while its first one waits."""
NETWORK_BYTES_PER_SECOND = 1e6
"""Less is no gradient."""
START_OF_SCRIPT = 0.25
"""Of the sampled time. A script of a minute has started by then; a shorter one times its imports."""


@dataclass(frozen=True)
class ProcessSeen:
    """A process while the script trained. Shares are of the looks at it; rates are per second."""

    role: str  # TRAINS | LOADS | HELPS
    cores: int  # that it may run on
    cpu_cores: float  # cores' worth of CPU time
    runnable: float  # threads that ran or were ready to, on average
    threads: float
    main_awake: float  # share of looks at which its first thread ran or was ready to
    main_waits: tuple[tuple[str, float], ...]  # what its first thread slept in -> share of looks
    page_faults: float  # minor ones, a second
    swapped: float  # major ones, a second: read from a disk
    switched_out: float  # involuntary context switches, a second
    read_bytes: float  # a second, by whatever call
    omp_threads: str = ""  # OMP_NUM_THREADS; empty: not set

    def waits(self, *kinds: str) -> float:
        """The share of looks at which its first thread slept in one of these."""
        return sum(share for kind, share in self.main_waits if kind in kinds)


@dataclass(frozen=True)
class ScriptSeen:
    """A tree of processes, sampled for `seconds`."""

    command: tuple[str, ...]
    seconds: float
    looks: int
    cores: int  # that its processes may run on together, at most what a control group allows
    processes: tuple[ProcessSeen, ...]
    start_seconds: float  # until the framework was loaded in the last process that trains; 0: none was seen
    network_bytes: float = 0.0  # a second, received on all interfaces of its network namespace, others' included
    others_share: float = 0.0
    ended: bool = False  # by itself, within that time

    def of(self, *roles: str) -> list[ProcessSeen]:
        return [each for each in self.processes if each.role in roles]

    @property
    def runnable(self) -> float:
        return sum(each.runnable for each in self.processes)


def causes_of_script(seen: ScriptSeen) -> list[Cause]:
    """What slows the script down, the largest gain first; empty where nothing is above its threshold."""
    return ordered([cause for step in _STEPS if (cause := step(seen)) is not None])


def again(seen: ScriptSeen, before: Sequence[str] = ()) -> str:
    """The command line that samples the script again, with `before` (such as a variable) in front of it."""
    return f"lockstep why -- {shlex.join([*before, *seen.command])}"


def _input(seen: ScriptSeen) -> Cause | None:
    trains, loads = seen.of(TRAINS), seen.of(LOADS)
    if not trains:
        return None
    waits = [_waits_for_input(each, bool(loads), len(trains)) for each in trains]
    share = sum(waits) / len(waits)
    if share < ASLEEP:
        return None
    if loads:
        awake = sum(each.runnable for each in loads)
        found = f"{_those(trains)} sleeps at {share:.0%} of the looks, waiting for {len(loads)} process"
        found += f"{'es' * (len(loads) > 1)} that load{'s' * (len(loads) == 1)} images, "
        found += f"of which {awake:.1f} {'are' if len(loads) > 1 else 'is'} awake on average."
        helps = "num_workers above that many, as far as cores are idle; smaller images; decode once and keep the arrays"
    else:
        kinds = ", ".join(
            f"{_WORDS[kind]} {_mean([each.waits(kind) for each in trains]):.0%}" for kind in (SLEEP, FILES, PIPE, LOCK)
        )
        found = f"{_those(trains)} sleeps at {share:.0%} of the looks while no thread of it computes ({kinds}): it "
        found += "waits for its input, or for whatever else it sleeps in."
        helps = "load in other processes (num_workers=2) while it computes"
    return _cause(
        INPUT, found, share, ASLEEP, "the share of looks at which what trains sleeps and waits for images", share,
        f"at most that share: {helps}", "py-spy top -- " + shlex.join(seen.command) if seen.command else "py-spy top",
    )  # fmt: skip


def _waits_for_input(process: ProcessSeen, loaders: bool, trainers: int) -> float:
    if loaders:
        return process.waits(SLEEP, FILES, PIPE, LOCK, OTHER) if process.runnable < 1 else process.waits(FILES, PIPE)
    if trainers > 1:  # a pipe or a lock may be the exchange
        return process.waits(SLEEP, FILES)
    if process.runnable >= IDLE:  # some other thread computes meanwhile, as TensorFlow's do
        return process.waits(SLEEP, FILES)
    return process.waits(SLEEP, FILES, PIPE, LOCK, OTHER)


def _threads(seen: ScriptSeen) -> Cause | None:
    ratio = seen.runnable / seen.cores
    if ratio < RUNNABLE_PER_CORE:
        return None
    trains = seen.of(TRAINS) or list(seen.processes)
    each = max(1, seen.cores // len(trains))
    set_to = sorted({process.omp_threads or "not set" for process in trains})
    switched = sum(process.switched_out for process in seen.processes)
    return _cause(
        THREADS,
        f"{seen.runnable:.1f} threads want to run on {seen.cores} core{'s' * (seen.cores > 1)} on average, in "
        f"{len(seen.processes)} process{'es' * (len(seen.processes) > 1)}; OMP_NUM_THREADS is {', '.join(set_to)}; "
        f"{switched:.0f} times a second a thread is taken off its core.",
        ratio, RUNNABLE_PER_CORE, "threads that run or are ready to, per core", 1 - 1 / ratio,
        f"at most the share of time that a ready thread waits; OMP_NUM_THREADS={each} for each of {len(trains)} that "
        "train",
        again(seen, ["env", f"OMP_NUM_THREADS={each}"]),
    )  # fmt: skip


def _few_threads(seen: ScriptSeen) -> Cause | None:
    trains = seen.of(TRAINS)
    busy = sum(each.cpu_cores for each in seen.processes) + seen.others_share * seen.cores
    if not trains or busy / seen.cores >= BUSY_PART or seen.runnable / seen.cores >= BUSY_PART:
        return None
    if _mean([each.main_awake for each in trains]) < 1 - ASLEEP:  # it waits: for what, other steps of the path say
        return None
    limits = {each.omp_threads for each in trains}
    why = "" if limits == {""} else f" OMP_NUM_THREADS is {', '.join(sorted(limit or 'not set' for limit in limits))}."
    each = max(1, seen.cores // len(trains))
    return _cause(
        FEW_THREADS,
        f"{_those(trains)} is awake, yet {busy:.1f} of {seen.cores} cores are busy.{why} One thread works while others "
        "could: too few threads, Python code, images decoded between steps, or operators too small to be divided.",
        busy / seen.cores, BUSY_PART, "cores that are busy, of those that there are", 1 - busy / seen.cores,
        f"at most the idle cores; OMP_NUM_THREADS={each}, or num_workers=1 if images are decoded between steps",
        again(seen, ["env", f"OMP_NUM_THREADS={each}"]),
    )  # fmt: skip


def _exchange(seen: ScriptSeen) -> Cause | None:
    trains = seen.of(TRAINS)
    if len(trains) < 2 or seen.network_bytes < NETWORK_BYTES_PER_SECOND:
        return None
    share = min(each.waits(PIPE, LOCK, OTHER) for each in trains)
    if share < ASLEEP:
        return None
    return _cause(
        EXCHANGE,
        f"All {len(trains)} processes that train sleep at {share:.0%} of the looks or more, while "
        f"{bytes_text(seen.network_bytes)} a second arrive on the network (of all programs in it).",
        share, ASLEEP, "the share of looks at which even the busiest of them sleeps", share,
        "at most that share: exchange less often (a larger batch, no_sync), or send less",
        "lockstep why --model MODULE:FACTORY --input SHAPE --workers " + str(len(trains)),
    )  # fmt: skip


def _unequal(seen: ScriptSeen) -> Cause | None:
    trains = seen.of(TRAINS)
    used = [each.cpu_cores for each in trains]
    if len(used) < 2 or min(used) <= 0 or (ratio := max(used) / min(used)) < UNEQUAL_RATIO:
        return None
    least, most = trains[used.index(min(used))], trains[used.index(max(used))]
    if 1 - least.main_awake < ASLEEP or 1 - most.main_awake >= ASLEEP:  # neither waits, or both do
        return None
    return _cause(
        UNEQUAL,
        f"Of {len(used)} processes that train one uses {max(used):.2f} cores and another {min(used):.2f}, which sleeps "
        f"at {1 - least.main_awake:.0%} of the looks: it waits.",
        ratio, UNEQUAL_RATIO, "CPU time of the busiest over that of the idlest", 1 - _mean(used) / max(used),
        "at most what equal shares would save", again(seen),
    )  # fmt: skip


def _start(seen: ScriptSeen) -> Cause | None:
    share = seen.start_seconds / seen.seconds
    if not seen.ended or share < START_OF_SCRIPT:
        return None
    return _cause(
        START,
        f"The script ended after {took(seen.seconds)}, and the last of its processes had loaded the framework "
        f"after {took(seen.start_seconds)}.",
        share, START_OF_SCRIPT, "the share of its time before what trains had loaded the framework", share,
        "of its whole time, not of training: begin the clock behind the first step", again(seen),
    )  # fmt: skip


def _page_faults(seen: ScriptSeen) -> Cause | None:
    busy = sum(each.cpu_cores for each in seen.processes)
    faults = sum(each.page_faults for each in seen.processes)
    if not busy or (share := faults * FAULT_SECONDS / busy) < FAULT_SHARE:
        return None
    return _cause(
        PAGE_FAULTS,
        f"{faults:.0f} page faults a second, some {share:.0%} of the CPU time: the allocator gives memory back and "
        "takes it again.",
        share, FAULT_SHARE, f"page faults x {FAULT_SECONDS * 1e6:g} microsecond, as a share of the CPU time", share,
        "an estimate; MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 keeps the memory (glibc)",
        again(seen, ["env", "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=1099511627776"]),
    )  # fmt: skip


def _others(seen: ScriptSeen) -> Cause | None:
    share = seen.others_share
    if share < CONTENTION_THRESHOLD:
        return None
    return _cause(
        OTHERS, f"Other programs, or other machines of this host, took {share:.0%} of the cores' time meanwhile.",
        share, CONTENTION_THRESHOLD, "their share of the cores' time", share, "at most that share", "top -o %CPU",
    )  # fmt: skip


_STEPS: tuple[Callable[[ScriptSeen], Cause | None], ...] = (
    _input, _threads, _few_threads, _exchange, _unequal, _start, _page_faults, _others,
)  # fmt: skip
_WORDS = {SLEEP: "in sleep()", FILES: "in files", PIPE: "in pipes and sockets", LOCK: "for another thread"}


def _cause(
    kind: str, found: str, number: float, threshold: float, rule: str, gain_share: float, gain: str, command: str
) -> Cause:
    return Cause(kind, found, number, threshold, rule, min(1.0, gain_share), gain, command)


def _those(trains: Sequence[ProcessSeen]) -> str:
    return "What trains" if len(trains) == 1 else f"Each of {len(trains)} processes that train"


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)

"""What was measured of the reader's own model: a few short cells, each of which differs from another in one thing."""

from __future__ import annotations

from dataclasses import dataclass

INPUT, THREADS, FEW_THREADS, EXCHANGE, CROWDING = "input", "threads", "few threads", "exchange", "memory bandwidth"
UNEQUAL, BATCH, START, DENORMALS = "unequal workers", "batch", "start-up", "denormals"
PAGE_FAULTS, OTHERS = "page faults", "others"
PATH = (
    INPUT, THREADS, FEW_THREADS, EXCHANGE, CROWDING, UNEQUAL, BATCH, START, DENORMALS, PAGE_FAULTS, OTHERS,
)  # fmt: skip
"""The kinds of causes, in the order in which the path asks for them."""


@dataclass(frozen=True)
class WorkerStep:
    """A step of one worker. Each number is a lower quartile over its measured steps; input_seconds are that quartile
    times the share of all steps' time that was waiting for input.

    Whatever disturbs a step only makes it longer, so the quickest quarter of the steps shows what the configuration
    itself costs, also on a machine that others use.
    """

    step_seconds: float
    input_seconds: float
    compute_seconds: float
    exchange_seconds: float
    wait_seconds: float
    update_seconds: float
    images: float
    bytes_sent: float
    cpu_seconds: float = 0.0  # of the thread that computes, the least of all steps; 0: not known
    page_faults: float = 0.0  # minor ones, of its process and step


@dataclass(frozen=True)
class CellSeen:
    """Workers that trained at the same time. `ranks`: one entry per worker."""

    sync: str
    workers: int
    threads_per_worker: int
    per_worker_batch_size: int
    ranks: tuple[WorkerStep, ...]

    @property
    def step_seconds(self) -> float:
        """Of the slowest worker."""
        return max(rank.step_seconds for rank in self.ranks)

    @property
    def threads(self) -> int:
        return self.workers * self.threads_per_worker


@dataclass(frozen=True)
class Observations:
    """All that `decision.find_causes` looks at. A cell that was not measured, or is not needed, is None."""

    asked: CellSeen
    cores: int  # that the workers may use together
    fitting: CellSeen | None = None  # the same workers, with as many threads as there are cores for
    alone: CellSeen | None = None  # one worker by itself, with threads as in `fitting`
    larger: CellSeen | None = None  # the same with a larger batch
    kept_denormals: CellSeen | None = None  # `alone`, where denormal numbers are not flushed to zero
    exchange_is_hidden: bool = False  # it runs within the backward pass and can't be timed by itself, as with DDP
    gradient_bytes: float = 0.0
    copy_bytes_per_second: float = 0.0  # of memory, read plus written; 0: not measured
    link_bytes_per_second: float = 0.0  # of the link between hosts; 0: one host
    start_seconds: float = 0.0  # until the workers trained their first step
    images_timed: int = 0  # of the run that the reader has timed; 0: not told
    others_share: float = 0.0  # of the cores' time, that other processes and the hypervisor took
    environment: str = "plain"  # of the allocator, that the asked cell ran in
    unmeasured: tuple[str, ...] = ()  # cells for which there was no time
    failed: tuple[str, ...] = ()  # cells whose workers failed, each with the reason
    command: str = "lockstep why --model MODULE:FACTORY --input SHAPE"  # that measures this again
    turns: int = 0  # in which the asked cell was visited
    parts: tuple[Observations, ...] = ()  # the same of the first, second, and last third of the turns

    @property
    def fits(self) -> CellSeen:
        """The cell that the later steps of the path look at: with threads that fit the cores."""
        return self.fitting or self.asked

    def least_exchange_seconds(self, sent_bytes: float) -> float:
        """What so many bytes need at the full rate of the link, or of memory, which reads and writes each of them; 0:
        unknown. A bound by bandwidth alone: what messages cost however short they are is not in it."""
        if self.link_bytes_per_second:
            return sent_bytes / self.link_bytes_per_second
        return 2 * sent_bytes / self.copy_bytes_per_second if self.copy_bytes_per_second else 0.0


@dataclass(frozen=True)
class Cause:
    """Why it is slow. `number` is compared with `threshold`; `gain_seconds` are of a step of the asked kind.

    For a script, whose steps nobody sees, `gain_seconds` is None and the gain is a share of its time alone.
    """

    kind: str  # of PATH
    found: str  # a sentence that holds the number
    number: float
    threshold: float
    rule: str  # what is compared with what, and why there
    gain_share: float  # of the step's time, or of the script's; an upper bound where `gain` says "at most"
    gain: str
    command: str  # that shows it
    gain_seconds: float | None = None


def ordered(causes: list[Cause]) -> list[Cause]:
    """The largest gain first; where two are equal, in the order of the path."""
    return sorted(causes, key=lambda cause: (-cause.gain_share, PATH.index(cause.kind)))

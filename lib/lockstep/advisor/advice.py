"""An answer: every way to train that was asked about, the one to take, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA_OF_ADVICE = 1


@dataclass(frozen=True)
class Span:
    """A number, and what holds the true one nine times out of ten."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Span:
        return Span(self.low * factor, self.middle * factor, self.high * factor)

    def inverse(self, factor: float = 1.0) -> Span:
        """`factor` over it: seconds of a step become images per second."""
        return Span(factor / self.high, factor / self.middle, factor / self.low)

    def overlaps(self, other: Span) -> bool:
        return self.low <= other.high and other.low <= self.high

    def over(self, other: Span) -> Span:
        """The ratio to another one, from the worst to the best that both leave possible: it holds 1 where they
        overlap."""
        return Span(self.low / other.high, self.middle / other.middle, self.high / other.low)


@dataclass(frozen=True)
class Way:
    """One way to train, and what it should take."""

    sync: str  # "local" for one worker, "pipeline" for a model that is cut
    workers: int
    hosts: int
    threads_per_worker: int
    global_batch_size: int
    per_worker_batch_size: int  # of the largest share
    kind: str  # of cell, by which its error is known
    step_seconds: Span
    images_per_second: Span
    terms: Mapping[str, float]  # seconds of the middle step, by what takes them
    memory_bytes: float  # per worker, at its peak
    sent_bytes: float  # per step, on the longest chain of the exchange
    fits: bool
    extrapolated: str = ""  # why the calibration does not reach so far
    seconds_to_images: Span | None = None
    price_to_images: Span | None = None
    detail: str = ""  # of a pipeline: its stages and micro-batches
    emulated: bool = False  # its hosts share the calibrated machine's cores

    @property
    def dominating(self) -> str:
        """The term that takes the most seconds of the step."""
        return max(self.terms, key=lambda name: self.terms[name])

    @property
    def simplicity(self) -> tuple[int, ...]:
        """Ways sort by it, the simplest first: one worker, threads of one, one host, several hosts."""
        return (
            int(self.hosts > 1), int(self.workers > 1), int(self.threads_per_worker > 1), self.hosts, self.workers,
            int(self.sync == "pipeline"),
        )  # fmt: skip


@dataclass(frozen=True)
class Sharded:
    """Bytes per worker if parameters, gradients and optimizer state are divided among `workers`. Arithmetic alone."""

    workers: int
    replicated_bytes: float
    optimiser_sharded_bytes: float
    fully_sharded_bytes: float


@dataclass(frozen=True)
class Advised:
    """The answer to a question. `sentence` is its first line; everything it says is computed from the rest."""

    sentence: str
    recommended: Way | None  # None: nothing fits
    fastest: Way | None  # by the middle of the range, with the batch of today
    alone: Way | None  # one worker of one thread, which gains are told against
    gain: Span | None  # images per second of the recommended way over `alone`
    ways: tuple[Way, ...]
    verify: tuple[Way, ...]  # see `lockstep.advisor.verifying`
    changes: tuple[str, ...]  # what would change the answer
    scope: tuple[str, ...]  # how far it reaches, and where its error comes from
    sharded: tuple[Sharded, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Everything as plain data, with the dominating term of each way."""

        def shown(way: Way | None) -> dict[str, Any] | None:
            return None if way is None else asdict(way) | {"terms": dict(way.terms), "dominating": way.dominating}

        return {
            "schema": SCHEMA_OF_ADVICE,
            "sentence": self.sentence,
            "recommended": shown(self.recommended),
            "fastest": shown(self.fastest),
            "alone": shown(self.alone),
            "gain": None if self.gain is None else asdict(self.gain),
            "ways": [shown(way) for way in self.ways],
            "verify": [shown(way) for way in self.verify],
            "changes": list(self.changes),
            "scope": list(self.scope),
            "sharded": [asdict(one) for one in self.sharded],
        }

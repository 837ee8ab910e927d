"""What is asked of the advisor: which workers, hosts and batches, over which link, for how many images."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.advisor.calibration import CalibrationError

if TYPE_CHECKING:  # pandas is behind it, and a refusal must not wait for that
    from lockstep.predict.link_model import AlphaBeta

MOST_WORKERS = 4096
MOST_BATCH = 10**7


@dataclass(frozen=True)
class Question:
    """Every combination of these is predicted, as far as it is possible. Raises CalibrationError for what can't be."""

    workers: tuple[int, ...] = (1, 2)
    hosts: tuple[int, ...] = ()  # empty: with a link as many as give each worker its cores, without one a single host
    global_batch_sizes: tuple[int, ...] = (64,)  # the first is what is trained with today
    link: AlphaBeta | None = None
    images: float = 0.0  # until which time and price are told; 0: they are not
    price_per_hour: float = 0.0  # of one machine
    memory_bytes: int | None = None  # of a machine; None: that of the calibrated one

    def __post_init__(self) -> None:
        for name, counts, most in (
            ("--workers", self.workers, MOST_WORKERS), ("--batch", self.global_batch_sizes, MOST_BATCH),
        ):  # fmt: skip
            if not counts or not all(1 <= count <= most for count in counts):
                raise CalibrationError(f"{name} {shown_counts(counts)} is not possible; give numbers from 1 to {most}")
        if not all(1 <= count <= MOST_WORKERS for count in self.hosts):
            raise CalibrationError(f"--hosts {shown_counts(self.hosts)} is not possible; give 1 to {MOST_WORKERS}")
        if self.hosts and min(self.hosts) > max(self.workers):
            raise CalibrationError(
                f"--hosts {shown_counts(self.hosts)} with at most {max(self.workers)} workers: each host needs one; "
                f"give --workers up to {min(self.hosts)} or more"
            )
        if any(count > 1 for count in self.hosts) and self.link is None:
            raise CalibrationError(
                f"--hosts {shown_counts(self.hosts)} needs the link between them, which decides the answer; give "
                "--link 10gbit, --link 1gbit, or its latency and bytes per second: --link 25us,1.2e9"
            )
        for name, value in (("--images", self.images), ("--price", self.price_per_hour)):
            if not 0 <= value < math.inf:
                raise CalibrationError(f"{name} {value:g} is not possible; give a number of at least 0")
        if self.price_per_hour and not self.images:
            raise CalibrationError(
                f"--price {self.price_per_hour:g} per machine-hour buys images; say how many with --images"
            )

    def hosts_of(self, workers: int, workers_per_host: int) -> tuple[int, ...]:
        """The numbers of hosts on which so many workers are predicted, where a host has cores for so many."""
        if self.hosts:
            return tuple(hosts for hosts in self.hosts if hosts <= workers and workers % hosts == 0)
        needed = math.ceil(workers / max(1, workers_per_host)) if self.link is not None else 1
        return (needed,) if workers % needed == 0 else ()


def parse_counts(text: str, option: str, most: int = MOST_WORKERS) -> tuple[int, ...]:
    """`1..32` (all of them), `1,2,4` or `8` as ascending numbers, each once. Raises CalibrationError."""
    fix = f"give {option} 4, {option} 1,2,4 or {option} 1..32, with numbers from 1 to {most}"
    found: set[int] = set()
    for part in text.split(","):
        ends = [end.strip() for end in part.split("..")]
        wrong = [end for end in ends if not re.fullmatch(r"\d{1,9}", end)]
        if wrong or len(ends) > 2:
            raise CalibrationError(f"{option} {text!r}: {(wrong or [part])[0]!r} is no whole number; {fix}")
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise CalibrationError(
                f"{option} {text!r} counts down, which holds nothing; did you mean {option} {last}..{first}?"
            )
        if first < 1 or last > most:
            raise CalibrationError(f"{option} {text!r}: {first if first < 1 else last} is not possible; {fix}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def parse_batches(text: str) -> tuple[int, ...]:
    """`64` or `64,128,256` in the order given, each once: the first is today's. Raises CalibrationError."""
    if ".." in text:
        raise CalibrationError(f"--batch {text!r} is a range, of which few sizes are meant; name them: --batch 64,128")
    return tuple(dict.fromkeys(parse_counts(part, "--batch", MOST_BATCH)[0] for part in text.split(",")))


def shown_counts(counts: tuple[int, ...]) -> str:
    """Numbers as the command line has them; `(any)` for none."""
    return ",".join(map(str, counts)) or "(any)"

"""Predicted beside measured, for the ways that a machine could run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from lockstep.advisor.advice import Way
from lockstep.advisor.sentences import span_text, way_text
from lockstep.engine.units import number_text

ELSEWHERE = "not verifiable here"


def why_not_here(way: Way) -> str:
    """Why one machine can't train this way, or ""."""
    if way.hosts > 1 and not way.emulated:
        return f"it needs {way.hosts} machines, and this is one"
    return "--verify cuts no model into stages" if way.sync == "pipeline" else ""


@dataclass(frozen=True)
class Verified:
    """One way and its measured steps, a number for each round; none where this machine could not run it."""

    way: Way
    step_seconds: tuple[float, ...]
    failure: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured seconds of a step, less 1; None where nothing was measured."""
        return self.way.step_seconds.middle / median(self.step_seconds) - 1 if self.step_seconds else None

    @property
    def held(self) -> bool | None:
        """Whether the range holds the measured step; None where nothing was measured."""
        step = self.way.step_seconds
        return step.low <= median(self.step_seconds) <= step.high if self.step_seconds else None

    def as_json(self) -> dict[str, Any]:
        measured = {"step_seconds": list(self.step_seconds), "failure": self.failure, "error": self.error}
        return {"way": asdict(self.way) | {"terms": dict(self.way.terms)}, **measured, "held": self.held}


def _elsewhere(way: Way) -> str:
    return ": ".join(filter(None, (ELSEWHERE, why_not_here(way))))


def verified_lines(found: Sequence[Verified]) -> Iterator[str]:
    """A line for each way, and the median error of those that were measured."""
    yield "Verified on this machine, milliseconds of a step:"
    for one in found:
        step, start = one.way.step_seconds.times(1e3), f"  {way_text(one.way)}: predicted {{}}, "
        start = start.format(f"{number_text(step.middle)} ({span_text(step)})")
        if one.error is None:
            yield start + (f"not measured: {one.failure.splitlines()[0]}" if one.failure else _elsewhere(one.way))
            continue
        inside = "inside" if one.held else "outside"
        yield start + f"measured {number_text(1e3 * median(one.step_seconds))}: {one.error:+.1%}, {inside} the range"
    errors = [abs(one.error) for one in found if one.error is not None]
    if errors:
        yield f"  median error {median(errors):.1%} over {len(errors)} way{'s' if len(errors) > 1 else ''}"

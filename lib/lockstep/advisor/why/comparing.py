"""What the questions of the path have in common: seconds to compare, on a busy machine too, and a cause of them."""

from __future__ import annotations

from lockstep.advisor.why import thresholds
from lockstep.advisor.why.observations import Cause, CellSeen, Observations


def cause_of(
    seen: Observations, kind: str, gain_seconds: float, number: float, threshold: float, found: str, rule: str,
    gain: str, command: str, of: float = 0.0,
) -> Cause:  # fmt: skip
    """A cause. `of`: the seconds that the gain is a share of, without it the asked step's."""
    share = min(1.0, gain_seconds / (of or seen.asked.step_seconds))
    return Cause(kind, found, number, threshold, rule, share, gain, command, gain_seconds)


def is_busy(seen: Observations) -> bool:
    """Do others use so much of the machine that times on the clock say little?"""
    return seen.others_share >= thresholds.BUSY_SHARE


def alone_step_seconds(seen: Observations, cell: CellSeen) -> float:
    """A step of one worker by itself: on the clock, or of CPU time on a busy machine; 0 where that is not known."""
    return cell.ranks[0].cpu_seconds if is_busy(seen) else cell.step_seconds


def undisturbed_step_seconds(seen: Observations) -> float:
    """The same with the asked batch, of two cells that take equally long: with denormal numbers flushed to zero or not,
    or longer where they are many and not flushed. What else makes one of them longer is a disturbance."""
    cells = [cell for cell in (seen.alone, seen.kept_denormals) if cell is not None]
    return min((seconds for cell in cells if (seconds := alone_step_seconds(seen, cell))), default=0.0)


def growth_of(cell: CellSeen, alone: CellSeen | None) -> float:
    """Seconds by which the passes of the least disturbed worker are longer than those of one worker by itself."""
    if alone is None:
        return 0.0
    return max(0.0, min(rank.compute_seconds for rank in cell.ranks) - alone.ranks[0].compute_seconds)

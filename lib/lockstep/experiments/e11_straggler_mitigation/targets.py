"""What we aim at in notebook 11: our own policy against the best of the others, and what it costs without delays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lockstep.analysis.confidence import AnalysisError, Estimate, highest
from lockstep.analysis.stored import Stored
from lockstep.analysis.targets import AT_MOST, MISSING, Read, Reading, Target
from lockstep.analysis.verdicts import NOT_YET, UNDECIDED
from lockstep.experiments.e11_straggler_mitigation.contenders import LEARNERS, NEVER_WAIT, OURS
from lockstep.experiments.e11_straggler_mitigation.learning import Missed, over_the_best, ratios, synchronous, undelayed
from lockstep.experiments.e11_straggler_mitigation.rows import RIVALRY, TIME_TO_LOSS, kind_name, kinds_of, rows_of
from lockstep.experiments.e11_straggler_mitigation.slow_nodes import rival_ratio
from lockstep.experiments.e11_straggler_mitigation.twins_drawings import TWIN_TARGETS
from lockstep.experiments.simulated_targets import seconds_of_a_round, with_time_to_decide

RIVAL_WORKERS = (8, 32, 128)
SIMULATED = "simulated"


def _read(experiment: str, compute: Callable[[Stored], Estimate], remark: Callable[[Stored], str]) -> Read:
    """What `compute` finds with a remark; the reason where it can't."""

    def read(stored: Stored) -> Reading:
        if rows_of(stored, experiment).empty:
            return Reading(None, NOT_YET, MISSING)
        try:
            return Reading(compute(stored), reason=remark(stored))
        except Missed as error:
            return Reading(None, UNDECIDED, str(error))
        except AnalysisError as error:
            return Reading(None, NOT_YET, str(error))

    return read


def _timed(target: Target, experiment: str) -> Target:
    """With what a further seed of all cells of this experiment takes, while it is undecided."""
    return with_time_to_decide(target, lambda stored: seconds_of_a_round(stored, experiment))


def _regrets(stored: Stored) -> dict[str, Estimate]:
    """By kind of delays, ours over the best of all others."""
    others = [name for name in LEARNERS if name != OURS]
    return {kind: over_the_best(stored, OURS, others, kind) for kind in kinds_of(rows_of(stored, TIME_TO_LOSS))}


def _worst(stored: Stored) -> Estimate:
    return highest(list(_regrets(stored).values()))


def _worst_kind(stored: Stored) -> str:
    found = _regrets(stored)
    worst = max(found, key=lambda kind: found[kind].value)
    return f"{SIMULATED}; the worst of {len(found)} kinds is {kind_name(worst)}"


def _without_delays(stored: Stored) -> Estimate:
    found = undelayed(stored, OURS)
    if found is None:
        raise AnalysisError("ours did not reach the loss without delays with every seed, or was not run there")
    return found


def _mixed(stored: Stored) -> str:
    return f"{SIMULATED}; {len(ratios(stored, OURS).columns)} kinds, one setting for all of them"


def _plainly(stored: Stored) -> str:
    del stored
    return SIMULATED


def _by_workers(workers: int, stored: Stored) -> Estimate:
    return rival_ratio(stored, workers, OURS, NEVER_WAIT)


OF_TRAINING: tuple[Target, ...] = (
    Target(
        "ours, the deadline, over the best policy that waits: time to loss, mix of all kinds", 0.85,
        _read(TIME_TO_LOSS, lambda stored: over_the_best(stored, OURS, synchronous()), _mixed), AT_MOST,
    ),
    Target(
        "ours over the best of all others, under the worst kind", 1.10,
        _read(TIME_TO_LOSS, _worst, _worst_kind), AT_MOST,
    ),
    Target("ours without delays, over waiting for all", 1.05, _read(TIME_TO_LOSS, _without_delays, _plainly), AT_MOST),
)  # fmt: skip
OF_RIVALS = tuple(
    Target(
        f"ours over asynchronous training at its best rate, {workers} workers", 1.0,
        _read(RIVALRY, partial(_by_workers, workers), _plainly), AT_MOST,
    )
    for workers in RIVAL_WORKERS
)  # fmt: skip
TARGETS: tuple[Target, ...] = (
    *(_timed(target, TIME_TO_LOSS) for target in OF_TRAINING),
    *(_timed(target, RIVALRY) for target in OF_RIVALS),
    *TWIN_TARGETS,
)

"""What is planted in real training is named first, and nothing is named where nothing was planted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planted
from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.measuring.own_model import ModelAsked, look_at
from lockstep.advisor.why.decision import find_causes
from lockstep.advisor.why.observations import (
    BATCH,
    DENORMALS,
    EXCHANGE,
    INPUT,
    OTHERS,
    THREADS,
    UNEQUAL,
    Cause,
    Observations,
)
from lockstep.advisor.why.observe_own import SECONDS as SECONDS_UNLESS_TOLD
from lockstep.advisor.why.observe_own import RunAsked, observe_own
from lockstep.commands.why import LEAST_OF_A_MODEL
from lockstep.engine.cores import usable_cores
from lockstep.engine.launch.mpi import emulated
from lockstep.engine.options import JobError
from lockstep.engine.usecases import UseCase

CORES = len(usable_cores())
SECONDS = 1.0
QUIET: dict[str, Any] = {"batch": 64, "seconds": LEAST_OF_A_MODEL}
"""Where nothing may be named. Seen with 16 images in one second: a step took 3 ms on this processor, and waking the
other worker up may take as long again; and for a second one of two equal workers computed 1.37 times as long."""
pytestmark = [pytest.mark.usefixtures("no_leftovers"), pytest.mark.serial]
needs_two_cores = pytest.mark.skipif(CORES < 2, reason="two workers share a core here, which is a cause by itself")


def found(model: str = "healthy", data: Any = None, batch: int = 16, **asked: Any) -> list[Cause]:
    """What is named of two workers, but for other programs on this machine, which a test can't help."""
    own = look_at(ModelAsked(model=f"planted:{model}", inputs=planted.INPUT, batch=batch))
    case = own.case if data is None else replace(own.case, train=data)
    given = {"threads_per_worker": max(1, CORES // 2), "seconds": SECONDS} | asked
    seen = observed(RunAsked(batch=batch, **given), case, own.facts.gradient_bytes)
    return [cause for cause in find_causes(seen) if cause.kind != OTHERS]


def observed(asked: RunAsked, case: UseCase, gradient_bytes: float) -> Observations:
    """For longer where not a single step fitted: seen beside three busy programs, of two workers with four threads
    each."""
    for times in (1, 3, 9):
        try:
            return observe_own(replace(asked, seconds=times * asked.seconds), case, gradient_bytes)
        except CalibrationError as error:
            if "no step was measured" not in str(error):
                raise
    return observe_own(replace(asked, seconds=27 * asked.seconds), case, gradient_bytes)


def first(*arguments: Any, **others: Any) -> str:
    return found(*arguments, **others)[0].kind


@needs_two_cores
def test_nothing_is_named_on_a_healthy_run() -> None:
    assert [cause.found for cause in found(**QUIET)] == []


def test_oversubscribed_threads() -> None:
    assert first(threads_per_worker=2 * CORES) == THREADS


@needs_two_cores
def test_slow_decoding() -> None:
    images = np.random.default_rng(0).normal(size=(64, 3, 64, 64)).astype(np.float32)
    assert first(data=planted.SlowPhotos(images, np.arange(64) % 4)) == INPUT


@needs_two_cores
def test_one_worker_at_half_speed() -> None:
    """As long and with as many images as on the healthy run, which is told from it; and where nothing is named then, as
    long as the command looks unless told otherwise. Seen: in a second, and beside other tests in five, no step of one
    worker was undisturbed, and nothing was named."""
    causes = found("HalfSpeed", **QUIET) or found("HalfSpeed", **QUIET | {"seconds": SECONDS_UNLESS_TOLD})
    assert [cause.kind for cause in causes][:1] == [UNEQUAL]


@needs_two_cores
def test_a_batch_of_one() -> None:
    assert first(batch=1) == BATCH


@needs_two_cores
def test_denormal_numbers() -> None:
    """They are named first on a processor that is slow with them, and not at all on one that is not."""
    expected = [DENORMALS] if planted.denormals_are_slow_here() else []
    assert [cause.kind for cause in found("Denormal", **QUIET)][:1] == expected


@needs_two_cores
@pytest.mark.slow
@pytest.mark.linux
def test_a_link_of_100_megabits() -> None:
    if reason := emulated.why_not():
        pytest.skip(reason)
    (cause, *_) = found("wide", hosts=2, link_bits_per_second=1e8, seconds=4 * SECONDS)
    assert cause.kind == EXCHANGE and "the link" in cause.found


def test_what_can_not_be_measured_is_refused_before_anything_starts() -> None:
    case = look_at(ModelAsked(model="planted:healthy", inputs=planted.INPUT, batch=16)).case
    with pytest.raises(CalibrationError, match="sync 'nope' does not exist"):
        observe_own(RunAsked(sync="nope"), case)
    with pytest.raises(JobError, match="stays on this machine"):
        observe_own(RunAsked(hosts=2, launcher="processes"), case)

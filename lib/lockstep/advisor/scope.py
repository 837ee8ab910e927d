"""How far a calibration reaches: what is asked beyond that is answered, and marked as extrapolated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from lockstep.advisor.advice import Way
from lockstep.advisor.calibration import NOTHING, Calibration, CalibrationCell
from lockstep.advisor.errors import WIDER, KindError, error_of, source_of
from lockstep.advisor.links import ASSUMED_LATENCY_SECONDS, has_assumed_latency
from lockstep.advisor.question import Question
from lockstep.advisor.spreads import ORDINARY, WIDE_SPREAD, spread_of_cell
from lockstep.advisor.steps import SENDING
from lockstep.analysis.sentences import listed
from lockstep.measure.contention import CONTENTION_THRESHOLD

LARGER_BATCH = "the question of notebooks/07_convlstm_batch_size.ipynb"
ERRORS_NOTEBOOK = "notebooks/13_advisor.ipynb"
SHARDING = (
    "Memory of sharding is arithmetic (Rajbhandari et al. 2020); its speed is not predicted here. "
    "Shard with FSDP or DeepSpeed."
)
MOST_TIMES_THE_BATCH = 2
MOST_TIMES_THE_WORKERS = 64


def beyond(calibration: Calibration, workers: int, per_worker_batch: int) -> str:
    """Why this is more than the calibration reaches, or ""."""
    largest = max(cell.per_worker_batch_size for cell in calibration.cells)
    most = max(cell.workers for cell in calibration.cells if cell.sync != NOTHING)
    found = []
    if per_worker_batch > MOST_TIMES_THE_BATCH * largest:
        found.append(f"batch {per_worker_batch} per worker is more than {MOST_TIMES_THE_BATCH} x {largest}")
    if workers > MOST_TIMES_THE_WORKERS * most:
        found.append(f"{workers} workers are more than {MOST_TIMES_THE_WORKERS} x {most}")
    return "; ".join(found)


def scope_lines(
    calibration: Calibration, question: Question, ways: Sequence[Way], errors: Mapping[str, KindError]
) -> Iterator[str]:
    """How far the answer reaches, what it assumes, and where its ranges come from."""
    machine, cells = calibration.machine, calibration.cells
    batches = sorted({cell.per_worker_batch_size for cell in cells})
    most = max(cell.workers for cell in cells)
    yield (
        f"Calibrated on {machine.processor}, {machine.device if machine.device != 'cpu' else f'{machine.cores} cores'},"
        f" with batches of {', '.join(map(str, batches))} per worker and up to {most} worker{'s' if most > 1 else ''}."
        " Every machine is taken to be like it."
    )
    if any(way.extrapolated for way in ways):
        reasons = dict.fromkeys(way.extrapolated for way in ways if way.extrapolated)
        yield f"Extrapolated (*): {listed(reasons)}."
    yield from _error_lines(ways, errors, machine.device)
    if machine.device == "cpu":
        yield "It says nothing about GPUs: calibrate on one with --device cuda --save, and read that file with --from."
    yield from _host_lines(calibration, question, ways)
    if question.images and any(way.workers > 1 for way in ways):
        yield f"Times of several workers hold their start, {calibration.start_seconds:.1f} s on the calibrated machine."
    if any(size > question.global_batch_sizes[0] for size in question.global_batch_sizes):
        yield f"A larger global batch is another training: what it costs in accuracy is {LARGER_BATCH}."
    if not all(way.fits for way in ways):
        yield SHARDING
    if any(way.sync == "pipeline" for way in ways):
        yield "Pipelines are predicted from layers timed one by one, their memory by arithmetic."
    yield from _state_lines(calibration)


def _host_lines(calibration: Calibration, question: Question, ways: Sequence[Way]) -> Iterator[str]:
    if question.link is None:
        return
    if any(way.hosts > 1 for way in ways):
        if has_assumed_latency(question.link):
            latency = f"{ASSUMED_LATENCY_SECONDS * 1e6:.0f} us"
            yield f"Of the link only the rate was given: {latency} per message are assumed."
    elif any(cell.sync in SENDING and cell.workers > 1 for cell in calibration.cells):
        yield "Several machines are not in the answer: none of the numbers of workers that were asked about needs them."
    else:
        yield (
            "Several machines are not in the answer: no all-reduce or DDP of two workers was calibrated, which shows "
            "what sending costs a core."
        )


def _error_lines(ways: Sequence[Way], errors: Mapping[str, KindError], device: str) -> Iterator[str]:
    assumed = []
    for kind in dict.fromkeys(way.kind for way in ways):
        error, source = error_of(kind, errors), source_of(kind, errors)
        if not source:
            assumed.append(kind)
            continue
        taken = "" if source == kind else f" of {source}, {WIDER:g} times as wide a range"
        yield (
            f"{kind.capitalize()}: on {error.cells} cells{taken or ' that were held out'}, predictions were off by "
            f"{error.median_error:.0%} in the median ({ERRORS_NOTEBOOK}, all processors together)."
        )
    if device != "cpu" and any(source_of(way.kind, errors) for way in ways):
        yield "Those cells were trained on processors: these errors have not been checked on a GPU."
    if assumed:
        yield f"The range is assumed, not measured, for: {'; '.join(assumed)}."


def _state_lines(calibration: Calibration) -> Iterator[str]:
    if not calibration.decode_seconds_per_image:
        yield "Decoding of photos is not counted: name their folder with --data."
    yield from _spread_lines(calibration)
    if calibration.others_share > CONTENTION_THRESHOLD:
        yield (
            f"Other processes took {calibration.others_share:.0%} of the cores while it was calibrated, which made it "
            "slower; calibrate anew on a quiet machine."
        )
    if calibration.cut_short:
        yield f"The calibration is not complete: {calibration.cut_short}."


def _spread_lines(calibration: Calibration) -> Iterator[str]:
    """Where a step of one worker took clearly longer in one round than in another, or than the next step."""
    alone = [cell for cell in calibration.cells if cell.workers == 1]
    wide = [cell for cell in alone if _spread(cell) >= WIDE_SPREAD]
    if wide:
        most = max(wide, key=_spread)
        low, high = 1e3 * min(most.step_seconds), 1e3 * max(most.step_seconds)
        yield (
            f"A step of one worker with batch {most.per_worker_batch_size} took {low:.3g} to {high:.3g} ms in "
            f"{len(most.step_seconds)} rounds: the model's time depends on its data, or the machine was not quiet. "
            "The ranges are wider for it."
        )
    most = max(alone, key=spread_of_cell)
    if spread_of_cell(most) > ORDINARY:
        ratio = math.exp(2 * spread_of_cell(most))
        yield (
            f"Steps of one worker with batch {most.per_worker_batch_size} differ from each other: nine of ten lie "
            f"within {ratio:.3g} times the quickest of them. The model's time depends on its data, or the machine was "
            "not quiet. The ranges are wider for it."
        )


def _spread(cell: CalibrationCell) -> float:
    return max(cell.step_seconds) / min(cell.step_seconds)

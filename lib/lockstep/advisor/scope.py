"""How far a calibration reaches: what is asked beyond that is answered, and marked as extrapolated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lockstep.advisor.advice import Way
from lockstep.advisor.calibration import NOTHING, Calibration
from lockstep.advisor.errors import KindError, error_of
from lockstep.advisor.links import ASSUMED_LATENCY_SECONDS, has_assumed_latency
from lockstep.advisor.question import Question

LARGER_BATCH = "the question of notebooks/07_convlstm_batch_size.ipynb"
ERRORS_NOTEBOOK = "notebooks/13_advisor.ipynb"
BUSY_SHARE = 0.05
"""Of all cores' time: others that took more have made the calibration slower."""
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
    yield (
        f"Calibrated on {machine.processor}, {machine.device if machine.device != 'cpu' else f'{machine.cores} cores'},"
        f" with batches of {', '.join(map(str, batches))} per worker and up to {max(c.workers for c in cells)} workers."
        " Every machine is taken to be like it."
    )
    if any(way.extrapolated for way in ways):
        reasons = dict.fromkeys(way.extrapolated for way in ways if way.extrapolated)
        yield f"Extrapolated (*): {next(iter(reasons))}{f', and {len(reasons) - 1} more' if len(reasons) > 1 else ''}."
    yield from _error_lines(ways, errors)
    if machine.device == "cpu":
        yield "It says nothing about GPUs: calibrate on one with --save and read that file with --from."
    if question.link is not None and has_assumed_latency(question.link) and any(way.hosts > 1 for way in ways):
        yield f"Of the link only the rate was given: {ASSUMED_LATENCY_SECONDS * 1e6:.0f} us per message are assumed."
    if any(size > question.global_batch_sizes[0] for size in question.global_batch_sizes):
        yield f"A larger global batch is another training: what it costs in accuracy is {LARGER_BATCH}."
    if not all(way.fits for way in ways):
        yield (
            "Memory of sharding is arithmetic (Rajbhandari et al. 2020); its speed is not predicted here. "
            "Shard with FSDP or DeepSpeed."
        )
    if any(way.sync == "pipeline" for way in ways):
        yield "Pipelines are predicted from layers timed one by one, their memory by arithmetic."
    yield from _state_lines(calibration)


def _error_lines(ways: Sequence[Way], errors: Mapping[str, KindError]) -> Iterator[str]:
    assumed = []
    for kind in dict.fromkeys(way.kind for way in ways):
        error = error_of(kind, errors)
        if error.assumed:
            assumed.append(kind)
        else:
            yield (
                f"{kind.capitalize()}: on {error.cells} cells that were held out, predictions were off by "
                f"{error.median_error:.0%} in the median ({ERRORS_NOTEBOOK})."
            )
    if assumed:
        yield f"The range is assumed, not measured, for: {'; '.join(assumed)}."


def _state_lines(calibration: Calibration) -> Iterator[str]:
    if not calibration.decode_seconds_per_image:
        yield "Decoding of photos is not counted: name their folder with --data."
    if calibration.others_share >= BUSY_SHARE:
        yield (
            f"Other processes took {calibration.others_share:.0%} of the cores while it was calibrated, which made it "
            "slower; calibrate anew on a quiet machine."
        )
    if calibration.cut_short:
        yield f"The calibration is not complete: {calibration.cut_short}."

"""Measures or reads a calibration, answers the question, and verifies the answer where that is asked for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import typer

from lockstep.advisor.advice import Advised
from lockstep.advisor.calibration import Calibration, CalibrationError
from lockstep.advisor.calibration_file import differences, read_calibration, write_calibration
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.showing import shown_lines
from lockstep.advisor.verified import Verified, verified_lines
from lockstep.commands.advise_options import AdviseOptions
from lockstep.commands.ending import checking_arguments
from lockstep.commands.runner.errors import RunError, RunFailed

VERIFY_SECONDS = 20.0
"""For each way that is verified."""
VERIFY_ROUNDS = 5


def answer(options: AdviseOptions, question: Question) -> None:
    """Print the answer. Raises RunError, RunFailed or CalibrationError."""
    if options.from_ is not None:
        calibration, notes = _read(options)
    else:
        calibration, notes = _measured(options, question), []
    with checking_arguments():
        advised = advise(calibration, question)
    if not options.as_json:
        typer.echo("\n".join(shown_lines(advised, question)))
        for note in notes:
            typer.echo(f"  - {note}")
    verified = _verified(options, advised) if options.verify else []
    if options.as_json:
        found: dict[str, Any] = advised.as_json() | {"notes": notes}
        typer.echo(json.dumps(found | {"verified": [one.as_json() for one in verified]}, indent=2))
    elif verified:
        typer.echo("\n".join(["", *verified_lines(verified)]))


def _read(options: AdviseOptions) -> tuple[Calibration, list[str]]:
    """A saved calibration, and how its machine differs from this one. Raises RunError for one of another model, and
    where --verify would compare with another machine."""
    assert options.from_ is not None
    with checking_arguments():
        calibration = read_calibration(options.from_)
        if not options.model:  # torch is not needed
            return calibration, []
        if other := list(_other_model(options, calibration)):
            raise RunError(
                f"--from {options.from_} is of another model: {'; '.join(other)}; leave out --model, or calibrate anew"
            )
    from lockstep.advisor.measuring.machine_here import this_machine

    found = differences(calibration, this_machine("cpu" if calibration.machine.device == "cpu" else "cuda"), None)
    if found and options.verify:
        raise RunError(
            f"--verify compares with this machine, and --from {options.from_} is of another one: {'; '.join(found)}; "
            "leave out --verify, or calibrate here"
        )
    return calibration, [f"The calibration is of another machine: {each}." for each in found]


def _other_model(options: AdviseOptions, calibration: Calibration) -> Iterator[str]:
    model = calibration.model
    if model.name != options.model:
        yield f"--model {options.model}, in the file {model.name}"


def _measured(options: AdviseOptions, question: Question) -> Calibration:
    from lockstep.advisor.measuring.calibrate import WORKERS_START, calibrate

    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        typer.echo(f"calibrating: {text}", err=True)

    try:
        calibration = calibrate(_asked(options, question), options.seconds, tell, force=options.force)
    except ValueError as error:  # ours, until workers start: a refusal
        with checking_arguments() if WORKERS_START not in told else contextlib.nullcontext():
            raise error
    if options.save is not None:
        write_calibration(options.save, calibration)
        typer.echo(f"calibration: {options.save}", err=True)
    return calibration


def _asked(options: AdviseOptions, question: Question) -> Any:
    from lockstep.advisor.measuring.own_model import ModelAsked

    return ModelAsked(
        model=options.model, inputs=options.input, model_args=options.model_args, classes=options.classes,
        vocabulary=options.vocab, loss=options.loss, optimiser=options.optimiser,
        batch=question.global_batch_sizes[0], data=str(options.data) if options.data else "",
    )  # fmt: skip


def _verified(options: AdviseOptions, advised: Advised) -> list[Verified]:
    """The chosen ways beside what this machine measures. Raises RunFailed if none could be measured."""
    from lockstep.advisor.measuring.asked_cells import CellAsked
    from lockstep.advisor.measuring.cells import measure_cells
    from lockstep.advisor.measuring.own_model import load_case

    asked: dict[int, CellAsked] = {}
    for place, way in enumerate(advised.verify):
        if way.hosts == 1 and way.sync != "pipeline":
            asked[place] = CellAsked(way.sync, way.workers, way.per_worker_batch_size, way.threads_per_worker)
    if not asked:
        return [Verified(way, ()) for way in advised.verify]
    typer.echo(f"verifying: {len(asked)} ways to train, {VERIFY_SECONDS:.0f} s each", err=True)
    failures: dict[CellAsked, str] = {}
    case = load_case(_asked(options, Question(global_batch_sizes=(advised.verify[0].global_batch_size,))))
    try:
        cells = measure_cells(
            case, [*asked.values()], VERIFY_ROUNDS, VERIFY_SECONDS * len(asked), failures=failures
        )
    except CalibrationError as error:
        raise RunFailed(f"--verify: {error}") from error
    measured = dict(zip(asked, cells, strict=True))
    return [
        Verified(
            way,
            measured[place].step_seconds if place in measured else (),
            failures.get(asked[place], "") if place in asked else "",
        )
        for place, way in enumerate(advised.verify)
    ]

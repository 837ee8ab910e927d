"""Measures or reads a calibration, answers the question, and verifies the answer where that is asked for."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from lockstep.advisor.advice import Advised
from lockstep.advisor.calibration import CalibratedMachine, Calibration, CalibrationError
from lockstep.advisor.calibration_file import differences, read_calibration, without_paths, write_calibration
from lockstep.advisor.links import emulated_rate, parse_link
from lockstep.advisor.predict import advise
from lockstep.advisor.question import Question
from lockstep.advisor.showing import shown_lines
from lockstep.advisor.verified import Verified, verified_lines, why_not_here
from lockstep.commands.advise_options import AdviseOptions, saved_link
from lockstep.commands.ending import checking_arguments
from lockstep.commands.runner.errors import RunError, RunFailed
from lockstep.engine.files import WriteError

if TYPE_CHECKING:
    from lockstep.advisor.measuring.own_model import ModelAsked
    from lockstep.commands.advise_link import MeasuredLink

VERIFY_SECONDS = 20.0
"""For each way that is verified."""
VERIFY_ROUNDS = 5
_SMALLER_BATCHES = 4  # that are tried where one worker has no memory for the whole one


def answer(options: AdviseOptions, question: Question) -> None:
    """Print the answer. Raises RunError, RunFailed, CalibrationError or, once it is printed, WriteError."""
    began = time.monotonic()
    notes: list[str] = []
    unsaved: WriteError | None = None
    if options.from_ is not None:
        calibration, notes = saved_calibration(options)
        if known := saved_link(options):
            notes.append(f"The link was measured when the calibration was saved: --link {known}.")
    question, measured = _over_measured_link(options, question)
    if measured is not None:
        notes.append(f"The link was measured between {' and '.join(measured.between)}: --link {measured.text}.")
    if options.from_ is None:
        found = _measured(options, question)
        if isinstance(found, Advised):
            _say(options, question, found, [], [])
            return
        calibration = found if measured is None else replace(found, ping_pong=measured.ping_pong)
    try:
        with checking_arguments():
            advised = advise(calibration, question)
    finally:  # what was measured is kept, whether it answers this question or not
        if options.from_ is None:
            calibration = replace(calibration, answer_seconds=round(time.monotonic() - began, 2))
            unsaved = _save(options, calibration)
    if options.from_ is None:
        notes.append(_how_long(calibration))
    if not options.as_json:
        _say(options, question, advised, notes, [])
    verified = _verified(options, question, advised, calibration) if options.verify else []
    if options.as_json:
        _say(options, question, advised, notes, verified)
    elif verified:
        typer.echo("\n".join(["", *verified_lines(verified)]))
    if unsaved is not None:
        raise unsaved


def _how_long(calibration: Calibration) -> str:
    return (
        f"This answer took {calibration.answer_seconds:.1f} s from start to end, of which the calibration "
        f"{calibration.seconds:.1f} s."
    )


def _over_measured_link(options: AdviseOptions, question: Question) -> tuple[Question, MeasuredLink | None]:
    """The question, on up to as many machines as are named, over the link that is measured now; else as it was."""
    if not options.machines:
        return question, None
    from lockstep.commands.advise_link import measured_link

    link = measured_link(options.hosts, options.iface)
    hosts = tuple(range(1, options.machines + 1))
    return replace(question, hosts=hosts, link=parse_link(link.text)), link


def _say(
    options: AdviseOptions, question: Question, advised: Advised, notes: list[str], verified: list[Verified]
) -> None:
    if options.as_json:
        found: dict[str, Any] = advised.as_json() | {"notes": notes}
        typer.echo(json.dumps(found | {"verified": [one.as_json() for one in verified]}, indent=2))
        return
    typer.echo("\n".join(shown_lines(advised, question)))
    for note in notes:
        typer.echo(f"  - {note}")


def _save(options: AdviseOptions, calibration: Calibration) -> WriteError | None:
    """Why it could not be written, which must not keep the answer back."""
    if options.save is None:
        return None
    try:
        write_calibration(options.save, calibration)
    except WriteError as error:
        return error
    typer.echo(f"calibration: {options.save}", err=True)
    return None


def saved_calibration(options: AdviseOptions) -> tuple[Calibration, list[str]]:
    """A saved calibration, and how its machine differs from this one, for which torch is not needed. Raises RunError
    for one of another model, and where --verify would compare with another machine."""
    from lockstep.advisor.measuring.machine_here import this_machine

    assert options.from_ is not None
    with checking_arguments():
        calibration = read_calibration(options.from_)
        if options.model and (other := list(_other_model(options, calibration))):
            raise RunError(
                f"--from {options.from_} is of another model: {'; '.join(other)}; leave out what differs, or calibrate "
                "anew"
            )
    there = calibration.machine
    here = this_machine()
    if there.device != "cpu":
        here = replace(here, **_gpu_here(options, there))
    found = differences(calibration, here, None)
    if found and options.verify:
        raise RunError(
            f"--verify compares with this machine, and --from {options.from_} is of another one: {'; '.join(found)}; "
            "leave out --verify, or calibrate here"
        )
    return calibration, [f"The calibration is of another machine: {'; '.join(found)}."] if found else []


def _gpu_here(options: AdviseOptions, there: CalibratedMachine) -> dict[str, Any]:
    """Name and memory of the GPU here, where the model is trained on it; else nothing is said of GPUs. Raises RunError
    for a --verify that has none."""
    if not options.model:  # torch, which knows of GPUs, is not loaded
        return {"device": there.device, "memory_bytes": there.memory_bytes}
    from lockstep.advisor.measuring.machine_here import this_machine
    from lockstep.measure.environment import cuda_devices

    if cuda_devices():
        found = this_machine("cuda")
        return {"device": found.device, "memory_bytes": found.memory_bytes}
    if options.verify:
        raise RunError(
            f"--verify trains on a GPU, for --from {options.from_} was measured on {there.device}, and this machine "
            "has none; leave out --verify, or calibrate here"
        )
    return {"device": "no GPU", "memory_bytes": there.memory_bytes}


def _other_model(options: AdviseOptions, calibration: Calibration) -> Iterator[str]:
    """In what the model of the options differs from the calibrated one; what was not given is the same."""
    model, given = calibration.model, options.given
    if model.name != options.model:
        yield f"--model {options.model}, in the file {model.name}"
        return
    inputs = model.inputs
    if "input" in given:
        from lockstep.advisor.measuring.inputs import inputs_text, parse_inputs

        inputs = inputs_text(parse_inputs(options.input))
    arguments = json.loads(model.arguments or "{}")
    if "model_args" in given:
        arguments |= json.loads(without_paths(options.model_args))
    yield from differences(calibration, None, replace(
        model,
        inputs=inputs,
        arguments=model.arguments if arguments == json.loads(model.arguments or "{}") else json.dumps(arguments),
        loss=options.loss if "loss" in given else model.loss,
        optimiser=options.optimiser if "optimiser" in given else model.optimiser,
    ))  # fmt: skip


def _measured(options: AdviseOptions, question: Question) -> Calibration | Advised:
    """A calibration, with as many of the batch's samples as one worker has memory for; of a model of which not even one
    sample fits, what is known without training it."""
    from lockstep.advisor.measuring.calibrate import WORKERS_START, calibrate
    from lockstep.advisor.measuring.needed_memory import TooLarge

    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        typer.echo(f"calibrating: {text}", err=True)

    asked, misfit = _asked(options, question), None
    for _ in range(_SMALLER_BATCHES):
        try:
            return calibrate(asked, options.seconds, tell, force=options.force)
        except TooLarge as error:
            misfit, fitting = error, min(error.fitting_batch, asked.batch // 2)
            if fitting < 1:
                break
            tell(f"a batch of {asked.batch} does not fit into one worker: {fitting} are tried")
            asked = replace(asked, batch=fitting)
        except ValueError as error:  # ours, until workers start: a refusal
            with checking_arguments() if WORKERS_START not in told else contextlib.nullcontext():
                raise error
    assert misfit is not None
    return misfit.advised(options.model, question.global_batch_sizes[0])


def _asked(options: AdviseOptions, question: Question, calibration: Calibration | None = None) -> ModelAsked:
    """The model of the options; what they leave open of a saved calibration's model is as it was there."""
    from lockstep.advisor.measuring.own_model import ModelAsked

    asked = ModelAsked(
        model=options.model, inputs=options.input, model_args=options.model_args, classes=options.classes,
        vocabulary=options.vocab, loss=options.loss, optimiser=options.optimiser, device=options.device,
        batch=question.global_batch_sizes[0], data=str(options.data) if options.data else "",
    )  # fmt: skip
    if calibration is None or options.from_ is None:
        return asked
    model = calibration.model
    known = {"input": ("inputs", model.inputs), "model_args": ("model_args", model.arguments),
             "loss": ("loss", model.loss), "optimiser": ("optimiser", model.optimiser)}  # fmt: skip
    taken: dict[str, Any] = {name: value for option, (name, value) in known.items() if option not in options.given}
    return replace(asked, **taken, device="cpu" if calibration.machine.device == "cpu" else "cuda")


def _verified(
    options: AdviseOptions, question: Question, advised: Advised, calibration: Calibration
) -> list[Verified]:
    """The chosen ways beside what this machine measures. Raises RunFailed if none could be measured."""
    from lockstep.advisor.measuring.asked_cells import CellAsked
    from lockstep.advisor.measuring.cells import measure_cells
    from lockstep.advisor.measuring.own_model import load_case

    link = 0.0 if question.link is None else emulated_rate(question.link)
    asked: dict[int, CellAsked] = {}
    for place, way in enumerate(advised.verify):
        if not why_not_here(way):
            asked[place] = CellAsked(
                way.sync, way.workers, way.per_worker_batch_size, way.threads_per_worker, way.hosts,
                link if way.hosts > 1 else 0.0,
            )  # fmt: skip
    if not asked:
        return [Verified(way, ()) for way in advised.verify]
    typer.echo(f"verifying: {len(asked)} ways to train, {VERIFY_SECONDS:.0f} s each", err=True)
    failures: dict[CellAsked, str] = {}
    # Any of the ways may fit, so that the model is tried with the smallest share; each way fits by its own prediction.
    smallest = min(cell.per_worker_batch_size for cell in asked.values())
    model = _asked(options, Question(global_batch_sizes=(smallest,)), calibration)
    try:
        cells = measure_cells(
            load_case(model), [*asked.values()], VERIFY_ROUNDS, VERIFY_SECONDS * len(asked), failures=failures,
            device=model.device,
        )  # fmt: skip
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

"""The options of `lockstep advise`, their defaults, and what can be told of them at once."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from lockstep.advisor.links import parse_link
from lockstep.advisor.question import Question, parse_batches, parse_counts
from lockstep.commands.runner.errors import RunError
from lockstep.engine.cores import usable_cores

_ARGUMENTS = "give '{\"classes\": 10}'"
_MOST_BY_ITSELF = 64  # workers that are asked about without --workers


@dataclass(frozen=True)
class AdviseOptions:
    """The options of `lockstep advise`, which `advise` explains."""

    model: str = ""
    model_args: str = "{}"
    input: str = "3,224,224"
    classes: int = 0
    vocab: int = 0
    loss: str = ""
    optimiser: str = ""
    workers: str = ""
    hosts: str = ""
    batch: str = "64"
    link: str = ""
    images: float = 0.0
    price: float = 0.0
    save: Path | None = None
    from_: Path | None = None
    data: Path | None = None
    seconds: float = 45.0
    verify: bool = False
    force: bool = False
    as_json: bool = False


def checked_question(options: AdviseOptions) -> Question:
    """What is asked. Raises RunError or CalibrationError for all that can be told without loading the model."""
    _check_source(options)
    _check_files(options)
    link = parse_link(options.link) if options.link else None
    cores = len(usable_cores())
    workers = options.workers or f"1..{min(cores, _MOST_BY_ITSELF)}"
    return Question(
        workers=parse_counts(workers, "--workers"),
        hosts=parse_counts(options.hosts, "--hosts") if options.hosts else (),
        global_batch_sizes=parse_batches(options.batch),
        link=link,
        images=options.images,
        price_per_hour=options.price,
    )


def _check_source(options: AdviseOptions) -> None:
    if not options.model and options.from_ is None:
        raise RunError(
            "nothing to advise on: name your model with --model module:factory, or a calibration with --from FILE"
        )
    if options.model and not re.fullmatch(r"[^:\s]+:[^:\s]+", options.model):
        raise RunError(f"--model {options.model!r} must be module:factory, such as torchvision.models:resnet18")
    if options.from_ is not None and options.save is not None:
        raise RunError(f"--from {options.from_} measures nothing that --save {options.save} could write; leave one out")
    if options.verify and not options.model:
        raise RunError("--verify trains the model; name it with --model module:factory")
    try:
        given = json.loads(options.model_args)
    except json.JSONDecodeError as error:
        raise RunError(f"--model-args {options.model_args!r} is no JSON ({error}); {_ARGUMENTS}") from error
    if not isinstance(given, dict):
        raise RunError(f"--model-args {options.model_args!r} is no JSON object; {_ARGUMENTS}")
    if not 0 < options.seconds < float("inf"):
        raise RunError(f"--seconds {options.seconds:g} is not possible; give a number above 0")


def _check_files(options: AdviseOptions) -> None:
    if options.from_ is not None and not options.from_.is_file():
        raise RunError(f"--from {options.from_} does not exist; `lockstep advise --save` writes such a file")
    if options.save is not None and not options.save.absolute().parent.is_dir():
        raise RunError(f"--save {options.save}: its folder does not exist; make it first")
    if options.data is not None and not options.data.is_dir():
        raise RunError(f"--data {options.data} is not a folder; name one that holds train/<class>/*.jpg")
    if options.data is not None and options.from_ is not None:
        raise RunError("--data is decoded while a calibration is measured, and --from reads one; leave one of them out")

"""The options of `lockstep advise`, their defaults, and what can be told of them at once."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import typer

from lockstep.advisor.calibration import CalibrationError
from lockstep.advisor.links import fitted_link, parse_link
from lockstep.advisor.question import Question, parse_batches, parse_counts
from lockstep.commands.runner.errors import RunError
from lockstep.engine.cores import usable_cores

_ARGUMENTS = "give '{\"classes\": 10}'"
MODEL_ONLY = ("input", "model_args", "classes", "vocab", "loss", "optimiser", "device")
"""Options that speak of a model which is trained here."""
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
    iface: str = ""
    images: float = 0.0
    price: float = 0.0
    save: Path | None = None
    from_: Path | None = None
    data: Path | None = None
    device: str = "cpu"
    seconds: float = 45.0
    verify: bool = False
    force: bool = False
    as_json: bool = False
    given: frozenset[str] = frozenset()  # names of the options of MODEL_ONLY that the reader gave

    @property
    def machines(self) -> int:
        """How many --hosts names (letters, or addresses such as 10.0.0.1); 0 where it holds numbers, or nothing."""
        return len([*filter(None, self.hosts.split(","))]) if re.search(r"[A-Za-z]|(\d+\.){3}\d", self.hosts) else 0


def given_options(context: typer.Context) -> frozenset[str]:
    """Those of MODEL_ONLY that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in MODEL_ONLY}
    return frozenset(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")


def checked_question(options: AdviseOptions) -> Question:
    """What is asked. Raises RunError or CalibrationError for all that can be told without loading the model."""
    _check_source(options)
    _check_files(options)
    link = options.link or saved_link(options)
    workers = options.workers or f"1..{min(_places(options) * max(1, options.machines), _MOST_BY_ITSELF)}"
    question = Question(
        workers=parse_counts(workers, "--workers"),
        hosts=parse_counts(options.hosts, "--hosts") if options.hosts and not options.machines else (),
        global_batch_sizes=parse_batches(options.batch),
        link=parse_link(link) if link else None,
        images=options.images,
        price_per_hour=options.price,
    )
    if options.machines:
        from lockstep.commands.advise_link import check_hosts

        check_hosts(options.hosts, options.iface)
    return question


def saved_link(options: AdviseOptions) -> str:
    """The link that --from was saved with, as --link takes it, where the options name no other; else "". Raises
    CalibrationError for a wrong file."""
    if options.from_ is None or options.link or options.machines:
        return ""
    from lockstep.advisor.calibration_file import read_calibration

    ping_pong = read_calibration(options.from_).ping_pong
    try:
        return fitted_link(ping_pong) if ping_pong else ""
    except CalibrationError as error:
        raise CalibrationError(f"calibration {str(options.from_)!r}: ping_pong: {error}; give --link") from error


def _places(options: AdviseOptions) -> int:
    """Workers that the calibrated machine computes at the same time. Raises CalibrationError for a wrong file."""
    if options.from_ is None:
        return len(usable_cores())
    from lockstep.advisor.calibration_file import read_calibration
    from lockstep.advisor.coefficients import places

    return places(read_calibration(options.from_))


def _check_source(options: AdviseOptions) -> None:
    if not options.model and options.from_ is None:
        raise RunError(
            "nothing to advise on: name your model with --model module:factory, or a calibration with --from FILE"
        )
    if options.model and not re.fullmatch(r"[^:\s]+:[^:\s]+", options.model):
        raise RunError(
            f"--model {options.model!r} must be module:factory, such as lockstep.engine.models.alexnet:alexnet"
        )
    if options.from_ is not None and options.save is not None:
        raise RunError(f"--from {options.from_} measures nothing that --save {options.save} could write; leave one out")
    if options.machines and options.link:
        raise RunError(
            f"--link {options.link} with --hosts {options.hosts}: the link between named machines is measured; leave "
            f"out --link, or give their number: --hosts {options.machines}"
        )
    if options.iface and not options.machines:
        raise RunError(f"--iface {options.iface} is for named machines; give --hosts a,b, or leave it out")
    if options.verify and not options.model:
        raise RunError("--verify trains the model; name it with --model module:factory")
    if options.given and not options.model:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in MODEL_ONLY if name in options.given)
        raise RunError(f"{named}: the calibration of --from is answered from as it is; leave it out, or name --model")
    if options.device not in ("cpu", "cuda"):
        raise RunError(f"--device {options.device!r} does not exist; give cpu or cuda")
    if options.from_ is not None and "device" in options.given:
        raise RunError(f"--device {options.device}: --from {options.from_} says what it was measured on; leave it out")
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
    if options.save is not None:
        _check_writable(options.save)
    if options.data is not None and not options.data.is_dir():
        raise RunError(f"--data {options.data} is not a folder; name one that holds train/<class>/*.jpg")
    if options.data is not None and options.from_ is not None:
        raise RunError("--data is decoded while a calibration is measured, and --from reads one; leave one of them out")


def _check_writable(path: Path) -> None:
    """Raises RunError for what can't be written: better now than when everything has been measured."""
    folder = path.absolute().parent
    if path.is_dir():
        raise RunError(f"--save {path} is a folder; name a file in it, such as {path / 'calibration.json'}")
    if not folder.is_dir():
        raise RunError(f"--save {path}: its folder does not exist; make it first")
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise RunError(f"--save {path} can't be written; name another file")

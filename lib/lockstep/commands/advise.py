"""`lockstep advise`, as the command line sees it. `advise_job` does the work, and takes longer to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockstep.commands.advise_options import AdviseOptions, checked_question, given_options
from lockstep.commands.ending import checking_arguments, clear_ends

_Usual = AdviseOptions  # its class attributes are the defaults


@clear_ends()
def advise_on_model(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="module:factory that returns your model, torch or Keras.")] = _Usual.model,
    model_args: Annotated[str, typer.Option(help="Of the factory, as JSON: '{\"classes\": 10}'.")] = _Usual.model_args,
    input: Annotated[
        str, typer.Option(help="One sample: 3,224,224 | int64:512 | a JSON list of several.")
    ] = _Usual.input,
    classes: Annotated[int, typer.Option(min=0, help="Labels; 0: those that the output tells apart.")] = _Usual.classes,
    vocab: Annotated[int, typer.Option(min=0, help="Of int64 inputs: whole numbers below it.")] = _Usual.vocab,
    loss: Annotated[str, typer.Option(help="As in lockstep.train, or module:function.")] = _Usual.loss,
    optimiser: Annotated[
        str, typer.Option("--optimizer", "--optimiser", help="adam:lr=0.001 | module:factory; default: SGD.")
    ] = _Usual.optimiser,
    workers: Annotated[str, typer.Option(help="1..32 | 1,2,4; default: up to this machine's cores.")] = _Usual.workers,
    hosts: Annotated[
        str,
        typer.Option(
            help="Machines: 1,2,4; default with --link: as many as the workers need cores. Or a,b: named ones, between "
            "which the link is measured."
        ),
    ] = _Usual.hosts,
    batch: Annotated[
        str, typer.Option(help="Of all workers together (of lockstep why: of each): today's, and others: 64,256.")
    ] = _Usual.batch,
    link: Annotated[str, typer.Option(help="Between machines: 1gbit | 10gbit | 25us,1.2e9 (bytes/s).")] = _Usual.link,
    iface: Annotated[str, typer.Option(help="Network interface between named hosts, such as eth1.")] = _Usual.iface,
    images: Annotated[float, typer.Option(help="Time (and price) until so many are trained.")] = _Usual.images,
    price: Annotated[float, typer.Option(help="Of a machine-hour, yours.")] = _Usual.price,
    save: Annotated[Path | None, typer.Option(help="Write the calibration to this file.")] = _Usual.save,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Read a calibration, also another machine's; measure none.")
    ] = _Usual.from_,
    data: Annotated[Path | None, typer.Option(help="Folder of photos, whose decoding is counted.")] = _Usual.data,
    device: Annotated[str, typer.Option(help="cpu | cuda: where it is measured.")] = _Usual.device,
    seconds: Annotated[float, typer.Option(help="That measuring may take.")] = _Usual.seconds,
    verify: Annotated[
        bool, typer.Option("--verify", help="Train the two best ways that run here and the simplest, and compare.")
    ] = _Usual.verify,
    force: Annotated[bool, typer.Option("--force", help="Measure though the machine is busy.")] = _Usual.force,
    as_json: Annotated[bool, typer.Option("--json", help="The whole answer for programs.")] = _Usual.as_json,
) -> None:
    """Is it worth it to distribute? Measures your model for a minute, and answers with a range and what it rests on."""
    values = {name: value for name, value in locals().items() if name != "context"}
    options = AdviseOptions(**values, given=given_options(context))
    with checking_arguments():
        question = checked_question(options)
    from lockstep.commands.advise_job import answer

    answer(options, question)

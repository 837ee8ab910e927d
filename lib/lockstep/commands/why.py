"""`lockstep why`: why is it slow with more workers? For the reader's own model, or for a script as it runs."""

from __future__ import annotations

import difflib
import json
import math
import shlex
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.commands.ending import checking_arguments, clear_ends
from lockstep.commands.runner.errors import RunError
from lockstep.engine.units import took

if TYPE_CHECKING:
    from lockstep.advisor.why.observations import Cause, Observations
    from lockstep.advisor.why.script import ScriptSeen

OF_A_MODEL, OF_A_SCRIPT = 25.0, 30.0  # seconds that it looks for, unless --seconds says otherwise
LEAST_SECONDS, LEAST_OF_A_MODEL, MOST_SECONDS = 1.0, 5.0, 600.0  # in one a neighbor makes equal workers unequal
_MODEL_ONLY = (
    "input", "model_args", "classes", "vocab", "loss", "optimiser", "workers", "threads_per_worker", "batch", "sync",
    "launcher", "hosts", "link", "environment", "precision", "data", "images",
)  # fmt: skip


@clear_ends()
def why_slow(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="A script to start and look at, behind --.")] = None,
    model: Annotated[str, typer.Option(help="Your model: module:factory.")] = "",
    input: Annotated[str, typer.Option(help="Shape of one sample, such as 3,224,224 or int64:512.")] = "3,224,224",
    model_args: Annotated[str, typer.Option(help="Arguments of the factory, as JSON.")] = "{}",
    classes: Annotated[int, typer.Option(min=0, help="Labels; 0: as many as the output tells apart.")] = 0,
    vocab: Annotated[int, typer.Option(min=0, help="Of whole numbers as input: all are below it.")] = 0,
    loss: Annotated[str, typer.Option(help="Name, or module:function; default: what fits the output.")] = "",
    optimiser: Annotated[str, typer.Option(help="Such as adam:lr=0.001; default: SGD with momentum.")] = "",
    workers: Annotated[int, typer.Option(min=1, help="As you train, or want to.")] = 2,
    threads_per_worker: Annotated[int, typer.Option(min=1, help="Inside each operator.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Of each worker; of lockstep advise: of all together.")] = 32,
    sync: Annotated[str, typer.Option(help="How gradients are exchanged: see lockstep strategies.")] = "allreduce",
    launcher: Annotated[str, typer.Option(help="processes, threads or mpiexec.")] = "",
    hosts: Annotated[int, typer.Option(min=1, help="Emulated on this machine.")] = 1,
    link: Annotated[str, typer.Option(help="Of emulated hosts: 1gbit, or 25us,1.2e9 (its rate counts).")] = "",
    environment: Annotated[str, typer.Option(help="Of the allocator: tuned, or plain as in any script.")] = "tuned",
    precision: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    data: Annotated[Path | None, typer.Option(help="Folder of photos in place of random samples.")] = None,
    images: Annotated[int, typer.Option(min=0, help="Of the run that you timed: is its start-up in it?")] = 0,
    seconds: Annotated[
        float | None, typer.Option(help="To measure for (default: 25), or to look at a script (default: 30).")
    ] = None,
    pid: Annotated[int, typer.Option(min=0, help="Look at this running process, and change nothing.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Name what slows training down, by what each cause would gain: lockstep why --model M, or lockstep why -- COMMAND.

    With --model it trains your model for some seconds, in cells that differ in one thing each. With a command it starts
    the script, looks at its processes and ends it; with --pid it only looks.
    """
    given = {name for name in _MODEL_ONLY if getattr(context.get_parameter_source(name), "name", "") != "DEFAULT"}
    with checking_arguments():
        _check_one_of(model, command, pid, given)
        least = LEAST_OF_A_MODEL if model else LEAST_SECONDS
        seconds = (OF_A_MODEL if model else OF_A_SCRIPT) if seconds is None else seconds
        if not least <= seconds <= MOST_SECONDS:  # NaN too
            raise RunError(f"--seconds {seconds:g} is not possible; give {least:g} to {MOST_SECONDS:g}")
        if model:
            if ":" not in model:
                raise RunError(f"--model {model!r} must be module:name, such as lockstep.engine.models.alexnet:alexnet")
            hosts, bits = _checked_cell(sync, launcher, workers, hosts, link, environment, precision, data)
        else:
            command = _runnable(command or [])
            _check_script(command, pid)
    if not model:
        _say_script(_sampled(command or [], pid, seconds), as_json)
        return
    with checking_arguments():
        from lockstep.advisor.measuring.own_model import ModelAsked, look_at
        from lockstep.advisor.why.observe_own import RunAsked, with_photos

        own = look_at(ModelAsked(model, input, model_args, classes, vocab, loss, optimiser, batch, precision))
        case = own.case if data is None else with_photos(own.case, data)
        asked = RunAsked(
            workers, threads_per_worker, batch, sync, launcher, hosts, bits, environment, precision,
            images_timed=images, seconds=seconds, command=_again(context, model, given),
        )  # fmt: skip
        asked.cell().job(environment=environment, precision=precision)
    from lockstep.advisor.why.observe_own import observe_own

    seen = observe_own(asked, case, own.facts.gradient_bytes, lambda text: typer.echo(f"measuring {text}", err=True))
    _say_own(seen, as_json)


def _check_one_of(model: str, command: list[str] | None, pid: int, given: set[str]) -> None:
    chosen = [name for name, value in (("--model", model), ("-- COMMAND", command), ("--pid", pid)) if value]
    if not chosen:
        raise RunError("say what is slow: --model MODULE:FACTORY, or a script: lockstep why -- python train.py")
    if len(chosen) > 1:
        raise RunError(f"{' and '.join(chosen)} ask for different things; give one of them")
    if not model and given:
        named = ", ".join(sorted(f"--{name.replace('_', '-')}" for name in given))
        raise RunError(f"{named} belongs to --model; a script's own options stand behind --")


def _checked_cell(
    sync: str, launcher: str, workers: int, hosts: int, link: str, environment: str, precision: str, data: Path | None
) -> tuple[int, float]:
    """Hosts, and the link's rate in bits per second. Raises RunError, CalibrationError."""
    from lockstep.advisor.links import PAYLOAD, parse_link
    from lockstep.engine import registry
    from lockstep.engine.job.strategies import STRATEGIES
    from lockstep.engine.launch.environment import PROFILES

    for name, value, known in (
        ("sync", sync, [*registry.syncs_and_peers(), *STRATEGIES]), ("launcher", launcher or "processes",
        list(registry.launchers())), ("environment", environment, list(PROFILES)),
        ("precision", precision, ["float32", "bfloat16"]),
    ):  # fmt: skip
        if value not in known:
            close = difflib.get_close_matches(value, known, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise RunError(f"--{name} {value} does not exist; {meant}there are: {', '.join(dict.fromkeys(known))}")
    if data is not None and not data.is_dir():
        raise RunError(f"--data {data} is not a folder")
    if link and hosts == 1:
        hosts = 2
    if hosts > workers:
        raise RunError(f"--hosts {hosts} with --workers {workers}: a host needs a worker; give --workers {hosts}")
    if hosts > 1 and launcher not in ("", "mpiexec"):
        raise RunError(f"--hosts {hosts} with --launcher {launcher}: only mpiexec emulates hosts; leave it out")
    return hosts, 8 * parse_link(link).bytes_per_second / PAYLOAD if link else 0.0


def _runnable(command: list[str]) -> list[str]:
    """The command, with our own Python where the machine's could train nothing, which is said."""
    from lockstep.advisor.why.own_python import with_own_python

    found = list(with_own_python(command))
    if found != command:
        typer.echo(
            f"{command[0]!r} is missing or has no torch, TensorFlow or JAX, and no environment is active: the Python "
            "that runs Lockstep runs the script; name another by its path",
            err=True,
        )
    return found


def _check_script(command: list[str] | None, pid: int) -> None:
    if not Path("/proc/self/task").is_dir():
        raise RunError("a script is looked at through /proc, which Linux alone has; --model works everywhere")
    if command and shutil.which(command[0]) is None:
        raise RunError(f"{command[0]!r} is no program that can be started; lockstep why -- python train.py")
    if pid and not Path("/proc", str(pid)).is_dir():
        raise RunError(f"--pid {pid} does not exist")


def _sampled(command: list[str], pid: int, seconds: float) -> ScriptSeen:
    from lockstep.advisor.why.observe_script import observe_process, observe_script

    return observe_process(pid, seconds) if pid else observe_script(command, seconds)


def _again(context: typer.Context, model: str, given: set[str]) -> str:
    """The command line that measures this again."""
    words = ["lockstep", "why", "--model", model]
    for name in _MODEL_ONLY:
        if name in given or name == "input":
            words += [f"--{name.replace('_', '-')}", str(context.params[name])]
    return shlex.join(words)


def _say_own(seen: Observations, as_json: bool) -> None:
    from lockstep.advisor.why.decision import find_causes

    causes, asked = find_causes(seen), seen.asked
    if as_json:
        told = {name: value for name, value in asdict(replace(seen, parts=())).items() if name != "parts"}
        _say_json(causes, told, ())
        return
    turns = f", looked at in {seen.turns} turn{'s' * (seen.turns > 1)}" if seen.turns else ""
    typer.echo(
        f"{asked.workers} worker{'s' * (asked.workers > 1)} x {asked.threads_per_worker} "
        f"thread{'s' * (asked.threads_per_worker > 1)}, {asked.sync}, batch {asked.per_worker_batch_size} each, on "
        f"{seen.cores} core{'s' * (seen.cores > 1)}: {took(asked.step_seconds)} a step{turns}"
    )
    steps = math.ceil(seen.start_seconds / asked.step_seconds)
    typer.echo(f"start-up: {took(seen.start_seconds)}, as long as {steps} steps; give --images to judge a timed run")
    _say_causes(causes)
    if seen.unmeasured:
        typer.echo(f"\nthere was no time for: {'; '.join(seen.unmeasured)}. Give --seconds more")
    for failure in seen.failed:
        typer.echo(f"\nnot measured, for its workers failed: {failure}")


def _say_script(seen: ScriptSeen, as_json: bool) -> None:
    from lockstep.advisor.why.script import CANNOT_SEE, causes_of_script

    causes = causes_of_script(seen)
    if as_json:
        _say_json(causes, asdict(seen), CANNOT_SEE)
        return
    typer.echo(
        f"{shlex.join(seen.command)}: looked {seen.looks} times in {seen.seconds:.1f} s at {len(seen.processes)} "
        f"process{'es' * (len(seen.processes) > 1)} on {seen.cores} core{'s' * (seen.cores > 1)}"
    )
    for each in seen.processes:
        waits = ", ".join(f"{kind} {share:.0%}" for kind, share in each.main_waits)
        typer.echo(
            f"  {each.role:<6} {each.threads:.0f} threads, {each.runnable:.1f} awake, {each.cpu_cores:.2f} cores of "
            f"CPU time; its first thread is awake at {each.main_awake:.0%} of the looks"
            + (f" ({waits})" if waits else "")
        )
    _say_causes(causes)
    typer.echo("\nwhat this can't see:")
    for line in CANNOT_SEE:
        typer.echo(f"  {line}")


def _say_causes(causes: list[Cause]) -> None:
    from lockstep.advisor.why.observations import OTHERS

    if not causes:
        typer.echo("\nnothing on the path is above its threshold: no cause is named (docs/why-slower.md)")
    for number, cause in enumerate(causes, 1):
        seconds = "" if cause.gain_seconds is None else f"{took(cause.gain_seconds)} of a step, "
        gain = f": {seconds}{cause.gain_share:.0%}" if cause.gain_share else ""
        typer.echo(f"\n{number}. {cause.kind}{gain}")
        typer.echo(f"   found:     {cause.found}")
        typer.echo(f"   compared:  {cause.rule}: {cause.number:.3g}, named from {cause.threshold:.3g} on")
        typer.echo(f"   would gain {cause.gain}")
        typer.echo(f"   shown by:  {cause.command}")
    if any(cause.kind == OTHERS for cause in causes):
        typer.echo("\nothers used this machine meanwhile, so that times are uncertain: measure again when it is quiet")


def _say_json(causes: list[Cause], seen: dict[str, Any], cannot_see: tuple[str, ...]) -> None:
    told = {"causes": [asdict(cause) for cause in causes], "seen": seen, "cannot_see": list(cannot_see)}
    json.dump(told, sys.stdout, indent=2)
    typer.echo()

"""`lockstep simulate`: straggler policies in virtual time, under delays that can be repeated, or those of a trace."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from lockstep.commands.ending import checking_arguments, clear_ends
from lockstep.commands.runner.errors import RunError
from lockstep.engine.units import bytes_text

if TYPE_CHECKING:
    import pandas as pd

    from lockstep.engine.policies import Policy, Setting
    from lockstep.simulate import Cluster
    from lockstep.simulate.comparison import Trial

ALL = "all"
WORKERS, STEPS, STEP_SECONDS = 8, 200, 0.1
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_COLUMNS = {
    "step_seconds": "step (s)",
    "seconds": "in all (s)",
    "mitigation": "mitigation",
    "of_the_bound": "of the bound",
    "regret": "regret",
    "wasted_share": "wasted",
}
_LEGEND = (
    "mitigation    of the time that the delays cost wait-for-all per image, the share that the policy saves",
    "of the bound  the same of what could be saved without calling anybody off: nobody waits, messages are free",
    "regret        how much longer it takes than the quickest policy",
    "wasted        share of the images given out that no update used",
)
_PERCENT = ("mitigation", "of_the_bound", "regret", "wasted_share")


@clear_ends()
def simulate_policies(
    policy: Annotated[str, typer.Option(help="A policy's name, several with commas, or all.")] = ALL,
    options: Annotated[str, typer.Option(help="Options of the one policy, such as k=6.")] = "",
    delays: Annotated[
        str, typer.Option(help="Kind of delays, such as markov:slow=3,enter=0.01; several with ';', or all.")
    ] = ALL,
    workers: Annotated[int | None, typer.Option(min=1, help="8, or those of the trace.")] = None,
    standby: Annotated[int, typer.Option(min=0, help="Of these, nodes that stand by.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Updates of all workers' samples; 200.")] = None,
    loss: Annotated[float | None, typer.Option(help="Compare the time to this loss of a small problem.")] = None,
    share: Annotated[int, typer.Option(min=1, help="Images per worker and update.")] = 32,
    micro_batch: Annotated[
        int | None, typer.Option(min=0, help="Images computed at once; 0: the share. For all policies: an eighth.")
    ] = None,
    step_seconds: Annotated[float | None, typer.Option(help="A worker's computing time of an update; 0.1.")] = None,
    message_seconds: Annotated[float, typer.Option(help="A gradient's on the server's link.")] = 0.0,
    latency_seconds: Annotated[float, typer.Option(help="Of a message.")] = 0.0,
    update_seconds: Annotated[float, typer.Option(help="Of the server.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    trace: Annotated[Path | None, typer.Option(help="Recorded times, CSV or Parquet, in place of --delays.")] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="The recorded run itself: its steps, in its seconds, by other policies.")
    ] = False,
    tasks: Annotated[
        Path | None,
        typer.Option(help="Write the tasks of one policy under one kind of delays: .csv, or .json as a Chrome trace."),
    ] = None,
) -> None:
    """Run straggler policies in virtual time: mean step, what was gained, and what could be gained at all."""
    with checking_arguments():
        for name in _THREADS:  # before numpy and torch are loaded: their threads would only wait for each other here
            os.environ.setdefault(name, "1")
        run = _recorded(trace, delays, what_if, steps, step_seconds)
        workers = workers or (WORKERS if run is None else run.workers)
        step = STEP_SECONDS if step_seconds is None else step_seconds
        steps, step = (run.steps, run.step_seconds) if run and what_if else (steps or STEPS, step)
        made = _policies(policy, options, step)
        if micro_batch is None:  # some policies see only what lies between micro-batches; one alone is the quickest
            micro_batch = max(1, share // 8) if policy == ALL else 0
        cluster = _cluster(workers, standby, share, step, message_seconds, latency_seconds, update_seconds)
        trials = _trials(_kinds(delays, trace, what_if), cluster, steps, loss, share, micro_batch, seed)
        for make in made.values() if policy != ALL else ():
            make(trials[0].setting)
        if tasks is not None:
            _check_tasks(tasks, made, trials)
    _show(made, trials, facts=what_if or policy != ALL)
    if tasks is not None:
        _write_tasks(tasks, next(iter(made.values())), trials[0])


class Recorded(NamedTuple):
    """What a trace holds: so many workers and steps, of which a worker's usual one takes so many seconds."""

    workers: int
    steps: int
    step_seconds: float


def _recorded(
    trace: Path | None, delays: str, what_if: bool, steps: int | None, step_seconds: float | None
) -> Recorded | None:
    """None without a trace. Raises RunError for what does not go together, JobError for a trace that can't be read."""
    if trace is None:
        if what_if:
            raise RunError("--what-if asks about a trace; name one with --trace")
        return None
    if delays != ALL:
        raise RunError(f"--trace {trace} and --delays {delays} ask for two different things; give one of them")
    if "," in str(trace):
        raise RunError(f"--trace {trace}: a comma parts the options of delays; rename the file")
    for name, given in (("--steps", steps), ("--step-seconds", step_seconds)):
        if what_if and given is not None:
            raise RunError(f"--what-if replays the recorded run, and {name} {given} another one; leave one of them out")
    import numpy as np

    from lockstep.engine.delays.traces import read_trace

    found = read_trace(trace)
    seconds = np.concatenate([found.step_seconds(stage) for stage in found.stages], axis=1)
    return Recorded(seconds.shape[1], seconds.shape[0], float(np.median(seconds)))


def _policies(names: str, options: str, step_seconds: float) -> Mapping[str, Callable[[Setting], Policy]]:
    """The policies by the name that the table shows. Raises JobError or RunError for one that does not exist."""
    import functools

    from lockstep.engine.policies import POLICIES, policy_of

    chosen = list(POLICIES) if names == ALL else [name.strip() for name in names.split(",")]
    if options and len(chosen) != 1:
        raise RunError(f"--options {options!r} are those of one policy; name one with --policy")
    if names == ALL:
        return {name: functools.partial(POLICIES[name].fitted, share_seconds=step_seconds) for name in chosen}
    return {name: functools.partial(policy_of, name, options) for name in chosen}


def _check_tasks(file: Path, made: Mapping[str, Any], trials: list[Trial]) -> None:
    """Raises RunError for what can't be written."""
    if len(made) != 1 or len(trials) != 1:
        raise RunError(f"--tasks {file} holds one run; name one policy with --policy and one kind with --delays")
    if file.suffix not in (".csv", ".json"):
        raise RunError(f"--tasks {file} is neither .csv nor .json, a Chrome trace; give one of them")
    if not file.parent.is_dir():
        raise RunError(f"--tasks {file}: the folder {file.parent} does not exist; create it first")


def _write_tasks(file: Path, make: Callable[[Setting], Policy], trial: Trial) -> None:
    """Raises WriteError."""
    from lockstep.engine.files import write_atomically
    from lockstep.simulate.tasks import task_trace

    found = trial.run(make, keep_tasks=True).tasks
    assert found is not None
    text = found.to_csv(index=False) if file.suffix == ".csv" else json.dumps(task_trace(found)) + "\n"
    write_atomically(file, text)
    typer.echo(f"{len(found)} tasks written to {file}")


def _kinds(delays: str, trace: Path | None, what_if: bool) -> list[str]:
    from lockstep.engine.delays import KINDS, canonical

    if trace is not None:
        return [canonical(f"trace:file={trace}" + (",median=trace" if what_if else ""))]
    if delays == ALL:
        return [name for name in KINDS if name not in ("trace", "gone")]
    return [canonical(text) for text in delays.split(";")]


def _cluster(
    workers: int, standby: int, share: int, step: float, message: float, latency: float, update: float
) -> Cluster:
    """Seconds of a share, a message, its latency and an update. Raises RunError for what they can't be."""
    from lockstep.predict.cost_model import Costs
    from lockstep.predict.link_model import AlphaBeta
    from lockstep.simulate import Cluster

    for name, value, least in (
        ("--step-seconds", step, 1e-9), ("--message-seconds", message, 0.0), ("--latency-seconds", latency, 0.0),
        ("--update-seconds", update, 0.0),
    ):  # fmt: skip
        if not least <= value < float("inf"):
            raise RunError(f"{name} {value} is not possible; give a number of at least {least:g}")
    # A gradient of one byte, so that a second per byte is a second per message.
    costs = Costs(0.0, step / share, 0.0, gradient_bytes=1.0)
    return Cluster(workers, costs, AlphaBeta(latency, message), update, standby)


def _trials(
    kinds: list[str], cluster: Cluster, steps: int, loss: float | None, share: int, micro_batch: int, seed: int
) -> list[Trial]:
    """One for each kind of delays. Raises RunError, JobError or AnalysisError for what can't be simulated."""
    from lockstep.engine.delays import make_delays
    from lockstep.engine.policies import Setting
    from lockstep.simulate.comparison import Trial

    if loss is not None and not 0 < loss < float("inf"):
        raise RunError(f"--loss {loss} is not possible; give a number above 0")
    batch = share * (cluster.workers - cluster.standby)
    setting = Setting(cluster.workers, 100 * batch, batch, micro_batch, cluster.standby, seed)
    for kind in kinds:
        make_delays(kind, cluster.workers, seed)
    return [Trial(setting, cluster, kind, steps, loss) for kind in kinds]


def _show(made: Mapping[str, Callable[[Setting], Policy]], trials: list[Trial], facts: bool) -> None:
    from lockstep.simulate.comparison import compare_policies

    began = time.perf_counter()
    for trial in trials:
        typer.echo("\n".join(_text(trial.delays, compare_policies(made, [trial]), trial, facts)))
    typer.echo("\n".join(("", *_LEGEND)))
    from lockstep.engine.resident_memory import rss_bytes

    took, peak = time.perf_counter() - began, rss_bytes(peak=True)
    memory = "" if peak != peak else f", {bytes_text(peak)} of memory at the most"
    typer.echo(f"simulated in {took:.1f} s{memory}")


def _text(kind: str, rows: pd.DataFrame, trial: Trial, facts: bool) -> list[str]:
    """A table of one kind of delays, the quickest policy first, a line for each that has no number, and, with `facts`,
    one for each that has found something out, such as which setting to choose."""
    counted = f"{trial.setting.training} workers, {trial.updates} updates of {trial.setting.global_batch} images"
    lines = ["", f"delays {kind}, {counted}" + (f", until the loss is {trial.loss:g}" if trial.loss else "")]
    good = rows[rows["reason"] == ""].sort_values("seconds")
    if len(good):
        shown = good[["policy", *_COLUMNS]].rename(columns=_COLUMNS)
        formats: dict[str, Any] = {
            title: _percent if name in _PERCENT else "{:.4g}".format for name, title in _COLUMNS.items()
        }
        lines += shown.to_string(index=False, formatters=formats).splitlines()
    for _, row in rows[rows["reason"] != ""].iterrows():
        lines.append(f"{row['policy']}: {row['reason']}")
    for _, row in rows[rows["facts"] != ""].iterrows() if facts else ():
        lines.append(f"found by {row['policy']}: {row['facts'].replace('_', ' ')}")
    return lines


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f} %"

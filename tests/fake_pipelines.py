"""Records and traced tables of notebooks 03 and 04 as they could be on two cores: made up, exact numbers.

The model has eight layers whose seconds are known; a step is what `predict` says of its stages, times ERROR. So tests
know every prediction, bubble and cut. Every round is 5 % slower than the one before, for everybody. Frames are made
once, so tests change copies.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.published import read_claims
from lockstep.engine.job import Job
from lockstep.engine.pipelines.order import BACKWARD, FORWARD, INPUT_BACKWARD, WEIGHT_BACKWARD, Action, order
from lockstep.experiments.e03_pipelined_model_parallelism.stage_tables import TABLE_CELL, images_per_micro_batch
from lockstep.predict.pipeline_model import Prediction, predict
from lockstep.records import COLUMNS, Row, make_row

NO_CUDA = "no CUDA device"
SHARED = "4 workers x 1 cores on 2 usable cores: workers share cores"

# name, parameters, milliseconds of an image's forward pass (the backward pass takes twice as long), bytes of its output
LAYERS = (
    ("Conv2d", 10, 1.0, 4000), ("ReLU", 0, 1.0, 4000), ("Conv2d", 10, 1.0, 2000), ("MaxPool2d", 0, 1.0, 1000),
    ("Linear", 1000, 2.0, 400), ("Linear", 1000, 1.0, 400), ("Linear", 10, 0.5, 400), ("Linear", 10, 0.5, 12),
)  # fmt: skip
CUTS = {(2, "balanced"): (0, 4), (4, "balanced"): (0, 2, 4, 5), (2, "equal_layers"): (0, 5)}
CUTS[2, "equal_parameters"] = (0, 5)
SLOWEST = {(2, "balanced"): 1.0, (4, "balanced"): 1.0, (2, "equal_layers"): 1.5, (2, "equal_parameters"): 1.5}
SEND, UPDATE = 1e-3, 1e-2  # seconds: of an activation, and of every rank
ERROR = {"naive_pipeline": 1.02, "gpipe": 1.04, "1f1b": 1.05, "interleaved_1f1b": 1.06, "zero_bubble": 1.08}
"""Measured over predicted step."""
PEAK = 0.9  # of its bound
WORKING = 500  # bytes of a rank besides
MICRO_BATCHES = (2, 4, 8)
BATCH = 64

SPEED = {"SimpleBig": 20.0, "ComplexSmall": 1.0}  # images/s of sequential training
WHOLE = {"SimpleBig": 256, "ComplexSmall": 8}  # images per step in `speedup`
SPEEDUP = {"naive_pipeline": 0.95, "gpipe": 1.6, "1f1b": 1.65, "intra_op": 1.8, "processes": 1.9}
DECODED = 10.0  # photos that a core decodes while it trains one
IMBALANCE = 1.1  # of the ranks' computing in `speedup`
IDLE = 0.2  # of a step in `speedup`
NOISE = 1.01  # the second half of an A/A pair over the first

HYBRID = {2: {"processes_allreduce": 1.5, "processes": 1.7, "1f1b": 1.4, "head_parallel": 1.45}}
HYBRID[4] = {"processes_allreduce": 1.3, "processes": 1.6, "1f1b": 1.2, "head_parallel": 1.25}
BOTH = 1.35  # two replicas of two stages
ALPHA, BETA = 1e-4, 1e-9  # of the link between two ranks
SIZES = (1 << 16, 1 << 24)
PER_PARAMETER = 1e-6  # seconds of the optimiser
PARAMETERS = sum(layer[1] for layer in LAYERS)


def claim(name: str) -> dict[str, Any]:
    """A row of the ledger itself."""
    (found,) = [row for row in read_claims().to_dict("records") if row["id"] == f"s2m-{name}"]
    return found


def seconds_of(first: int, end: int) -> float:
    """Forward seconds of an image through layers first .. end-1, in a round without a slow pace."""
    return sum(layer[2] for layer in LAYERS[first:end]) / 1000


def spans(job: Job) -> list[tuple[int, int]]:
    cuts = CUTS[job.stages, job.partition]
    return list(zip(cuts, (*cuts[1:], len(LAYERS)), strict=True))


def rank_of(job: Job, stage: int) -> int:
    return stage % job.pipeline_ranks


def order_of(job: Job) -> dict[int, list[Action]]:
    """An order that this schedule could have: tests need one that can run, not torch's own."""
    counts = range(job.micro_batches)
    if job.schedule in ("naive", "gpipe", "1f1b"):
        return order("gpipe" if job.schedule == "naive" else job.schedule, job.stages, 1, job.micro_batches)
    if job.schedule == "zero_bubble":
        whole = order("1f1b", job.stages, 1, job.micro_batches)
        return {rank: [half for each in actions for half in _halves(each)] for rank, actions in whole.items()}
    own = {rank: range(rank, job.stages, job.pipeline_ranks) for rank in range(job.pipeline_ranks)}
    return {
        rank: [Action(stage, i, FORWARD) for stage in stages for i in counts]
        + [Action(stage, i, BACKWARD) for stage in reversed(stages) for i in counts]
        for rank, stages in own.items()
    }


def _halves(action: Action) -> Iterable[Action]:
    if action.kind == FORWARD:
        return [action]
    return [Action(action.stage, action.micro_batch, kind) for kind in (INPUT_BACKWARD, WEIGHT_BACKWARD)]


def prediction(job: Job) -> Prediction:
    """What a step of this job takes at the pace of round 0, if nothing but its stages and messages takes time."""
    return _prediction(job.with_(round=0, images=0))


@functools.cache
def _prediction(job: Job) -> Prediction:
    size, ends = images_per_micro_batch(vars(job)), spans(job)
    again = 1 if job.activations == "recomputed" else 0  # a second forward pass
    times = {FORWARD: 1.0, BACKWARD: 2.0 + again, INPUT_BACKWARD: 1.0, WEIGHT_BACKWARD: 1.0}
    return predict(order_of(job), lambda each: times[each.kind] * size * seconds_of(*ends[each.stage]), SEND, UPDATE)


def pipelines() -> list[Job]:
    """The cells of `schedules`, `stages` and `partition`."""
    shared: dict[str, Any] = {"use_case": "SimpleBig", "global_batch_size": BATCH, "input": "memory", "workers": 2}
    found = [Job.of("naive_pipeline", experiment="schedules", variant=half, **shared) for half in "ab"]
    for name in ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"):
        found += [Job.of(name, experiment="schedules", micro_batches=count, **shared) for count in MICRO_BATCHES]
    found.append(Job.of("1f1b", experiment="stages", **shared))
    found.append(Job.of("1f1b", experiment="stages", **shared | {"workers": 4, "stages": 4}))
    for rule in ("balanced", "equal_layers", "equal_parameters"):
        found.append(Job.of("1f1b", experiment="partition", partition=rule, **shared))
    return [*found, Job.of("1f1b", experiment="partition", activations="recomputed", **shared)]


def held() -> list[Job]:
    """The cells of `stage_memory`."""
    shared: dict[str, Any] = {"experiment": "stage_memory", "use_case": "SimpleBig", "workers": 2}
    shared |= {"global_batch_size": BATCH, "input": "memory"}
    found = [Job.of(name, **shared) for name in ("naive_pipeline", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble")]
    found.append(Job.of("1f1b", **shared | {"workers": 4, "stages": 4}))
    return [*found, Job.of("1f1b", **shared, activations="recomputed")]


def _timed() -> list[Job]:
    """The cells of `stage_times`: one for each kind of stage and size of micro-batch."""
    found: dict[tuple[Any, ...], Job] = {}
    for job in pipelines():
        key = (job.workers, job.stages, job.stages_per_rank, job.partition, job.activations, job.micro_batches)
        found.setdefault(key, job.with_(experiment="stage_times", variant="a"))
    return list(found.values())


@functools.cache
def records(rounds: int = 9) -> pd.DataFrame:
    """Of notebook 03."""
    rows: list[Row] = []
    for number in range(rounds):
        pace = 1 + 0.05 * number
        for use_case in SPEED:
            rows += _speedups(use_case, number, pace)
        for job in pipelines() + held():
            rows.append(_pipeline_row(job.with_(round=number, images=1008), pace))
        rows += [make_row(job.with_(round=number), {}) for job in _timed()]
        rows.append(make_row(Job.of("gpipe", experiment="layers", workers=2, round=number), {}))
    return _frame(rows)


@functools.cache
def hybrid_records(rounds: int = 9) -> pd.DataFrame:
    """Of notebook 04."""
    rows: list[Row] = []
    for number in range(rounds):
        pace = 1 + 0.05 * number
        for use_case, batch in (("SimpleBig", BATCH), ("ComplexSmall", 8)):
            rows += _hybrids(use_case, batch, number, pace)
        for size in SIZES:
            job = Job.of("processes_allreduce", workers=2, experiment="collective", message_bytes=size, input="none")
            exchange = (2 * ALPHA + BETA * size) * pace
            spent = {"step_seconds": exchange, "exchange_seconds": exchange, "update_seconds": 0.0}
            rows.append(make_row(job.with_(round=number), spent))
    return _frame(rows)


def _frame(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _pipeline_row(job: Job, pace: float) -> Row:
    found, factor = prediction(job), ERROR[job.strategy] * pace * (NOISE if job.variant == "b" else 1)
    step = found.step_seconds * factor
    idle = sum(found.idle_seconds.values()) / len(found.idle_seconds) * factor
    spent = {"step_seconds": step, "idle_seconds": idle, "exchange_seconds": 0.0, "update_seconds": UPDATE}
    values = spent | {"images_per_second": BATCH / step, "compute_seconds": step - idle - UPDATE}
    return make_row(job, values, reason=SHARED if job.workers > 2 else "")


def _trained(job: Job, gain: float, pace: float, reason: str = "", **measured: float) -> Row:
    speed = SPEED[job.use_case] * gain / pace
    values = {"images_per_second": speed, "step_seconds": job.global_batch_size / speed, "exchange_seconds": 0.0}
    return make_row(job, values | measured, reason=reason)


def _alone(pace: float, **shared: Any) -> list[Row]:
    """The A/A pair of sequential training."""
    update = PER_PARAMETER * PARAMETERS * pace
    halves = (("a", 1.0), ("b", NOISE))
    return [
        _trained(Job.of("sequential", **shared, variant=half), gain, pace, update_seconds=update)
        for half, gain in halves
    ]


def _speedups(use_case: str, number: int, pace: float) -> list[Row]:
    shared: dict[str, Any] = {"experiment": "speedup", "use_case": use_case, "round": number, "images": 1008}
    shared["global_batch_size"] = WHOLE[use_case]
    rows = _alone(pace, **shared)
    for name, gain in SPEEDUP.items():
        job = Job.of(name, workers=2, **shared, **_of_speedup(name, use_case))
        step = job.global_batch_size / (SPEED[use_case] * gain / pace)
        idle = {} if name in ("intra_op", "processes") else {"idle_seconds": IDLE * step}
        rows.append(_trained(job, gain, pace, **idle))
    decoding = Job.of("sequential", **shared | {"experiment": "decode"}).with_(strategy="decode")
    rows.append(make_row(decoding, {"images_per_second": DECODED * SPEED[use_case] / pace}))
    for name in ("sequential", "naive_pipeline", "gpipe", "processes_allreduce"):
        job = Job.of(name, workers=2, **shared, device="cuda")
        rows.append(make_row(job, {}, status="skipped", reason=NO_CUDA))
    return rows


def _of_speedup(name: str, use_case: str) -> dict[str, Any]:
    best = {"SimpleBig": 8, "ComplexSmall": 4}[use_case]
    return {"micro_batches": best} if name in ("gpipe", "1f1b") else {}


def _hybrids(use_case: str, batch: int, number: int, pace: float) -> list[Row]:
    shared: dict[str, Any] = {"experiment": "hybrid", "use_case": use_case, "round": number, "images": 1008}
    shared["global_batch_size"] = batch
    rows = _alone(pace, **shared)
    for workers, gains in HYBRID.items():
        for name, gain in gains.items():
            stages = {"stages": workers} if name == "1f1b" else {}
            job = Job.of(name, workers=workers, **shared, **stages)
            rows.append(_trained(job, gain, pace, SHARED if workers > 2 else ""))
    both = {"workers": 4, "sync": "allreduce", "micro_batches": 4 if batch == BATCH else 2}
    rows.append(_trained(Job.of("1f1b", **both, **shared), BOTH, pace, SHARED))
    on_gpus = [Job.of("sequential", **shared), Job.of("processes_allreduce", workers=2, **shared)]
    on_gpus += [Job.of("gpipe", workers=2, **shared), Job.of("gpipe", **both, **shared)]
    rows += [make_row(job.with_(device="cuda"), {}, status="skipped", reason=NO_CUDA) for job in on_gpus]
    return rows


def on_gpus(frame: pd.DataFrame, experiment: str, gains: dict[str, float]) -> pd.DataFrame:
    """The skipped rows of an experiment as if GPUs had run them: 10 images/s alone, times the gain of each strategy.
    Several replicas of a pipeline are the strategy `hybrid` there."""
    frame = frame.copy()
    own = (frame["experiment"] == experiment) & (frame["device"] == "cuda")
    assert own.any()
    combined = (frame["stages"] > 1) & (frame["sync"] == "allreduce")
    gain = frame["strategy"].mask(combined, "hybrid").map(gains)
    frame.loc[own, "images_per_second"] = (10 * gain / (1 + 0.05 * frame["round"]))[own]
    frame.loc[own, "step_seconds"] = (frame["global_batch_size"] / frame["images_per_second"])[own]
    frame.loc[own, ["status", "reason"]] = ["ok", ""]
    return frame


def noisy(frame: pd.DataFrame, deviation: float, **rows: Any) -> pd.DataFrame:
    """Some rows with images/s that swing around what they were, half of the rounds up and half down."""
    frame = frame.copy()
    own = pd.Series(True, index=frame.index)
    for name, value in rows.items():
        own &= frame[name] == value
    swing = np.exp(deviation * (2 * (frame["round"] % 2) - 1))
    frame.loc[own, "images_per_second"] *= swing[own]
    return frame


# Traced tables


def _cell(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in TABLE_CELL} | {"round": job.round}


@functools.cache
def tables(rounds: int = 9) -> dict[str, pd.DataFrame]:
    """`stages`, `actions` and `layers` of notebook 03, and `resources` of its experiment `speedup`."""
    stages: list[dict[str, Any]] = []
    actions: list[dict[str, Any]] = []
    for number in range(rounds):
        pace = 1 + 0.05 * number
        for job in pipelines() + held():
            stages += _stage_rows(job.with_(round=number), pace)
            actions += _action_rows(job.with_(round=number), pace)
        for job in _timed():
            stages += _stage_times(job.with_(round=number), pace)
        for use_case in SPEED:
            stages += _busy(use_case, number)
    found = {"stages": pd.DataFrame(stages), "actions": pd.DataFrame(actions), "layers": layers(rounds)}
    return found | {"resources": resources("speedup", ("sequential", *SPEEDUP), rounds)}


def _stage_rows(job: Job, pace: float) -> list[dict[str, Any]]:
    """What `prediction` says each stage spent, and memory: 12 bytes a parameter, 1000 bytes an image in flight."""
    size, factor, step = images_per_micro_batch(vars(job)), ERROR[job.strategy] * pace, prediction(job)
    ahead = {stage: min(job.micro_batches, job.stages - stage) for stage in range(job.stages)}
    rows = []
    for stage, (first, end) in enumerate(spans(job)):
        seconds = job.micro_batches * size * seconds_of(first, end) * factor
        flying = job.micro_batches if job.schedule in ("naive", "gpipe") else ahead[stage]
        own = sum(layer[1] for layer in LAYERS[first:end])
        rank = rank_of(job, stage)
        row = {"rank": rank, "replica": 0, "stage": stage, "first_layer": first, "last_layer": end - 1}
        row |= {"parameters": own, "forward_seconds": seconds, "backward_seconds": 2 * seconds}
        row |= {"idle_seconds": step.idle_seconds[rank] * factor, "update_seconds": UPDATE, "exchange_seconds": 0.0}
        row |= {"step_seconds": step.step_seconds * factor, "in_flight": flying, "parameter_bytes": 12 * own}
        row |= {"activation_bytes": 1000 * size, "working_bytes": WORKING, "peak_bytes": None, "rss_bytes": 1e9}
        rows.append(_cell(job) | row)
    for row in rows if job.experiment == "stage_memory" else ():  # of the rank: the same on each of its stages
        same = [each for each in rows if each["rank"] == row["rank"]]
        whole = sum(each["parameter_bytes"] + each["in_flight"] * each["activation_bytes"] for each in same)
        row["peak_bytes"] = PEAK * whole
    return rows


def _busy(use_case: str, number: int) -> list[dict[str, Any]]:
    """Stages of `speedup`: rank 0 computes IMBALANCE times the mean."""
    rows = []
    for name in ("naive_pipeline", "gpipe", "1f1b"):
        shared = {"experiment": "speedup", "use_case": use_case, "global_batch_size": WHOLE[use_case], "round": number}
        job = Job.of(name, workers=2, **shared, **_of_speedup(name, use_case))
        for stage, busy in enumerate((IMBALANCE, 2 - IMBALANCE)):
            first, end = spans(job)[stage]
            row = {"rank": stage, "replica": 0, "stage": stage, "first_layer": first, "last_layer": end - 1}
            row |= {"parameters": 1, "forward_seconds": busy / 3, "backward_seconds": 2 * busy / 3, "in_flight": 1}
            row |= {
                "parameter_bytes": 100,
                "activation_bytes": 100,
                "working_bytes": 0,
                "peak_bytes": None,
                "rss_bytes": 1e9,
            }
            rows.append(_cell(job) | row)
    return rows


def _stage_times(job: Job, pace: float) -> list[dict[str, Any]]:
    size, again = images_per_micro_batch(vars(job)), 1 if job.activations == "recomputed" else 0
    rows = []
    for stage, (first, end) in enumerate(spans(job)):
        forward = size * seconds_of(first, end) * pace
        row = {"rank": rank_of(job, stage), "replica": 0, "stage": stage, "first_layer": first, "last_layer": end - 1}
        row |= {"forward_seconds": forward, "backward_seconds": (2 + again) * forward, "update_seconds": UPDATE * pace}
        row |= {"input_backward_seconds": forward, "weight_backward_seconds": forward}
        rows.append(_cell(job) | row | {"send_seconds": SEND * pace if stage < job.stages - 1 else None})
    return rows


def _action_rows(job: Job, pace: float) -> list[dict[str, Any]]:
    found, factor = prediction(job), ERROR[job.strategy] * pace
    size, ends = images_per_micro_batch(vars(job)), spans(job)
    times = {FORWARD: 1.0, BACKWARD: 2.0, INPUT_BACKWARD: 1.0, WEIGHT_BACKWARD: 1.0}
    rows, last = [], {}
    for action, start in found.starts.items():
        rank, seconds = rank_of(job, action.stage), times[action.kind] * size * seconds_of(*ends[action.stage]) * factor
        row = {"rank": rank, "replica": 0, "stage": action.stage, "micro_batch": action.micro_batch}
        rows.append(_cell(job) | row | {"action": action.kind, "start_seconds": start * factor, "seconds": seconds})
        last[rank] = max(last.get(rank, 0.0), start * factor + seconds)
    for rank, end in last.items():
        row = {"rank": rank, "replica": 0, "stage": -1, "micro_batch": -1, "action": "update"}
        rows.append(_cell(job) | row | {"start_seconds": end, "seconds": UPDATE * factor})
    return rows


def layers(rounds: int = 9, sizes: tuple[int, ...] = (8, 16, 32, 64), slow: float = 1.0) -> pd.DataFrame:
    """Every layer at every micro-batch size; SimpleBig's, and a ComplexSmall that takes 20 times as long.

    `slow`: multiplies the seconds of the first layer.
    """
    rows = []
    for number in range(rounds):
        for use_case, factor in (("SimpleBig", 1.0), ("ComplexSmall", 20.0)):
            for size in sizes:
                job = Job.of("gpipe", experiment="layers", use_case=use_case, workers=2, round=number)
                for index, (name, count, milliseconds, output) in enumerate(LAYERS):
                    forward = size * milliseconds / 1000 * factor * (1 + 0.05 * number) * (slow if index == 0 else 1)
                    row = {"layer": index, "name": name, "parameters": count, "micro_batch_size": size}
                    row |= {"forward_seconds": forward, "backward_seconds": 2 * forward}
                    rows.append(_cell(job) | row | {"output_bytes": output * size, "saved_bytes": output * size})
    return pd.DataFrame(rows)


def resources(experiment: str, strategies: Iterable[str], rounds: int = 9, device: str = "cpu") -> pd.DataFrame:
    """Traces: CPU use that swings between 50 and 150 %, 5 threads, 1 GiB."""
    rows = []
    for number in range(rounds):
        for use_case in SPEED:
            for strategy in strategies:
                for second in range(6):
                    cell = {"device": device, "workers": 2, "round": number, "strategy": strategy}
                    cell |= {"use_case": use_case, "experiment": experiment, "seconds": 0.5 * second}
                    use = {"cpu_percent": 50.0 + 100 * (second % 2), "pss_bytes": 2**30, "threads": 5}
                    rows.append(cell | use | {"io_wait_percent": 1.0})
    return pd.DataFrame(rows)

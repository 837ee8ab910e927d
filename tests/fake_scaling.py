"""Records of notebook 08 as they could be on two cores: made up by the cost model, so tests know all."""

from __future__ import annotations

from typing import Any

import pandas as pd

from lockstep.engine.job import Job
from lockstep.engine.models.flop_count import network_layers
from lockstep.engine.models.layers import Network
from lockstep.experiments.e08_convlstm_scaling.grid import cells, comparisons
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.fixed_batch import trained
from lockstep.predict.cost_model import Costs, chain_of_sync
from lockstep.predict.link_model import AlphaBeta
from lockstep.records import COLUMNS, Row, make_row

NAMES = ("engines_shared_memory", "allreduce", "parameter_server")
COSTS = {
    "cnn": Costs(0.004, 0.002, 0.1, dict(zip(NAMES, (1e-9, 2e-9, 3e-9), strict=True)), 1e6, 2.0),
    "convlstm": Costs(0.006, 0.0022, 0.05, dict(zip(NAMES, (1e-9, 2e-9, 3e-9), strict=True)), 1.6e6, 2.0),
}
LINK = AlphaBeta(1e-4, 8e-9)
RATE = 1e9
NOISE = 1.01  # the second half of an A/A pair over the first
HELD_OUT_ERROR = 1.06  # measured over modelled
ACCURACY = {1: (0.80, 0.81, 0.79, 0.80, 0.80), 2: (0.80, 0.82, 0.79, 0.80, 0.80), 4: (0.79, 0.81, 0.78, 0.80, 0.79)}
PIPELINES = {"naive_pipeline": 0.95, "gpipe": 1.6}


def two_workers_seconds(network: str, images: int, strategy: str, sync: str) -> float:
    """What a step of two workers takes by the model, each with `images`."""
    model = COSTS[network]
    exchange = model.exchange_seconds(strategy, chain_of_sync(sync, 2, model.gradient_bytes), 2)
    return model.compute_seconds(images, 2) + exchange


def records(rounds: int = 10) -> pd.DataFrame:
    """Every round is 2 % slower than the one before, for everybody."""
    rows: list[Row] = []
    for number in range(rounds):
        for network in COSTS:
            rows += _steps(network, number) + _flops(network, number)
        rows += _links(number) + _learned(number)
    return frame_of(rows)


def as_measured(chosen: Parameters, rounds: int = 10) -> pd.DataFrame:
    """The notebook's grid as it is measured: a round holds one comparison, or one seed of a cell that learns."""
    jobs, number, rows = [_real(job) for job in cells(chosen)], 0, []
    for comparison in comparisons(jobs):
        for count in range(rounds):
            rows += [_measured(jobs[place], count) | {"round": number} for place in comparison.cells]
            number += 1
    return frame_of(rows)


def _real(job: Job) -> Job:
    return job.with_(data_source="real", images=2000) if job.experiment != "wire" else job


def _measured(job: Job, number: int) -> Row:
    if job.experiment == "learning":
        accuracy = 0.8 + 0.002 * (number % 5 - 2)
        measured = {"test_accuracy": accuracy, "train_accuracy": accuracy + 0.1, "training_seconds": 10.0}
        return make_row(job.with_(seed=number), measured)
    if job.experiment == "flops":
        return _flops(job.network, number)[0]
    if job.experiment == "wire":
        seconds = LINK.seconds(1, job.message_bytes)
        return make_row(job, {"step_seconds": seconds, "exchange_seconds": seconds, "update_seconds": 0.0})
    if job.model_parallel != "none":
        alone = COSTS[job.network].compute_seconds(job.global_batch_size)
        return _step(job, alone / PIPELINES[job.strategy], number)
    error = HELD_OUT_ERROR if job.experiment.startswith("held_out") else 1.0
    error *= NOISE if job.variant == "b" else 1.0
    return _step(job, error * COSTS[job.network].step_seconds(vars(job), LINK), number)


def frame_of(rows: list[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numbers = [name for name, column in COLUMNS.items() if column.kind == "number"]
    frame[numbers] = frame[numbers].astype(float)
    return frame


def _shared(network: str, number: int) -> dict[str, Any]:
    shared = {"use_case": "Pneumonia", "network": network, "input": "memory", "images": 2000, "round": number}
    return shared | {"data_source": "real"}


def _step(job: Job, seconds: float, number: int, **measured: float) -> Row:
    seconds *= 1 + 0.02 * number
    values = {"step_seconds": seconds, "images_per_second": job.global_batch_size / seconds}
    if job.sync == "allreduce" and job.workers > 1:
        sent = 2 * (job.workers - 1) / job.workers * COSTS[job.network].gradient_bytes
        values["bytes_sent"] = sent
    return make_row(job, values | measured, reason="; ".join(job.cautions(2)))


def _steps(network: str, number: int) -> list[Row]:
    """strong, weak and held out: exactly as the model says, but HELD_OUT_ERROR."""
    shared, rows = _shared(network, number), []
    for experiment, batches in (("strong", (128, 64)), ("weak", (64,)), ("held_out", (96,))):
        error = HELD_OUT_ERROR if experiment == "held_out" else 1.0
        for batch in batches:
            jobs = [trained("sequential", experiment, global_batch_size=batch, workers=1, **shared)]
            for workers in (3,) if experiment == "held_out" else (2, 4):
                whole = batch * workers if experiment == "weak" else batch
                more = {"experiment": experiment, "workers": workers, "global_batch_size": whole}
                more["per_worker_batch_size"] = -(-whole // workers)
                jobs += [Job.of(name, **more, **shared) for name in NAMES]
            rows += [_step(job, error * COSTS[network].step_seconds(vars(job)), number) for job in jobs]
            if batch == 128:
                rows += [_step(job.with_(variant="b"), COSTS[network].step_seconds(vars(job)) * NOISE, number)
                         for job in jobs[:2]]  # fmt: skip
                rows += _pipelines(jobs[0], number)
    return rows


def _pipelines(alone: Job, number: int) -> list[Row]:
    shared = _shared(alone.network, number) | {"experiment": "strong", "global_batch_size": alone.global_batch_size}
    seconds = COSTS[alone.network].step_seconds(vars(alone))
    found = []
    for name, gain in PIPELINES.items():
        job = Job.of(name, workers=2, launcher="engines", partition="equal_parameters", **shared)
        found.append(_step(job, seconds / gain, number))
    return found


def _links(number: int) -> list[Row]:
    """Emulated hosts: a ping-pong, and the CNN over the same link."""
    over = {"hosts": 2, "launcher": "mpiexec", "link_bits_per_second": RATE}
    rows = []
    for size in (1 << 14, 1 << 22):
        job = Job.of("allreduce", workers=2, experiment="wire", input="none", message_bytes=size, round=number, **over)
        seconds = LINK.seconds(1, size)
        job = job.with_(strategy="ping_pong", sync="ping_pong")
        rows.append(make_row(job, {"step_seconds": seconds, "exchange_seconds": seconds, "update_seconds": 0.0}))
    job = Job.of("allreduce", workers=2, experiment="held_out_hosts", global_batch_size=64,
                 **over, **_shared("cnn", number))  # fmt: skip
    return [*rows, _step(job, HELD_OUT_ERROR * COSTS["cnn"].step_seconds(vars(job), LINK), number)]


def _learned(number: int) -> list[Row]:
    rows = []
    for workers, found in ACCURACY.items():
        for batch in (32, 128):
            name = "sequential" if workers == 1 else "engines_shared_memory"
            shared = _shared("convlstm", number) | {"experiment": "learning", "seed": number, "epochs": 10}
            shared |= {"scored_on": "test", "global_batch_size": batch, "input": "jpeg"}
            job = Job.of(name, workers=workers, **shared)
            accuracy = found[number % len(found)]
            measured = {"test_accuracy": accuracy, "train_accuracy": accuracy + 0.1, "training_seconds": 10.0}
            rows.append(make_row(job, measured, reason="; ".join(job.cautions(2))))
    return rows


def _flops(network: str, number: int) -> list[Row]:
    job = Job.of("sequential", experiment="flops", **_shared(network, number))
    forward = sum(layer.computed for layer in network_layers(Network(network, 1)))
    return [make_row(job, {"flops_per_image": 3 * forward})]


def flops(rounds: int = 10) -> pd.DataFrame:
    """The traced table."""
    rows = []
    for number in range(rounds):
        for network in COSTS:
            for layer in network_layers(Network(network, 1)):
                rows.append(
                    {
                        "experiment": "flops", "use_case": "Pneumonia", "strategy": "sequential", "round": number,
                        "workers": 1, "device": "cpu", "network": network, "name": layer.name,
                        "equation_flops": layer.equation, "computed_flops": layer.computed,
                        "counted_flops": layer.computed, "counted_backward_flops": 2 * layer.computed,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)

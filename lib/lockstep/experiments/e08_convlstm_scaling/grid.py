"""Notebook 08's cells: as many workers as the machine carries, and what the cost model is checked on.

strong           the global batch stays, workers share it; data parallel, and model parallel on two ranks
weak             a batch for each worker
held_out         other batches and other numbers of workers, which the cost model never saw
held_out_hosts   emulated hosts with a link between them, which it never saw either
wire             a ping-pong over such a link: its latency and its rate
flops            nothing runs: torch counts the operations of each layer
learning         accuracy after ten epochs by one worker and by several                       (Figure 8 of the paper)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lockstep.engine.job import LEARNING, Job
from lockstep.experiments.experiment import Parameters
from lockstep.experiments.fixed_batch import in_memory_format, trained
from lockstep.measure.planning import Comparison

USE_CASE = "Pneumonia"
DATA_PARALLEL = ("engines_shared_memory", "allreduce", "parameter_server")
"""The last one is the paper's."""
IN_WEAK_SCALING = DATA_PARALLEL[:2]
MODEL_PARALLEL = ("naive_pipeline", "gpipe")
"""The paper's Algorithm 2, and the same in micro-batches."""
SMALL_BATCH = 32
"""Of Table 2: a further batch of one worker that the cost model is checked on."""
PINGS = 10
"""Measured steps of a ping-pong."""
SEEDS = 8
"""With how many a cell learns: one takes half a minute, and what Table 3 claims is far off."""
_SCALING = ("strong", "weak")


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs: list[Job] = []
    for network in chosen.networks:
        jobs += _measured(chosen, network)
        jobs += _held_out(chosen, network)
    jobs += _ping_pong(chosen)
    for network in chosen.networks:
        jobs.append(Job.of("sequential", experiment="flops", use_case=USE_CASE, network=network))
    jobs += _learning(chosen)
    return in_memory_format(jobs, chosen.memory_format)


def _measured(chosen: Parameters, network: str) -> list[Job]:
    """Strong and weak scaling; of the strong one the sequential cell and one of two workers stand twice: A/A pairs."""
    strong = {"network": network, "global_batch_size": chosen.batch_size}
    alone = {"network": network, "global_batch_size": chosen.per_worker_batch_size}
    jobs = []
    for experiment, fields in (("strong", strong), ("weak", alone)):
        jobs += _timed(chosen, experiment, ["sequential"], **fields)
    jobs += _timed(chosen, "strong", ["sequential"], variant="b", **strong)
    jobs += _timed(chosen, "strong", DATA_PARALLEL[:1], min(chosen.worker_counts), variant="b", **strong)
    jobs += _timed(chosen, "strong", MODEL_PARALLEL, 2, **strong)
    for workers in chosen.worker_counts:
        together = {"network": network, "global_batch_size": chosen.per_worker_batch_size * workers}
        jobs += _timed(chosen, "strong", DATA_PARALLEL, workers, **strong)
        jobs += _timed(chosen, "weak", IN_WEAK_SCALING, workers, **together)
    return jobs


def _held_out(chosen: Parameters, network: str) -> list[Job]:
    """What the cost model is checked on: nothing of it is fitted."""
    strong = {"network": network, "global_batch_size": chosen.batch_size}
    other = {"network": network, "global_batch_size": chosen.held_out_batch_size}
    small = {"network": network, "global_batch_size": SMALL_BATCH}
    jobs = []
    for workers in chosen.held_out_workers:
        jobs += _timed(chosen, "held_out", DATA_PARALLEL, workers, **other)
    for fields in (other, small):
        jobs += _timed(chosen, "held_out", ["sequential"], **fields)
    for fields in (strong, other):
        jobs += _timed(chosen, "held_out_hosts", ["allreduce"], 2, **fields, **_between_hosts(chosen, 2))
    # The server is the third host.
    jobs += _timed(chosen, "held_out_hosts", ["parameter_server"], 2, **strong, **_between_hosts(chosen, 3))
    return jobs


def _ping_pong(chosen: Parameters) -> list[Job]:
    jobs = []
    for size in chosen.message_bytes:
        (pair,) = _timed(chosen, "wire", ["allreduce"], 2, message_bytes=size, **_between_hosts(chosen, 2))
        jobs.append(pair.with_(input="none", strategy="ping_pong", sync="ping_pong", steps=PINGS))
    return jobs


def _learning(chosen: Parameters) -> list[Job]:
    """At the first batch size by all numbers of workers, at larger ones by some."""
    shared = {"network": chosen.learning_network, "epochs": chosen.learning_epochs, "scored_on": "test"}
    jobs, numbers = [], (chosen.learning_workers, chosen.larger_batch_workers)
    for place, size in enumerate(chosen.learning_batch_sizes):
        for workers in numbers[min(place, 1)]:
            name = "sequential" if workers == 1 else "engines_shared_memory"
            fields = {"workers": workers, "global_batch_size": size, **shared}
            jobs.append(trained(name, "learning", use_case=USE_CASE, **fields))
    return jobs


def _between_hosts(chosen: Parameters, hosts: int) -> dict[str, Any]:
    """Hosts that this machine emulates, a namespace for each, with a link of the chosen rate between them."""
    return {"launcher": "mpiexec", "link_bits_per_second": chosen.link_bits_per_second, "hosts": hosts}


def _timed(
    chosen: Parameters, experiment: str, strategies: Iterable[str], workers: int = 1, **fields: Any
) -> list[Job]:
    """Timed steps from memory; several workers on one host are ipyparallel engines."""
    given: dict[str, Any] = {
        "use_case": USE_CASE,
        "input": "memory",
        "steps": chosen.steps,
        "warmup_steps": chosen.warmup_steps,
        "workers": workers,
    }
    if workers > 1 and "hosts" not in fields:
        given["launcher"] = "engines"
    return [trained(name, experiment, **given | fields) for name in strategies]


def comparisons(jobs: Sequence[Job]) -> list[Comparison]:
    """Strong and weak scaling beside one worker's training of the same network: in strong scaling of the same batch, in
    weak scaling of one worker's; and A/A pairs. Everything else is measured alone. Headlines: two workers of strong
    scaling, for nothing that more workers could say is measured here."""
    places = {job: place for place, job in enumerate(jobs)}
    found = []
    for job, place in places.items():
        rivals = [places[other] for other in _rivals(job, jobs)]
        headline = job.experiment == "strong" and job.workers == 2 and job.model_parallel == "none"
        found += [Comparison((place, other), headline and job.variant == "a") for other in rivals]
    paired = {place for one in found for place in one.cells}
    alone = [place for place in places.values() if place not in paired]
    return [*found, *(Comparison((place,), rounds=SEEDS * (jobs[place].experiment in LEARNING)) for place in alone)]


def _rivals(job: Job, jobs: Sequence[Job]) -> Iterator[Job]:
    if job.variant != "a":
        yield from (other for other in jobs if other == job.with_(variant="a"))
    elif job.experiment in _SCALING and job.strategy != "sequential":
        batch = job.global_batch_size if job.experiment == "strong" else job.per_worker_batch_size
        wanted = (job.experiment, job.network, "sequential", "a", batch)
        yield from (each for each in jobs if _named(each) == wanted)


def _named(job: Job) -> tuple[Any, ...]:
    return job.experiment, job.network, job.strategy, job.variant, job.global_batch_size

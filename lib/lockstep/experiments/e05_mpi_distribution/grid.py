"""Notebook 05's cells: MPI workers of one machine, and of hosts that it emulates, with links of a given rate.

bars            shared memory through engines beside DDP, mpiexec and processes without MPI
batches         one worker, with a small and a large batch: what an image costs, and what a step costs
weak            every sync, the batch growing with the workers                          (Table 3 of the paper)
strong          every sync, the global batch staying
headline        three local strategies on one host and on two, the 50x50 network        (the paper's headline)
timeline        one core, and two hosts: every step of every rank is kept               (Figure 5 of the paper)
links           plain and compressed gradients on two hosts, over links of several rates, the 50x50 network
paired          the same until they have learnt: what a compressed gradient costs in accuracy
start           how long starting a team takes
collective      exchanges without a model, between the workers of one host
wire            the same between two hosts, and a ping-pong: the link's latency and its rate
servers_wire    a server with a host of its own, and a slice of the parameters on each worker
between_hosts   what crosses the link between two hosts of two workers each
traffic         what an all-reduce puts on all links together, over more and more hosts
"""

from __future__ import annotations

from typing import Any

from lockstep.engine.job import Job
from lockstep.experiments.experiment import Parameters

SYNCS: tuple[str, ...] = ("allreduce", "layerwise", "bucketed", "node_aware", "local_sgd", "epochwise")
SYNCS += ("parameter_server", "sharded_server", "algorithm_1", "algorithm_1_best", "topk", "terngrad", "gossip")
"""What `all` stands for where a parameter chooses syncs."""
EVERY_FEW_STEPS = ("local_sgd", "algorithm_1", "algorithm_1_best")
"""Of these, what exchanges parameters every few steps: measured over as many."""
BESIDE_DDP = ("ddp", "engines_shared_memory", "mpi_shared_memory")
OVER_LINKS = ("allreduce", "topk", "terngrad")
CARRIED = ("processes_allreduce", "mpi_allreduce")
"""All-reduces between the workers of one host."""
SMALL = "Pneumonia"
"""Images of 50 x 50 pixels: many cheap rounds, where a claim names no use case."""

LONG_MESSAGE_BYTES = 2**20
"""Beyond this a few exchanges take long enough to be timed."""
LONG_MESSAGE_STEPS, SHORT_MESSAGE_STEPS = 4, 20
SMALLEST_MESSAGE_BYTES = 4096
"""Of the teams whose start alone is measured."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs = _beside_ddp(chosen)
    for use_case in chosen.use_cases:
        jobs += _batches(chosen, use_case)
    for use_case in (*chosen.use_cases, SMALL):
        jobs += _every_sync(chosen, "weak", use_case, chosen.weak_syncs)
        staying = {"global_batch_size": chosen.of("per_worker_batch_size", use_case)}
        jobs += _every_sync(chosen, "strong", use_case, chosen.strong_syncs, **staying)
    for use_case in chosen.use_cases:
        jobs += _on_gpus(chosen, use_case)
    jobs += _headline(chosen) + _timeline(chosen) + _links(chosen) + _learning(chosen)
    jobs.append(_exchange(chosen, "start", "engines_shared_memory", SMALLEST_MESSAGE_BYTES))
    for size in chosen.message_bytes:
        jobs += _messages(chosen, size)
    return jobs + _bytes_on_links(chosen)


def _beside_ddp(chosen: Parameters) -> list[Job]:
    """SimpleBig as our own targets judge it; of the paper's other use cases MPI beside processes without it alone."""
    jobs = [_cell(chosen, "bars", "sequential")]
    for strategy in ("ddp", "engines_shared_memory"):
        jobs.append(_cell(chosen, "bars", strategy, precision="bfloat16"))
    for workers in chosen.worker_counts:
        for strategy in BESIDE_DDP:
            jobs.append(_cell(chosen, "bars", strategy, workers=workers))
    jobs.append(_cell(chosen, "bars", "processes"))
    for use_case in chosen.use_cases:
        if use_case != "SimpleBig":
            jobs += [_cell(chosen, "bars", strategy, use_case) for strategy in ("mpi_shared_memory", "processes")]
    return jobs


def _batches(chosen: Parameters, use_case: str) -> list[Job]:
    sizes = sorted({chosen.of(name, use_case) for name in ("per_worker_batch_size", "large_batch_size")})
    return [_cell(chosen, "batches", "sequential", use_case, global_batch_size=size) for size in sizes]


def _every_sync(
    chosen: Parameters, experiment: str, use_case: str, syncs: dict[str, list[str]], **batch: int
) -> list[Job]:
    """Nothing without syncs, not even what they would be compared with."""
    named = _named(syncs.get(use_case, []))
    jobs = [_cell(chosen, experiment, "sequential", use_case, **batch)] if named else []
    for workers in chosen.worker_counts:
        for sync in named:
            jobs.append(_cell(chosen, experiment, sync, use_case, workers=workers, launcher="engines", **batch))
    return jobs


def _named(choices: list[str]) -> list[str]:
    """The syncs that a parameter names, with those that `all` stands for."""
    syncs: list[str] = []
    for choice in choices:
        syncs += SYNCS if choice == "all" else [choice]
    return syncs


def _on_gpus(chosen: Parameters, use_case: str) -> list[Job]:
    return [
        _cell(chosen, "weak", "sequential", use_case, device="cuda"),
        _cell(chosen, "weak", "allreduce", use_case, device="cuda", launcher="engines"),
    ]


def _headline(chosen: Parameters) -> list[Job]:
    one_host = {"workers": chosen.workers}
    two_hosts = {"workers": 2 * chosen.workers, **_between_hosts(2, max(chosen.link_rates))}
    jobs = []
    for where in (one_host, two_hosts):
        for strategy in ("mpi_allreduce", "host_threads", "mpi_shared_memory"):
            jobs.append(_cell(chosen, "headline", strategy, SMALL, **where))
    again = _cell(chosen, "headline", "mpi_allreduce", SMALL, variant="b", **one_host)  # an A/A pair
    return [*jobs, again]


def _timeline(chosen: Parameters) -> list[Job]:
    two_hosts = _between_hosts(2, max(chosen.link_rates))
    return [_cell(chosen, "timeline", "sequential"), _cell(chosen, "timeline", "mpi_allreduce", **two_hosts)]


def _links(chosen: Parameters) -> list[Job]:
    jobs = [_cell(chosen, "links", "sequential", SMALL)]
    for rate in chosen.link_rates:
        for sync in OVER_LINKS:
            jobs.append(_cell(chosen, "links", sync, SMALL, **_between_hosts(2, rate)))
    return jobs


def _learning(chosen: Parameters) -> list[Job]:
    """Uncompressed gradients and compressed ones, until something is learnt; a round is a seed."""
    shared: dict[str, Any] = {"experiment": "paired", "use_case": SMALL, "images": chosen.learning_images}
    shared |= {"epochs": chosen.learning_epochs, "scored_on": "test", "workers": chosen.workers}
    shared["per_worker_batch_size"] = chosen.learning_batch_size
    jobs = [Job.of(strategy, **shared) for strategy in ("allreduce", "terngrad")]
    return jobs + [Job.of("topk", density=density, **shared) for density in chosen.densities]


def _messages(chosen: Parameters, size: int) -> list[Job]:
    """What agreeing on a message of `size` bytes takes between two workers, and what a ping-pong of it does."""
    steps = LONG_MESSAGE_STEPS if size > LONG_MESSAGE_BYTES else SHORT_MESSAGE_STEPS
    two_hosts = _between_hosts(2, min(chosen.link_rates))
    jobs = [_exchange(chosen, "collective", strategy, size, steps=steps) for strategy in CARRIED]
    pair = _exchange(chosen, "wire", "mpi_allreduce", size, steps=steps, **two_hosts)
    return [*jobs, pair, pair.with_(strategy="ping_pong", sync="ping_pong")]


def _bytes_on_links(chosen: Parameters) -> list[Job]:
    """Exchanges of one size, whose bytes the links count."""
    size, slowest, fastest = chosen.server_bytes, min(chosen.link_rates), max(chosen.link_rates)
    jobs = [
        _exchange(chosen, "servers_wire", "sharded_server", size, workers=4, **_between_hosts(4, slowest)),
        # The fifth host is the server's.
        _exchange(chosen, "servers_wire", "parameter_server", size, workers=4, **_between_hosts(5, slowest)),
    ]
    for strategy in ("mpi_allreduce", "mpi_shared_memory", "sockets"):
        jobs.append(_exchange(chosen, "between_hosts", strategy, size, workers=4, **_between_hosts(2, fastest)))
    for hosts in (2, 4):
        jobs.append(
            _exchange(chosen, "traffic", "mpi_allreduce", size, workers=hosts, **_between_hosts(hosts, fastest))
        )
    return jobs


def _between_hosts(hosts: int, link_rate: float) -> dict[str, Any]:
    """Hosts that this machine emulates, a namespace for each, with links of that rate (bit/s) between them."""
    return {"launcher": "mpiexec", "hosts": hosts, "link_bits_per_second": link_rate}


def _exchange(chosen: Parameters, experiment: str, strategy: str, size: int, **fields: Any) -> Job:
    """A vector of `size` bytes is summed, without a model."""
    alone: dict[str, Any] = {"input": "none", "message_bytes": size, "steps": LONG_MESSAGE_STEPS}
    return _cell(chosen, experiment, strategy, **alone | fields)


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str = "SimpleBig", **fields: Any) -> Job:
    given: dict[str, Any] = {"experiment": experiment, "use_case": use_case, "workers": chosen.workers}
    given |= {"steps": chosen.of("steps", use_case), "warmup_steps": chosen.warmup_steps}
    given |= {"per_worker_batch_size": chosen.of("per_worker_batch_size", use_case)}
    given |= fields
    if strategy in EVERY_FEW_STEPS:
        given |= {"steps": chosen.local_steps, "exchange_every": chosen.local_steps}
    return Job.of(strategy, **given)


def traced(job: Job) -> bool:
    """The paper's Figure 5 is of training over several nodes."""
    return job.experiment == "timeline" and job.strategy != "sequential"

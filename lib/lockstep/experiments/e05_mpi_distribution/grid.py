"""Notebook 05's cells: MPI workers of one machine, and of hosts that it emulates, with links of a given rate.

bars            shared memory through engines beside DDP and mpiexec: what our own targets are judged by
headline        three local strategies on one host and on two                           (the paper's headline)
weak            every sync, the batch growing with the workers                          (Table 3 of the paper)
strong          every sync, the global batch staying
timeline        one core, one host, and two: every step of every rank is kept           (Figure 5 of the paper)
links           a few syncs on two hosts, over links of several rates
servers         a server with a host of its own, and a slice of the parameters on each worker
start           how long starting a team takes
collective      exchanges without a model, between the workers of one host
wire            the same between two hosts, and a ping-pong: the link's latency and its rate
servers_wire    the same with servers
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
OVER_LINKS = ("allreduce", "bucketed", "local_sgd", "topk", "terngrad")
CARRIED = ("mpi_allreduce", "rma", "sockets", "mpi_shared_memory")
"""All-reduces that different transports carry."""
SERVED = ("parameter_server", "sharded_server", "gossip")

LONG_MESSAGE_BYTES = 2**20
"""Beyond this a few exchanges take long enough to be timed."""
LONG_MESSAGE_STEPS, SHORT_MESSAGE_STEPS = 3, 20
SMALLEST_MESSAGE_BYTES = 4096
"""Of the teams whose start alone is measured."""


def cells(chosen: Parameters) -> list[Job]:
    """Every cell of the notebook, in the order of its records."""
    jobs = _beside_ddp(chosen)
    for use_case in chosen.use_cases:
        jobs += _headline(chosen, use_case)
        jobs += _weak(chosen, use_case)
        jobs += _strong(chosen, use_case)
        jobs += _on_gpus(chosen, use_case)
        jobs += _timeline(chosen, use_case)
    jobs += _links(chosen)
    jobs += _servers(chosen)
    for strategy in ("engines_shared_memory", "mpi_shared_memory"):
        jobs.append(_exchange(chosen, "start", strategy, SMALLEST_MESSAGE_BYTES))
    for size in chosen.message_bytes:
        jobs += _messages(chosen, size)
    jobs += _bytes_on_links(chosen)
    return jobs


def _beside_ddp(chosen: Parameters) -> list[Job]:
    """Twice as many steps as elsewhere, and a batch of their own."""
    shared = {"steps": 2 * chosen.steps, "per_worker_batch_size": chosen.batch_size}
    jobs = []
    for variant in ("a", "b"):  # an A/A pair
        jobs.append(_cell(chosen, "bars", "sequential", variant=variant, **shared))
    for strategy in ("ddp", "engines_shared_memory"):
        jobs.append(_cell(chosen, "bars", strategy, precision="bfloat16", **shared))
    for workers in chosen.worker_counts:
        for strategy in BESIDE_DDP:
            jobs.append(_cell(chosen, "bars", strategy, workers=workers, **shared))
    return jobs


def _headline(chosen: Parameters, use_case: str) -> list[Job]:
    one_host = {"workers": chosen.workers}
    two_hosts = {"workers": 2 * chosen.workers, **_between_hosts(2, max(chosen.link_rates))}
    jobs = []
    for where in (one_host, two_hosts):
        for variant in ("a", "b"):  # an A/A pair
            jobs.append(_cell(chosen, "headline", "mpi_allreduce", use_case, variant=variant, **where))
        for strategy in ("host_threads", "mpi_shared_memory"):
            jobs.append(_cell(chosen, "headline", strategy, use_case, **where))
    jobs.append(_cell(chosen, "headline", "processes", use_case))
    return jobs


def _weak(chosen: Parameters, use_case: str) -> list[Job]:
    return _every_sync(chosen, "weak", use_case, _named(chosen.weak_syncs.get(use_case, [])))


def _strong(chosen: Parameters, use_case: str) -> list[Job]:
    staying = {"global_batch_size": chosen.of("per_worker_batch_size", use_case)}
    return _every_sync(chosen, "strong", use_case, _named(chosen.strong_syncs.get(use_case, [])), **staying)


def _every_sync(chosen: Parameters, experiment: str, use_case: str, syncs: list[str], **batch: int) -> list[Job]:
    """Nothing without syncs, not even what they would be compared with."""
    jobs = []
    for variant in ("a", "b") if syncs else ():  # an A/A pair
        jobs.append(_cell(chosen, experiment, "sequential", use_case, variant=variant, **batch))
    for workers in chosen.worker_counts:
        for sync in syncs:
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


def _timeline(chosen: Parameters, use_case: str) -> list[Job]:
    longer = {"steps": 2 * chosen.steps}
    two_hosts = _between_hosts(2, max(chosen.link_rates))
    return [
        _cell(chosen, "timeline", "sequential", use_case, **longer),
        _cell(chosen, "timeline", "engines_shared_memory", use_case, **longer),
        _cell(chosen, "timeline", "mpi_allreduce", use_case, **longer, **two_hosts),
    ]


def _links(chosen: Parameters) -> list[Job]:
    jobs = []
    for variant in ("a", "b"):  # an A/A pair
        jobs.append(_cell(chosen, "links", "sequential", variant=variant))
    for rate in chosen.link_rates:
        for sync in OVER_LINKS:
            jobs.append(_cell(chosen, "links", sync, **_between_hosts(2, rate)))
    return jobs


def _servers(chosen: Parameters) -> list[Job]:
    """Four workers on a host each. A step over the slowest link takes long enough to be its own warm-up."""
    shared = {"workers": 4, "warmup_steps": 0, "per_worker_batch_size": chosen.batch_size}
    slowest = min(chosen.link_rates)
    return [
        _cell(chosen, "servers", "sharded_server", **shared, **_between_hosts(4, slowest)),
        _cell(chosen, "servers", "parameter_server", **shared, **_between_hosts(5, slowest)),  # the fifth: the server
    ]


def _messages(chosen: Parameters, size: int) -> list[Job]:
    """What agreeing on a message of `size` bytes takes between two workers, and what a ping-pong of it does."""
    steps = LONG_MESSAGE_STEPS if size > LONG_MESSAGE_BYTES else SHORT_MESSAGE_STEPS
    two_hosts = _between_hosts(2, min(chosen.link_rates))
    jobs = []
    for strategy in ("processes_allreduce", *CARRIED):
        jobs.append(_exchange(chosen, "collective", strategy, size, steps=steps))
    for strategy in SERVED:
        jobs.append(_exchange(chosen, "collective", strategy, size, steps=steps, launcher="mpiexec"))
    for strategy in CARRIED:
        jobs.append(_exchange(chosen, "wire", strategy, size, steps=steps, **two_hosts))
    pair = _exchange(chosen, "wire", "gossip", size, steps=steps, **two_hosts)
    return [*jobs, pair, pair.with_(strategy="ping_pong", sync="ping_pong")]


def _bytes_on_links(chosen: Parameters) -> list[Job]:
    """Exchanges of one size, whose bytes the links count."""
    size, slowest, fastest = chosen.server_bytes, min(chosen.link_rates), max(chosen.link_rates)
    jobs = [
        _exchange(chosen, "servers_wire", "sharded_server", size, workers=4, **_between_hosts(4, slowest)),
        _exchange(chosen, "servers_wire", "parameter_server", size, workers=4, **_between_hosts(5, slowest)),
    ]
    for strategy in ("mpi_allreduce", "mpi_shared_memory", "sockets"):
        jobs.append(_exchange(chosen, "between_hosts", strategy, size, workers=4, **_between_hosts(2, fastest)))
    for hosts in (2, 3, 4):
        jobs.append(
            _exchange(chosen, "traffic", "mpi_allreduce", size, workers=hosts, **_between_hosts(hosts, fastest))
        )
    return jobs


def _between_hosts(hosts: int, link_rate: float) -> dict[str, Any]:
    """Hosts that this machine emulates, a namespace for each, with links of that rate (bit/s) between them."""
    return {"launcher": "mpiexec", "hosts": hosts, "link_bits_per_second": link_rate}


def _exchange(chosen: Parameters, experiment: str, strategy: str, size: int, **fields: Any) -> Job:
    """A vector of `size` bytes is summed, without a model."""
    alone: dict[str, Any] = {"input": "none", "message_bytes": size, "steps": LONG_MESSAGE_STEPS, "warmup_steps": 1}
    return _cell(chosen, experiment, strategy, **alone | {"per_worker_batch_size": chosen.batch_size} | fields)


def _cell(chosen: Parameters, experiment: str, strategy: str, use_case: str = "SimpleBig", **fields: Any) -> Job:
    given: dict[str, Any] = {
        "experiment": experiment,
        "use_case": use_case,
        "steps": chosen.steps,
        "warmup_steps": chosen.of("warmup_steps", use_case),
        "workers": chosen.workers,
        "per_worker_batch_size": chosen.of("per_worker_batch_size", use_case),
    }
    given |= fields
    if strategy in EVERY_FEW_STEPS:
        given |= {"steps": chosen.local_steps, "exchange_every": chosen.local_steps}
    return Job.of(strategy, **given)


def traced(job: Job) -> bool:
    """The paper's Figure 5 is of the cells of `timeline`."""
    return job.experiment == "timeline" and job.variant == "a" and job.precision == "float32"

"""What the calibrated cost model predicts for clusters that nobody measured; every column of a result says `modelled`.

A node for every rank, and a link between them that the reader assumes: `lockstep.predict.cost_model` is calibrated on
this machine's records, the rest is `Cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lockstep.analysis.one_session import on_one_processor
from lockstep.analysis.statistics import AnalysisError
from lockstep.analysis.stored import Stored, once
from lockstep.experiments.refusals import above_zero
from lockstep.predict.cost_model import Costs, calibrated, networks
from lockstep.predict.link_model import AlphaBeta

NODES = (2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 32, 64, 128, 256)
"""Those of sections 4 and 5 and of Table 3, and some beyond."""
ASSUMED = AlphaBeta(5e-5, 8e-9)
"""The link between two nodes of a cluster that nobody measured: 50 µs, 1 Gbit/s."""
BATCH, PER_WORKER = 128, 64
"""Images of a step: in all (strong scaling), for each worker (weak scaling), where the records hold none of these."""
EPOCH_IMAGES = 5856
"""Of the public set that the paper probably means; it states no count."""
WAYS = (("all-reduce", "allreduce", 0), ("parameter server", "parameter_server", 1))
"""Name, sync, and nodes that train nothing."""


@dataclass(frozen=True)
class Cluster:
    """Nodes that nobody measured, and what they would train."""

    nodes: Sequence[int] = NODES  # how many there may be
    link: AlphaBeta = ASSUMED
    batch: int = BATCH
    per_worker: int = PER_WORKER
    epoch_images: int = EPOCH_IMAGES


def cluster_of(stored: Stored) -> Cluster:
    """The cluster that the notebook's parameters assume, else the one above; with the batches that were measured."""
    assumed, known = stored.assumptions, Cluster()
    latency = assumed.get("assumed_latency_seconds", known.link.alpha_seconds)
    rate = above_zero("assumed_bits_per_second", assumed, 8 / known.link.beta_seconds_per_byte)
    return Cluster(
        nodes=assumed.get("forecast_nodes", known.nodes),
        link=AlphaBeta(latency, 8 / rate),
        batch=_largest(stored.of("strong")["global_batch_size"], known.batch),
        per_worker=_largest(stored.of("weak")["per_worker_batch_size"], known.per_worker),
        epoch_images=int(above_zero("epoch_images", assumed, known.epoch_images)),
    )


def _largest(sizes: pd.Series, otherwise: int) -> int:
    return int(sizes.max()) if len(sizes) else otherwise


@once
def cluster_forecast(stored: Stored) -> pd.DataFrame:
    """`forecast_table` of the assumed cluster."""
    cluster = cluster_of(stored)
    return forecast_table(on_one_processor(stored)[0], cluster.nodes, cluster.link, cluster.batch, cluster.per_worker)


def _known(records: pd.DataFrame) -> Iterator[tuple[str, str, Costs]]:
    """Every network with enough cells to calibrate the model; what the others lack, `parameter_table` says."""
    for use_case, network in networks(records):
        try:
            costs = calibrated(records, use_case, network)
        except AnalysisError:
            continue
        yield use_case, network, costs


def forecast_table(
    records: pd.DataFrame, nodes: Sequence[int], link: AlphaBeta, batch: int, per_worker: int
) -> pd.DataFrame:
    """Strong scaling: `batch` images in all; weak: `per_worker` for each worker.

    Columns: use_case, network, scaling, way, nodes, workers, global_batch_size, modelled_step_seconds,
    modelled_exchange_seconds, modelled_speedup (images/s over one node that trains alone: on the whole batch in strong
    scaling, on a worker's in weak), modelled_efficiency (per node, the server's included).
    """
    table = []
    for use_case, network, costs in _known(records):
        for way, sync, servers in WAYS:
            for count in (number for number in nodes if number > servers + bool(servers)):  # one worker: not modelled
                workers = count - servers
                for scaling, whole in (("strong", batch), ("weak", per_worker * workers)):
                    computing, exchange = costs.on_cluster(whole, workers, sync, link)
                    alone_on, times = (whole, 1) if scaling == "strong" else (per_worker, workers)
                    alone, _ = costs.on_cluster(alone_on, 1, sync, link)
                    speedup = times * alone / (computing + exchange)
                    row: dict[str, Any] = {"use_case": use_case, "network": network, "scaling": scaling, "way": way}
                    row |= {"nodes": count, "workers": workers, "global_batch_size": whole}
                    row |= {"modelled_step_seconds": computing + exchange, "modelled_exchange_seconds": exchange}
                    table.append(row | {"modelled_speedup": speedup, "modelled_efficiency": speedup / count})
    return pd.DataFrame(table)


def busy_table(records: pd.DataFrame, nodes: Sequence[int], link: AlphaBeta, images: int) -> pd.DataFrame:
    """The batch that would keep so many nodes busy: each computes for `cost_model.BUSY` of a step.

    And the steps that an epoch of `images` would then have: below 1 the data do not suffice for a single one.

    Columns: use_case, network, way, nodes, modelled_images_per_worker, modelled_global_batch, modelled_steps_per_epoch.
    """
    table = []
    for use_case, network, costs in _known(records):
        for way, sync, servers in WAYS:
            for count in (number for number in nodes if number > servers + 1):
                each = costs.busy_share(count - servers, sync, link)
                whole = each * (count - servers)
                row: dict[str, Any] = {"use_case": use_case, "network": network, "way": way, "nodes": count}
                row |= {"modelled_images_per_worker": each, "modelled_global_batch": whole}
                table.append(row | {"modelled_steps_per_epoch": images / whole})
    return pd.DataFrame(table)

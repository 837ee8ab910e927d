"""What the calibrated model of `lockstep.costs` says of clusters that nobody measured: every column is modelled.

A node for every rank, and a link between them that the caller assumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from lockstep.alphabeta import AlphaBeta
from lockstep.analysis import AnalysisError
from lockstep.costs import Costs, calibrated, networks

NODES = (2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 32, 64, 128, 256)
"""Those of sections 4 and 5 and of Table 3, and some beyond."""
ASSUMED = AlphaBeta(5e-5, 8e-9)
"""The link between two nodes of a cluster that nobody measured: 50 µs, 1 Gbit/s."""
BATCH, PER_WORKER = 128, 64
"""Images of a step: in all (strong scaling), for each worker (weak scaling)."""
WAYS = (("all-reduce", "allreduce", 0), ("parameter server", "parameter_server", 1))
"""Name, sync, and nodes that train nothing."""


def _known(records: pd.DataFrame) -> Iterator[tuple[str, str, Costs]]:
    """Every network with enough cells to calibrate the model; of the others `parameter_table` says what they lack."""
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
            for count in (number for number in nodes if number > servers):
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
    """The batch that would keep so many nodes busy (`costs.BUSY` of a step), and the steps that an epoch of `images`
    would then have: below 1 the data do not suffice for a single one.

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

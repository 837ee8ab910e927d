"""A calibrated model of a data-parallel step: what it should take on workers, batches and links nobody measured.

    one machine   T x (fixed + image x b x (1 + crowding x (busy cores - 1))) + T x (exchange of the strategy)
    a cluster     fixed + image x b + alpha-beta link (a node, and so all its cores' memory, for every worker)

    b  images of the largest share      T  workers that take turns on the fullest core: workers / cores, rounded up
    busy cores = workers / T: ranks are pinned, so of 3 workers on 2 cores two take turns (T = 2) while the other core
    works through the first turn only, 1.5 on average
    exchange of the strategy = seconds of a byte x bytes of its longest chain; one worker exchanges nothing

    bytes of the chain   shared memory   B            every rank reads its slice of all gradients
                         all-reduce      2 (p-1)/p B  of p ranks
                         server          2 p B        incast: all gradients in, all parameters out

Few parameters, so that few cells determine them: three of a network (fixed, image, crowding) and one of each strategy.
All terms are linear in them (image x crowding counts as one), so non-negative least squares of the *relative* error has
one solution. The optimiser is in `fixed`. A link between hosts is no parameter here: it comes from its own ping-pong
(`link_model.link_of`), or is assumed. A server is taken to sleep while workers compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from lockstep.analysis.cells import cells
from lockstep.analysis.statistics import AnalysisError, median_or_nan
from lockstep.analysis.tables import cores_of_machine
from lockstep.engine import registry
from lockstep.engine.declared import Chain, Values, usual_values
from lockstep.engine.job.strategies import STRATEGIES
from lockstep.predict import link_model
from lockstep.predict.link_model import AlphaBeta

CALIBRATION = ("strong", "weak")
HELD_OUT = ("held_out", "held_out_hosts")
"""Experiments that the model is fitted to, and those that it never saw."""
BUSY = 0.9
"""Share of a step that computes, from which on a node counts as busy."""


def priced() -> list[str]:
    """The syncs whose files declare the longest chain of an exchange, with the options of their row in the table."""
    names = registry.syncs_and_peers()
    return [name for name in names if link_model.chain(_cell(name, 2), 1.0) is not None]


def chain_of_sync(sync: str, workers: int, gradient_bytes: float, hosts: int = 1) -> Chain:
    """The longest chain of an exchange by `sync` with the options of its row in the table of strategies.

    4 workers, 1 MB: all-reduce (4 messages, 1.5 MB), server (2, 8 MB). Raises AnalysisError for a sync whose file
    declares no chain.
    """
    return chain_of(_cell(sync, workers, hosts), gradient_bytes)


def chain_of(cell: Mapping[str, Any], gradient_bytes: float) -> Chain:
    """The longest chain of the exchange of a cell of the grid. Raises AnalysisError for one that is not known."""
    found = link_model.chain(cell, gradient_bytes)
    if found is None:
        raise AnalysisError(f"sync={cell['sync']!r} is not in the cost model; there are: {', '.join(priced())}")
    return found


def _cell(sync: str, workers: int, hosts: int = 1) -> Values:
    """A cell with the options of the strategy that has the sync's name, or else with the sync's usual options."""
    declared = registry.sync_of(sync)
    row = STRATEGIES[sync].fields if sync in STRATEGIES else {}
    usual = usual_values(declared) if declared is not None else {}
    return usual | row | {"sync": sync, "workers": workers, "hosts": hosts}


@dataclass(frozen=True)
class Costs:
    """The parameters of one network on one machine."""

    fixed_seconds: float  # of a step, independent of its batch
    image_seconds: float  # of an image on one core while the others are idle
    crowding: float  # how much longer an image takes for every further busy core, as a share
    byte_seconds: Mapping[str, float] = field(default_factory=dict)  # strategy -> seconds of a byte of its chain
    gradient_bytes: float = 0.0
    cores: float = math.inf  # of the machine

    def turns(self, workers: int) -> int:
        """Workers that share the fullest core."""
        return max(1, math.ceil(workers / self.cores))

    def busy_cores(self, workers: int) -> float:
        """Mean number of busy cores over all turns of a step."""
        return workers / self.turns(workers)

    def compute_seconds(self, images: int, workers: int = 1) -> float:
        """Computing time of a step in which each of `workers` on this machine has `images`."""
        each = self.image_seconds * (1 + self.crowding * (self.busy_cores(workers) - 1))
        return self.turns(workers) * (self.fixed_seconds + images * each)

    def exchange_seconds(self, strategy: str, exchange: Chain, workers: int) -> float:
        """Exchange time on this machine. Raises AnalysisError for a strategy that was not calibrated."""
        if not exchange.bytes:
            return 0.0
        if strategy not in self.byte_seconds:
            raise AnalysisError(f"{strategy} was not among the cells that the model was calibrated on")
        return self.turns(workers) * self.byte_seconds[strategy] * exchange.bytes

    def step_seconds(self, cell: Mapping[str, Any], link: AlphaBeta | None = None) -> float:
        """Time of a step of a cell; on several hosts it needs the `link` between them. Raises AnalysisError."""
        computing = self.compute_seconds(share(cell), cell["workers"])
        exchange = chain_of(cell, self.gradient_bytes)
        if cell["hosts"] == 1:
            return computing + self.exchange_seconds(cell["strategy"], exchange, cell["workers"])
        if link is None:
            raise AnalysisError("the link between the hosts was not measured")
        return computing + link.seconds_of(exchange)

    def on_cluster(self, batch: int, workers: int, sync: str, link: AlphaBeta) -> tuple[float, float]:
        """Seconds of computing and of exchanging in a step of `batch` images on a node per worker."""
        images = math.ceil(batch / workers)
        exchange = chain_of_sync(sync, workers, self.gradient_bytes, hosts=workers)
        return self.fixed_seconds + images * self.image_seconds, link.seconds_of(exchange)

    def busy_share(self, workers: int, sync: str, link: AlphaBeta, busy: float = BUSY) -> int:
        """Images that each worker of a cluster must have for `busy` of its step to compute."""
        exchange = link.seconds_of(chain_of_sync(sync, workers, self.gradient_bytes, hosts=workers))
        needed = busy / (1 - busy) * exchange - self.fixed_seconds
        return max(1, math.ceil(needed / self.image_seconds)) if self.image_seconds else 1


def share(cell: Mapping[str, Any]) -> int:
    """Images of the largest share of a step."""
    return math.ceil(cell["global_batch_size"] / cell["workers"])


def modelled(records: pd.DataFrame, experiments: Sequence[str] = (*CALIBRATION, *HELD_OUT)) -> pd.DataFrame:
    """The rows that the model describes: data parallel training on the CPU that exchanges the whole gradient in every
    step; of A/A pairs the first."""
    keep = records["experiment"].isin(experiments) & records["sync"].isin(priced()) & (records["variant"] == "a")
    keep &= records["exchange_every"] == 1
    keep &= (records["device"] == "cpu") & (records["model_parallel"] == "none") & (records["opt_weight"] == "none")
    return records[keep & (records["framework"] == "torch") & (records["compression"] == "none")]


def gradient_bytes(records: pd.DataFrame) -> float:
    """Bytes of a network's gradient, from what a rank of its all-reduce sends: 2 (p-1)/p times as much.

    Raises AnalysisError without such rows.
    """
    rows = records[(records["sync"] == "allreduce") & (records["workers"] > 1) & (records["status"] == "ok")]
    found = rows["bytes_sent"].astype(float) * rows["workers"] / (2 * (rows["workers"] - 1))
    if found.dropna().empty:
        raise AnalysisError("no all-reduce among the records says how large the gradient is")
    return median_or_nan(found)


Measured = list[tuple[dict[str, Any], np.ndarray]]
"""Cells, and the seconds of a step of each in every round."""


def calibrated(records: pd.DataFrame, use_case: str, network: str) -> Costs:
    """The model fitted to the ok cells of CALIBRATION (medians over rounds). Raises AnalysisError for too few."""
    found, bare = _calibration(records, use_case, network)
    return _fitted(found, [float(np.median(values)) for _, values in found], bare)


def recalibrated(records: pd.DataFrame, use_case: str, network: str, draws: int = 200) -> list[Costs]:
    """`calibrated` anew on so many draws of the rounds of each cell, with replacement: how sure its parameters are.

    Raises AnalysisError as `calibrated` does.
    """
    found, bare = _calibration(records, use_case, network)
    random = np.random.default_rng(0)
    drawn = [np.median(random.choice(values, (draws, len(values))), axis=1) for _, values in found]
    return [_fitted(found, seconds, bare) for seconds in np.stack(drawn, axis=1).tolist()]


def fewest_rounds(records: pd.DataFrame, use_case: str, network: str) -> int:
    """The rounds of the cell with the fewest among those that `calibrated` is fitted to; raises AnalysisError as it."""
    return min(len(values) for _, values in _calibration(records, use_case, network)[0])


def _calibration(records: pd.DataFrame, use_case: str, network: str) -> tuple[Measured, Costs]:
    """The cells that the model is fitted to, and a model that knows only the size of the gradient and the cores."""
    own = modelled(records, CALIBRATION)
    own = own[(own["use_case"] == use_case) & (own["network"] == network) & (own["status"] == "ok")]
    found = [(cell, rows["step_seconds"].dropna().to_numpy(dtype=float)) for cell, rows in cells(own)]
    strategies = _strategies(found)
    if len({share(cell) for cell, _ in found}) < 2 or len(found) < 3 + len(strategies):
        raise AnalysisError(
            f"{use_case} {network}: {len(found)} cells of {' and '.join(CALIBRATION)} can't determine "
            f"{3 + len(strategies)} parameters; measure two batches per worker and one and two workers"
        )
    cores = cores_of_machine(modelled(records)[lambda kept: kept["status"] == "ok"])
    return found, Costs(0.0, 0.0, 0.0, {}, gradient_bytes(own), cores)


def _strategies(found: Measured) -> list[str]:
    return list(dict.fromkeys(cell["strategy"] for cell, _ in found if cell["workers"] > 1))


def _fitted(found: Measured, seconds: Sequence[float], bare: Costs) -> Costs:
    from scipy.optimize import nnls

    strategies = _strategies(found)
    relative = np.array([_terms(bare, cell, strategies) for cell, _ in found]) / np.array(seconds)[:, None]
    scale = np.abs(relative).max(axis=0)  # columns of a like size, for the solver
    scale[scale == 0] = 1.0
    solution, _ = nnls(relative / scale, np.ones(len(seconds)))
    fixed, image, crowded, *each = (float(value) for value in solution / scale)
    crowding = crowded / image if image else 0.0
    byte_seconds = dict(zip(strategies, each, strict=True))
    return Costs(fixed, image, crowding, byte_seconds, bare.gradient_bytes, bare.cores)


def _terms(bare: Costs, cell: Mapping[str, Any], strategies: Sequence[str]) -> list[float]:
    """The factor of each parameter in the step of a cell."""
    turns, images = bare.turns(cell["workers"]), share(cell)
    sent = chain_of(cell, bare.gradient_bytes).bytes
    crowd = bare.busy_cores(cell["workers"]) - 1
    own = [turns * sent if cell["strategy"] == name else 0.0 for name in strategies]
    return [turns, turns * images, turns * images * crowd, *own]


def parameter_table(records: pd.DataFrame) -> pd.DataFrame:
    """The fitted parameters, a row per network: fixed_seconds, image_seconds, crowding, gradient_bytes, cores, the
    seconds of a MB of each strategy's chain, and reason where there is no fit."""
    table = []
    for use_case, network in networks(records):
        row: dict[str, Any] = {"use_case": use_case, "network": network}
        try:
            found = calibrated(records, use_case, network)
            row |= {"fixed_seconds": found.fixed_seconds, "image_seconds": found.image_seconds}
            row |= {"crowding": found.crowding, "gradient_bytes": found.gradient_bytes, "cores": found.cores}
            row |= {f"{name}_seconds_per_MB": 1e6 * value for name, value in found.byte_seconds.items()}
            row |= {"reason": ""}
        except AnalysisError as error:
            row |= {"reason": str(error)}
        table.append(row)
    return pd.DataFrame(table)


def networks(records: pd.DataFrame) -> list[tuple[str, str]]:
    """(use case, network) of all rows that the model describes."""
    rows = modelled(records)
    return list(dict.fromkeys(zip(rows["use_case"].astype(str), rows["network"].astype(str), strict=True)))
